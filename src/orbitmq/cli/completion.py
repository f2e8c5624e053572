"""``orbitmq completion``: the script with which a shell completes commands and options."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Literal

from cyclopts import App, Parameter

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.view import View

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
    """One App with all families. The flags of mqnamesrv, mqbroker and mqadmin are not in it."""
    from orbitmq.cli.main import BROKERS, COMMANDS
    from orbitmq.cli.mqadmin.main import OFFERED

    whole = App(name=PROGRAM, help_format="plaintext", version_flags=[])
    for name, (module, text) in COMMANDS.items():
        own = BROKERS if name == "broker" else module
        plain = name in ("nameserver", "mqadmin")
        family = App(name=name, help=text, version_flags=[]) if plain else import_module(own).app
        whole.command(family, name=name)
    for name, offer in OFFERED.items():
        whole["mqadmin"].command(App(name=name, help=offer.text, version_flags=[]), name=name)
    return whole
