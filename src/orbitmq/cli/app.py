"""How one command is parsed and run: its options, its exit code, its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, TypeVar

from orbitmq import _streams
from orbitmq.cli import java_options
from orbitmq.cli.failures import EXIT_OK, EXIT_USAGE, UsageError, first_of, report

try:
    from cyclopts import App, CycloptsError, Parameter
except ImportError:
    print("orbitmq: this command needs cyclopts: pip install 'orbitmq[cli]'", file=sys.stderr)
    sys.exit(EXIT_USAGE)

T = TypeVar("T")
# Options that commands share: the same letter always means the same.
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative=())]
DryRun = Annotated[bool, Parameter(negative=())]
Topic = Annotated[str | None, Parameter(name=["--topic", "-t"])]
Count = Annotated[int, Parameter(name=["--count", "-c"])]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that talks to a cluster.

    Parameters
    ----------
    name_servers
        Addresses of the name servers, host:port;host:port, or where the list is: http://host:8080/path or
        dns://name:port. Default: $NAMESRV_ADDR, else 127.0.0.1:9876.
    json
        Print JSON: one object, or one object a line for each message.
    """

    name_servers: Annotated[str | None, Parameter(name=["--name-servers", "-n"])] = None
    json: Annotated[bool, Parameter(negative=())] = False

    @property
    def addresses(self) -> str:
        java_options.refuse_tls_of_tool()
        from orbitmq.client.core.name_servers import name_servers_of
        from orbitmq.runtime.system import SystemHost
        from orbitmq.wire.addresses import shown

        return shown(name_servers_of(self.name_servers or None, SystemHost()))


@Parameter(name="*")
@dataclass(frozen=True)
class Faults:
    """Options of the commands that send about slow and failed brokers.

    Parameters
    ----------
    fault_tolerance
        Send around slow and failed brokers by the rules of a RocketMQ release.
        4.x avoids them for long; so does 4.7, but its retries prefer the broker just tried.
        5.x avoids them briefly and probes them.
    watch
        Show while it sends, and once more at the end, the producer's fault table: which brokers are avoided
        and for how long, their latencies, and how the last messages were shared out.
    """

    fault_tolerance: Literal["off", "4.7", "4.x", "5.x"] = "off"
    watch: Annotated[bool, Parameter(negative=())] = False


def run(name: str, module: str, arguments: Sequence[str]) -> int:
    """Run the command ``name``, whose ``app`` lives in ``module``, and return the exit code."""
    try:
        command: App = import_module(module).app
        result = command(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return result if isinstance(result, int) else EXIT_OK
    except CycloptsError as error:
        text = " ".join(str(error).split())
        print(f"orbitmq {name}: {text} (see 'orbitmq {name} --help')", file=sys.stderr)
        return EXIT_USAGE
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return EXIT_OK  # rich raises this when the reader of a pipe goes away while help is printed
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (
        Exception,
        KeyboardInterrupt,
    ) as error:  # the last stop before the user: everything becomes a line
        if _streams.is_of_output(first_of(error)):
            raise first_of(error) from None  # main says so
        return report(name, error)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on uvloop when it is installed, on asyncio's loop otherwise."""
    import asyncio

    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def confirm(verb: str, what: str, *, yes: bool) -> None:
    """Ask before something is done that cannot be undone as easily.

    Raises:
        UsageError: the answer is no, or nobody is there to give one and there is no ``yes``.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"not done: {verb.lower()} {what}; give --yes to do it without being asked")
    if input(f"{verb} {what}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("not done")


def make_app(name: str, text: str, examples: str) -> App:
    """An App in this project's way: plain help with examples below it, no version flag of its own."""
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    app = App(
        name=f"orbitmq {name}",
        help=text,
        help_format="plaintext",
        help_epilogue=f"Examples:\n{lines}",
        version_flags=[],
    )
    app["--help"].show = False
    return app
