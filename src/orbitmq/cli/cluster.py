"""``orbitmq cluster``: which brokers there are, and how they do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.command import asked
from orbitmq.cli.view import View, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin.model import BrokerState

HEADINGS = [
    "cluster",
    "broker",
    "id",
    "address",
    "role",
    "log end",
    "lag bytes",
    "lag s",
    "in sync",
    "special services",
    "epoch",
]
# What a narrow terminal goes without, the first first.
SPARED = ["special services", "epoch", "cluster", "lag s", "log end"]
NONE = "no broker is registered"

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
        Show it again each second, until Ctrl-C; with --json one object a line each second. It goes on
        while no name server answers. Into a file or a pipe: one table below the other, with the time.
    """
    if watch:
        from orbitmq.cli.cluster_watch import watch as watch_brokers

        return run_async(watch_brokers(common.addresses, _draw, _json if common.json else None))
    brokers = asked(common, lambda admin: admin.brokers.states())
    lines = [] if common.json else [_draw(brokers, _columns())]
    return View(_json(brokers), lines=lines, missing="").show(as_json=common.json)


def _columns() -> int | None:
    """The width of the terminal, ``None``: standard output is none."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def _draw(brokers: Sequence[BrokerState], columns: int | None) -> str:
    from orbitmq.cli.cluster_watch import fitted

    if not brokers:
        return NONE
    # With one cluster its name tells nothing.
    alike = len({state.broker.cluster for state in brokers}) == 1
    spared = [heading for heading in SPARED if alike or heading != "cluster"]
    return fitted(HEADINGS, [_cells(broker) for broker in brokers], columns, spared)


def _json(brokers: Sequence[BrokerState]) -> dict[str, Any]:
    return {"brokers": list(map(_plain, brokers))}


def _plain(state: BrokerState) -> dict[str, Any]:
    found = plain(state)
    broker = found.pop("broker")
    return {"cluster": broker["cluster"], "broker": broker["name"], "broker_id": broker["broker_id"],
            "address": broker["address"], **found}  # fmt: skip


def _cells(state: BrokerState) -> list[object]:
    broker = state.broker
    told = [
        state.log_end,
        state.lag_bytes,
        state.lag,
        _in_sync(state),
        _yes(state.special_services),
        state.epoch,
    ]
    cells = ["-" if cell is None else cell for cell in told]
    role = f"{state.role}, does not answer" if state.problem else state.role
    return [broker.cluster, broker.name, broker.broker_id, broker.address, role, *cells]


def _in_sync(state: BrokerState) -> str | None:
    shown = _yes(state.in_sync)
    return f"{shown}, silent {state.silent:.1f} s" if shown and state.silent else shown


def _yes(flag: bool | None) -> str | None:
    return None if flag is None else ("yes" if flag else "no")
