"""``orbitmq cluster``: the brokers and their state."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import Flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.tls_words import as_options
from orbitmq.cli.view import Columns, Line, Row, Table, View, plain, same
from orbitmq.cli.where import Servers

if TYPE_CHECKING:
    from orbitmq.admin import BrokerState

REFRESH_S = 1.0
# Timeout of each refresh: a frozen broker delays the whole table.
ANSWER_S = 1.5


def _in_sync(row: Row) -> str | None:
    shown = None if row["in_sync"] is None else "yes" if row["in_sync"] else "no"
    return f"{shown}, silent {row['silent']:.1f} s" if shown and row["silent"] else shown


def _silence(row: Row) -> str:
    return "refuses" if row["refuses"] else "does not answer"


COLUMNS: Columns = {
    **same("cluster", "broker"),
    "id": "broker_id",
    "address": "address",
    "role": lambda row: f"{row['role']}, {_silence(row)}" if row["problem"] else row["role"],
    **same("log end", "lag bytes"),
    "lag s": "lag",
    "in sync": _in_sync,
    **same("special services", "epoch"),
}
SPARED = ("special services", "epoch", "cluster", "lag s", "log end")

app = make_app(
    "cluster",
    "Show the brokers of the clusters.",
    """
orbitmq cluster list
orbitmq cluster list --watch
orbitmq cluster list -n 'host-a:9876;host-b:9876' --json
""",
)


@app.command(name="list")
@command
def list_brokers(servers: Servers, /, *, watch: Flag = False) -> Awaitable[View] | Views:
    """Show every live broker. Id 0 is the master of its group.

    Args:
        watch: Show the brokers again every second, until Ctrl-C; with --json as one object per line. The
            command continues while no name server answers. In a file or a pipe the tables follow one another,
            each with its time.
    """
    return _watched(servers) if watch else _once(servers)


async def _once(servers: Servers) -> View:
    from orbitmq.admin import Admin

    async with Admin(**servers.options) as admin:
        return _view(await admin.brokers.states())


async def _watched(servers: Servers) -> Views:
    """The brokers each second. Only the first look has to succeed: later the name servers may be away for a
    while.
    """
    from orbitmq.admin import Admin
    from orbitmq.errors import OrbitError
    from orbitmq.runtime.system import system_runtime

    clock = system_runtime().clock
    async with Admin(**servers.options, timeout=ANSWER_S) as admin:
        answered, brokers = True, await admin.brokers.states()
        while True:
            now = f"{clock.local_time(clock.now_ms()):%H:%M:%S}"
            if answered:
                yield replace(_view(brokers), moment=now)
            await clock.sleep(REFRESH_S)
            try:
                answered, brokers = True, await admin.brokers.states()
            except OrbitError as error:
                if answered:
                    yield Line(note=f"{now}  {error}: looking again")
                answered = False


def _view(states: Sequence[BrokerState]) -> View:
    brokers = [_plain(state) for state in states]
    # With only one cluster, a narrow table needs no column for it.
    alike = len({broker["cluster"] for broker in brokers}) == 1
    spared = [heading for heading in SPARED if alike or heading != "cluster"]
    table = Table("brokers", brokers, COLUMNS, True, spared, red=lambda row: bool(row["problem"]))
    notes = [f"{_placed(state)}: {state.problem}" for state in states if state.problem]
    return View({}, [table], lines=[] if brokers else ["no broker is registered"], notes=notes)


def _placed(state: BrokerState) -> str:
    from orbitmq.admin.answers import placed

    broker = state.broker
    return placed(f"{broker.name} (id {broker.broker_id})", broker.address, state.problem)


def _plain(state: BrokerState) -> dict[str, Any]:
    found = plain(state)
    broker = found.pop("broker")
    return {"cluster": broker["cluster"], "broker": broker["name"], "broker_id": broker["broker_id"],
            "address": broker["address"], **found, "problem": as_options(state.problem)}  # fmt: skip
