"""``orbitmq cluster``: which brokers there are, and how they do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_OK
from orbitmq.cli.output import print_json, print_table

if TYPE_CHECKING:
    from orbitmq.admin.model import BrokerState

REFRESH_S = 1.0
HEADINGS = [
    "cluster",
    "broker",
    "id",
    "address",
    "role",
    "log end",
    "lag bytes",
    "lag ms",
    "in sync",
    "special services",
    "epoch",
]

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
def list_brokers(
    *,
    watch: Annotated[bool, Parameter(negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Show every live broker. Id 0 is the master of its group.

    Parameters
    ----------
    watch
        Show it again each second, until Ctrl-C; with --json one line each second.
    """
    return run_async(_watch(common) if watch else _list(common))


async def _list(common: Common) -> int:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        brokers = await admin.broker_states()
    if common.json:
        print_json([_json(broker) for broker in brokers])
    else:
        print_table(HEADINGS, [_cells(broker) for broker in brokers])
    return EXIT_OK


async def _watch(common: Common) -> int:
    from contextlib import nullcontext

    from rich.live import Live

    from orbitmq.admin import Admin
    from orbitmq.runtime.system import system_runtime

    runtime = system_runtime()
    live = None if common.json else Live(auto_refresh=False)
    async with Admin(common.addresses, runtime=runtime) as admin:
        with live or nullcontext():
            while True:
                brokers = await admin.broker_states()
                if live is None:
                    print_json([_json(broker) for broker in brokers], one_line=True)
                else:
                    live.update(_picture(brokers), refresh=True)
                await runtime.clock.sleep(REFRESH_S)


def _picture(brokers: list[BrokerState]) -> Any:
    from rich.table import Table

    picture = Table(*HEADINGS)
    for broker in brokers:
        picture.add_row(*map(str, _cells(broker)), style="red" if broker.problem else None)
    return picture


def _json(state: BrokerState) -> dict[str, Any]:
    found = asdict(state)
    return {**found.pop("broker"), **found}


def _cells(state: BrokerState) -> list[object]:
    broker = state.broker
    told = [
        state.log_end,
        state.lag_bytes,
        state.lag_ms,
        _in_sync(state),
        _yes(state.special_services),
        state.epoch,
    ]
    cells = ["-" if cell is None else cell for cell in told]
    role = f"{state.role}, does not answer" if state.problem else state.role
    return [broker.cluster, broker.name, broker.broker_id, broker.address, role, *cells]


def _in_sync(state: BrokerState) -> str | None:
    shown = _yes(state.in_sync)
    return f"{shown}, silent {state.silent_ms / 1000:.1f} s" if shown and state.silent_ms else shown


def _yes(flag: bool | None) -> str | None:
    return None if flag is None else ("yes" if flag else "no")
