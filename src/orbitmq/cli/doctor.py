"""``orbitmq doctor``: faults of this machine or of the cluster, each with a remedy."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.diagnosis import Finding, Machine, Seen, findings, without_brokers
from orbitmq.cli.failures import UsageError
from orbitmq.cli.output import json_text
from orbitmq.cli.tls_words import as_options
from orbitmq.cli.view import Columns, Table, View, plain, same
from orbitmq.wording import counted, masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin import Admin, BrokerInfo

app = make_app(
    "doctor",
    "Look for what is wrong with this machine or the cluster. Nothing is changed.",
    """
orbitmq doctor
orbitmq doctor --json
orbitmq doctor --bundle findings.json
""",
)

FOUND: Columns = {**same("check", "where"), "found": "text", "to do": "fix"}


@app.default
@command
async def doctor(admin: Admin, /, *, bundle: str | None = None) -> View:
    """Look at compiled modules, event loop, descriptors, file modes, versions; address, clock, flush time and
    open doors of each broker. The exit code is 1 when there is something to do.

    Args:
        bundle: File to write, with the findings and the brokers' reports and settings, for a bug report.
            Secrets appear as ***.
    """
    from orbitmq.errors import NameServerError

    notes: list[str] = []
    brokers: Sequence[BrokerInfo] = ()
    problem = "no broker is registered"
    try:
        brokers = await admin.brokers.list()
    except NameServerError as error:
        problem = as_options(str(error))
    seen = await asyncio.gather(*(_look(admin, broker) for broker in brokers))
    found = [*findings(_machine(), seen), *([] if brokers else [without_brokers(problem)])]
    wrong = [one for one in found if not one.fine]
    if bundle is not None:
        _write(bundle, found, seen)
        notes.append(f"{bundle} has the findings; look through it before you give it away")
    line = f"{counted(len(wrong), 'thing')} to do" if wrong else "nothing to do"
    rows = [{**plain(one), "fine": one.fine} for one in found]
    return View(
        {},
        [Table("findings", rows, FOUND, red=lambda row: not row["fine"])],
        lines=[f"{line}, of {len(found)} looked at"],
        notes=notes,
        failed=bool(wrong),
    )


async def _look(admin: Admin, broker: BrokerInfo) -> Seen:
    from orbitmq.errors import BrokerError, ConnectionLostError, OrbitError, TlsError
    from orbitmq.runtime.system import system_runtime

    clock = system_runtime().clock
    asked_ms = clock.now_ms()
    try:
        status = await admin.brokers.runtime(broker.address)
        answered_ms = clock.now_ms()
    except OrbitError as error:
        problem = as_options(str(error))
        closed = isinstance(error, ConnectionLostError | TlsError)
        return Seen(broker, problem, refuses=isinstance(error, BrokerError), closed=closed)
    try:
        settings = await admin.brokers.settings(broker.address)
    except OrbitError:  # the broker refuses: its settings are not open to everyone
        settings = {}
    shown = {key: masked(key, value) for key, value in settings.items()}
    return Seen(broker, "", asked_ms, answered_ms, status, shown)


def _machine() -> Machine:
    import resource

    from orbitmq import _speed
    from orbitmq.cli import contexts
    from orbitmq.errors import ValidationError
    from orbitmq.runtime.system import SystemHost

    try:
        contexts.load(SystemHost())
        problem = ""
    except (UsageError, ValidationError) as error:
        problem = str(error)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = 2**31 if most == resource.RLIM_INFINITY else most
    compiled = _speed.of_package() == "compiled"
    return Machine(compiled, find_spec("uvloop") is not None, descriptors, problem)


def _write(path: str, found: Sequence[Finding], brokers: Sequence[Seen]) -> None:
    from orbitmq import __version__
    from orbitmq.runtime.system import SystemFiles

    content: dict[str, Any] = {
        "version": __version__,
        "findings": list(map(plain, found)),
        "brokers": list(map(plain, brokers)),
    }
    SystemFiles().write_atomic(path, json_text(content).encode() + b"\n", private=True)
