"""``orbitmq completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.view import View

if TYPE_CHECKING:
    from orbitmq.cli.mqadmin.offers import Flag

app = make_app(
    "completion",
    "Print the script with which a shell completes commands and options.",
    """
orbitmq completion bash > ~/.local/share/bash-completion/completions/orbitmq
orbitmq completion zsh > ~/.zsh/completions/_orbitmq
orbitmq completion fish > ~/.config/fish/completions/orbitmq.fish
""",
)

PROGRAM = "orbitmq"


@app.default
@command
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter()], /) -> View:
    """Print the script. It needs nothing else: pressing Tab asks no cluster and does not start orbitmq.

    Args:
        shell: The shell that reads it.
    """
    script = _all_commands().generate_completion(prog_name=PROGRAM, shell=shell)
    return View({"shell": shell, "script": script}, lines=[script.rstrip("\n")])


def _all_commands() -> App:
    """One App with all command families, without the flags of mqnamesrv and mqbroker."""
    from orbitmq.cli.main import BROKERS, COMMANDS
    from orbitmq.cli.mqadmin.main import OFFERED, flags_of

    whole = App(name=PROGRAM, help_format="plaintext", version_flags=[])
    for name, (module, text) in COMMANDS.items():
        own = BROKERS if name == "broker" else module
        plain = name in ("nameserver", "mqadmin")
        family = App(name=name, help=text, version_flags=[]) if plain else import_module(own).app
        whole.command(family, name=name)
    for name, offer in OFFERED.items():
        command = App(name=name, help=offer.text, version_flags=[])
        command.default(_with_flags(flags_of(offer)))
        whole["mqadmin"].command(command, name=name)
    return whole


def _with_flags(flags: Sequence[Flag]) -> Callable[..., None]:
    """A function with these flags and the common flags of mqadmin, for the completion only."""

    def command(**_options: object) -> None: ...

    names = [(["-n", "--namesrvAddr"], "addresses of the name servers", True)]
    names.append((["--context"], "the cluster of this context", True))
    for flag in flags:
        letter = [f"-{flag.letter}"] if flag.letter else []
        names.append(([*letter, f"--{flag.name}"], flag.help, flag.takes))
    parameters = [
        inspect.Parameter(
            f"flag{number}",
            inspect.Parameter.KEYWORD_ONLY,
            default=None if takes else False,
            annotation=Annotated[str | None if takes else bool, Parameter(name=own, help=text, negative=())],
        )
        for number, (own, text, takes) in enumerate(names)
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command
