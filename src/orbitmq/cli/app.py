"""How one command is parsed and run: its options, its exit code, its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from orbitmq import _streams
from orbitmq.cli.failures import EXIT_OK, EXIT_USAGE, Tell, UsageError, first_of, report, to_errors

try:
    from cyclopts import (
        App,
        CoercionError,
        CycloptsError,
        MissingArgumentError,
        Parameter,
        UnknownOptionError,
        UnusedCliTokensError,
    )
except ImportError:
    print("orbitmq: this command needs cyclopts: pip install 'orbitmq[cli]'", file=sys.stderr)
    sys.exit(EXIT_USAGE)

if TYPE_CHECKING:
    from orbitmq.cli.view import View

T = TypeVar("T")


def flag(help: str | None = None, *names: str) -> Parameter:
    """An option without a value, which has no opposite option."""
    # If ``help`` is passed, even as None, it hides the docstring's text.
    given: dict[str, Any] = {"help": help, "name": list(names) or None}
    return Parameter(negative=(), **{key: value for key, value in given.items() if value is not None})


# Parameters that commands share: the same letter always means the same.
Yes = Annotated[bool, flag("Do it without asking first.", "--yes", "-y")]
DryRun = Annotated[bool, flag("Only print what would be done; nothing is changed.")]
All = Annotated[bool, flag(None, "--all", "-a")]
Flag = Annotated[bool, flag()]
Topic = Annotated[str, Parameter(help="Name of the topic.")]
Group = Annotated[str, Parameter(help="Name of the consumer group.")]
OfTopic = Annotated[str | None, Parameter(name=["--topic", "-t"])]
Count = Annotated[int, Parameter(name=["--count", "-c"])]
Cluster = Annotated[
    str | None, Parameter(help="Only at the brokers of this cluster. Default: of all clusters.")
]
Timeout = Annotated[float, Parameter(help="Seconds for each send, all tries together.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Faults:
    """Options for slow and failed brokers, of the commands that send.

    Attributes:
        fault_tolerance: Send around slow and failed brokers by the rules of a RocketMQ release. 4.x avoids
            them for long; so does 4.7, but its retries prefer the broker just tried. 5.x avoids them briefly
            and probes them.
        watch: Show the producer's table of brokers while it sends, and once more at the end: which ones it
            avoids and for how long, their latencies, and how the last messages were shared out.
    """

    fault_tolerance: Literal["off", "4.7", "4.x", "5.x"] = "off"
    watch: Flag = False


def run(name: str, module: str, arguments: Sequence[str]) -> int:
    """Run the command ``name``, whose ``app`` is in ``module``, and return the exit code.

    A module's ``TELL``, if it has one, reports the command's failures in place of :func:`to_errors`.
    """
    tell: Tell = to_errors
    try:
        family = import_module(module)
        tell = getattr(family, "TELL", to_errors)
        command: App = family.app
        result = command(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return result if isinstance(result, int) else EXIT_OK
    except CycloptsError as error:
        place = " ".join((name, *(error.command_chain or ())))
        return tell(name, f"{_usage(error)} (see 'orbitmq {place} --help')", EXIT_USAGE)
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return EXIT_OK  # rich raises SystemExit when the reader of a pipe is gone while help is printed
    except BrokenPipeError:
        # The program that reads the output has ended (`| head`), which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (Exception, KeyboardInterrupt) as error:  # no error escapes: the user sees one line
        if _streams.is_of_output(first_of(error)):
            raise first_of(error) from None  # main() reports that the output cannot be written
        return report(name, error, tell)


def _usage(error: CycloptsError) -> str:
    """The fault of a command line, in words."""
    number = {int: "a whole number", float: "a number"}
    if isinstance(error, CoercionError) and error.token and error.target_type in number:
        option = error.token.keyword or (error.argument.name if error.argument else "")
        return f"{option} {error.token.value}: expected {number[error.target_type]}"
    if isinstance(error, UnknownOptionError):
        from difflib import get_close_matches

        given = error.token.keyword or error.token.value
        known = {name.strip("-"): name for one in error.argument_collection for name in one.names}
        near = get_close_matches(given.strip("-"), known, 1)
        return f"there is no option {given}" + (f": did you mean {known[near[0]]}?" if near else "")
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        count, _ = error.argument.token_count()
        if error.keyword is None:
            return f"{error.argument.name} is missing"
        given = " ".join((error.keyword, *error.tokens_so_far))
        return f"{given}: expected {'a value' if count == 1 else f'{count} values'}"
    return " ".join(str(error).split())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on uvloop if it is installed, otherwise on asyncio's loop."""
    import asyncio

    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


async def confirm(verb: str, what: str, *, yes: bool, plan: View | None = None) -> None:
    """Ask at the terminal before a change that is hard to undo; show the plan first.

    Both go to standard error: standard output may be JSON for a program.

    Raises:
        UsageError: the answer is no, or standard input is no terminal and ``yes`` is false.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"not done: {verb.lower()} {what}; give --yes to do it without being asked")
    if plan is not None:
        plan.print(to_errors=True)
    from orbitmq.cli import standard_input

    print(f"{verb} {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    if (await standard_input.answer()).lower() not in ("y", "yes"):
        raise UsageError("not done")


def _default(value: object) -> str | None:
    """The default value as help shows it; ``None`` to show none, where the text describes the default."""
    return None if value in (None, False, "", "*") else str(value)


def make_app(name: str, text: str, examples: str) -> App:
    """An App with plain help texts, examples below them, and no version flag."""
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    app = App(
        name=f"orbitmq {name}",
        help=text,
        help_format="plaintext",
        help_epilogue=f"Examples:\n{lines}",
        version_flags=[],
        default_parameter=Parameter(show_default=_default),
    )
    app["--help"].show = False
    return app
