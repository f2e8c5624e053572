"""``orbitmq context``: named clusters, with the keys and the TLS of their user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from orbitmq.cli import contexts
from orbitmq.cli.app import Flag, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.view import Columns, Row, Table, View, listed
from orbitmq.runtime.system import SystemHost

if TYPE_CHECKING:
    from orbitmq.cli.contexts import Context

app = make_app(
    "context",
    "Clusters with a name, and the user that signs: create, list, show, choose and delete contexts.",
    """
orbitmq context create prod -n 'mq-1:9876;mq-2:9876' --ca ca.pem
orbitmq context create dev -n mq-9:9876 --user ops --secret-command 'pass mq'
orbitmq context list
orbitmq context use prod
orbitmq context show dev --json
orbitmq context delete dev
""",
)

Name = Annotated[str, Parameter(help="Name of the context.")]
File = Path | None


def _tls(row: Row) -> str | None:
    if not (row["tls"] or row["ca"] or row["cert"] or row["key"]):
        return None
    return "mutual" if row["cert"] else "yes"


COLUMNS: Columns = {
    "current": "current",
    "context": "context",
    "name servers": "name_servers",
    "user": "user",
    "tls": _tls,
}


@app.command
@command
def create(
    name: Name,
    /,
    *,
    servers: Annotated[
        str,
        Parameter(
            name=["--name-servers", "-n"],
            help="Addresses of the name servers, as every command takes them.",
        ),
    ],
    user: str = "",
    secret_command: str = "",
    credentials_file: File = None,
    tls: Flag = False,
    ca: File = None,
    cert: File = None,
    key: File = None,
    check_host: bool = True,
) -> View:
    """Add a context. The first one is used from then on, until 'orbitmq context use' names another one.

    Args:
        user: The access key that requests are signed with.
        secret_command: Command that prints the secret key of the user, such as 'pass mq/ops'. It is run
            without a shell by each command that asks the cluster, and has 60 seconds.
        credentials_file: File with accessKey and secretKey, instead of --user and --secret-command.
        tls: Speak TLS, with the authorities that this machine trusts.
        ca: File with the certificate of the authority that signed those of the servers.
        cert: File with the certificate that is shown to servers which ask for one.
        key: File with the private key of --cert.
        check_host: Accept only certificates that are valid for the connected host.
    """
    host = SystemHost()
    contexts.check_name(name)
    known = contexts.load(host)
    if name in known.contexts:
        raise UsageError(f"context {name} is there already: 'orbitmq context delete {name}' removes it")
    made = contexts.Context(
        name_servers=servers,
        user=user,
        secret_command=secret_command,
        credentials_file=_absolute(credentials_file),
        tls=tls,
        ca=_absolute(ca),
        cert=_absolute(cert),
        key=_absolute(key),
        check_host=check_host,
    )
    _check(made)
    current = known.current or name
    contexts.save(host, contexts.Contexts(current=current, contexts={**known.contexts, name: made}))
    lines = [f"context {name} is in {contexts.file_of(host)}"]
    lines.append(
        "it is the current one: commands without --context and -n use it"
        if current == name
        else f"the current one is {current}: use --context {name}, or 'orbitmq context use {name}'"
    )
    return View(_facts(name, made, current), lines=lines, notes=_instead(host))


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.expanduser().absolute())


def _check(made: Context) -> None:
    """Refuse a context that no command could use. The secret command is not run.

    Raises:
        UsageError: the context has no address, only one of the two keys, or keys from two sources.
        ValidationError: an address, or a file of keys or TLS, is invalid.
    """
    if bool(made.user) != bool(made.secret_command.strip()):
        raise UsageError("--user and --secret-command belong together")
    if made.user and made.credentials_file:
        raise UsageError("--user and --credentials-file both give keys: give one of them")
    if not made.check_host and not made.speaks_tls:
        raise UsageError("--no-check-host is about TLS: give --tls or --ca, too")
    from orbitmq.client.core.identities import identity_of
    from orbitmq.client.core.name_servers import parse_source

    keys = {"credentialsFile": made.credentials_file, **made.tls_options()}
    if not parse_source(made.name_servers):
        raise UsageError("--name-servers: there is no address in it")
    given = {option: value for option, value in keys.items() if value}
    identity_of(given, SystemHost(), contexts.OPTIONS)


@app.command(name="list")
@command
def list_contexts() -> View:
    """List the contexts."""
    host = SystemHost()
    known = contexts.load(host)
    rows = [_facts(name, one, known.current) for name, one in sorted(known.contexts.items())]
    table = Table("contexts", rows, COLUMNS, optional=True)
    return View(
        {"file": contexts.file_of(host)},
        [table],
        lines=[] if rows else ["there are no contexts"],
        notes=_instead(host),
    )


@app.command
@command
def show(name: str | None = None, /) -> View:
    """Show a context. Its secret is not asked for.

    Args:
        name: Name of the context. Default: the current one.
    """
    host = SystemHost()
    known = contexts.load(host)
    if name is None and not known.current:
        raise UsageError("there is no current context: name one")
    chosen = name or known.current
    facts = _facts(chosen, known.named(chosen, "context"), known.current)
    return View(facts, lines=listed({field: value for field, value in facts.items() if value != ""}))


@app.command
@command
def use(name: Name, /) -> View:
    """Make a context the current one: commands without --context and -n use it."""
    host = SystemHost()
    known = contexts.load(host)
    found = known.named(name, "context")
    contexts.save(host, msgspec.structs.replace(known, current=name))
    return View(
        {"context": name, "name_servers": found.name_servers},
        lines=[f"{name} is the current context: {found.name_servers}"],
        notes=_instead(host),
    )


@app.command
@command
async def delete(name: Name, /, *, yes: Yes = False) -> View:
    """Delete a context, not the cluster. Asks first."""
    host = SystemHost()
    known = contexts.load(host)
    known.named(name, "context")
    await confirm("Delete", f"context {name}", yes=yes)
    left = {other: one for other, one in known.contexts.items() if other != name}
    current = "" if known.current == name else known.current
    contexts.save(host, contexts.Contexts(current=current, contexts=left))
    line = f"deleted context {name}" + ("; there is no current one now" if known.current == name else "")
    return View({"context": name, "current": current or None, "deleted": True}, lines=[line])


def _facts(name: str, one: Context, current: str) -> dict[str, Any]:
    return {"context": name, "current": name == current, **one.as_json()}


def _instead(host: SystemHost) -> list[str]:
    """A note about what takes precedence over the current context at present."""
    variable = host.variable(contexts.VARIABLE)
    if variable:
        return [f"${contexts.VARIABLE} is set: {variable} is used, whatever context is the current one"]
    from orbitmq.client.core.name_servers import VARIABLE, name_servers_of

    if host.variable(VARIABLE) and name_servers_of(None, host):
        return [f"${VARIABLE} is set: that cluster is used, no context, unless --context names one"]
    return []
