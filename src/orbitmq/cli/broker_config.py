"""``orbitmq broker config``: settings of running brokers, shown, changed and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import DryRun, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.values import pairs
from orbitmq.cli.view import Columns, Row, Table, View, listed, same
from orbitmq.wording import counted, masked

if TYPE_CHECKING:
    from orbitmq.admin import Admin, BrokerInfo

app = make_app(
    "broker config",
    "Show, change and compare settings of running brokers. Secrets are shown as ***.",
    """
orbitmq broker config get broker-a
orbitmq broker config get broker-a autoCreateTopicEnable --json
orbitmq broker config set broker-a autoCreateTopicEnable=false
orbitmq broker config diff broker-a broker-b
""",
)

BrokerName = Annotated[str, Parameter(help="Name of the broker, or its address.")]
# Settings of a broker's identity and of its folders. An Apache broker accepts a new value while it runs, and
# then registers an address without a listener.
FIXED = frozenset(
    {
        *("brokerName", "brokerClusterName", "brokerId", "brokerIP1", "brokerIP2", "brokerRole"),
        *("listenPort", "fastListenPort", "haListenPort", "bindAddress"),
        *("storePathRootDir", "storePathCommitLog"),
    }
)
CHANGES: Columns = {**same("broker"), "id": "broker_id", **same("key", "before", "after")}


def brokers_named(
    brokers: Sequence[BrokerInfo], name: str, *, by_address: bool = True
) -> Sequence[BrokerInfo]:
    """The brokers with a name, the master first, or the broker at an address.

    Raises:
        UsageError: no broker has this name or address.
    """
    found = [one for one in brokers if name == one.name or (by_address and name == one.address)]
    if not found:
        there = ", ".join(sorted({one.name for one in brokers})) or "none"
        raise UsageError(f"no broker {name} is registered; there are: {there}")
    if len({one.cluster for one in found}) > 1:
        raise UsageError(f"brokers of several clusters have the name {name}: give an address")
    return sorted(found, key=lambda one: one.broker_id)


@app.command
@command
async def get(admin: Admin, broker: BrokerName, key: str | None = None, /) -> View:
    """Show the settings of a running broker.

    Of several brokers with this name the master is shown; without a master, the slave with the lowest id.

    Args:
        key: Only this setting, by RocketMQ's name. Default: all settings.
    """
    one = brokers_named(await admin.brokers.list(), broker)[0]
    settings = await admin.brokers.settings(one.address)
    if key is not None and key not in settings:
        raise UsageError(_unknown(one, key, settings))
    shown = {name: masked(name, settings[name]) for name in sorted(settings) if key in (None, name)}
    lines = listed(shown) if key is None else list(shown.values())
    return View(
        {"broker": one.name, "broker_id": one.broker_id, "address": one.address, "settings": shown},
        lines=lines,
    )


@app.command(name="set")
@command
async def set_(
    admin: Admin,
    broker: BrokerName,
    settings: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Change settings of a running broker; of a master and its slaves at each of them. Asks first.

    Args:
        settings: Settings as KEY=VALUE, by RocketMQ's names. A broker refuses those that need a restart.
    """
    wanted = pairs("set", settings, "KEY=VALUE")
    if fixed := sorted(FIXED & wanted.keys()):
        raise UsageError(
            f"{fixed[0]} cannot change while the broker runs: set it in its file, and restart it"
        )
    rows: list[dict[str, object]] = []
    brokers = brokers_named(await admin.brokers.list(), broker)
    for one in brokers:
        there = await admin.brokers.settings(one.address)
        for key, value in wanted.items():
            if key not in there:
                raise UsageError(_unknown(one, key, there))
            if there[key] != value:
                rows.append(_row(one, key, there[key], value))
    facts = {"broker": broker, "dry_run": dry_run, "changes": rows}
    table = Table("", rows, CHANGES, optional=True)
    if dry_run or not rows:
        return View(facts, [table], lines=[] if rows else ["nothing is to be changed"])
    changing = {str(row["address"]) for row in rows}
    plan = View({}, [table])
    await confirm("Change", f"{counted(len(rows), 'setting')} of {broker}", yes=yes, plan=plan)
    answer = await admin.brokers.change_all([one for one in brokers if one.address in changing], wanted)
    gone = {one.address for one in answer.left_out}
    made = [row for row in rows if row["address"] not in gone]
    line = [f"changed {counted(len(made), 'setting')}"] if made else []
    return View({**facts, "changes": made}, [table] if yes else [], lines=line, left_out=answer.left_out)


@app.command
@command
async def diff(admin: Admin, brokers: Annotated[list[str] | None, Parameter(negative=())] = None, /) -> View:
    """Show the settings that differ between running brokers.

    Args:
        brokers: Names of the brokers, or addresses. Default: all brokers.
    """
    every = await admin.brokers.list()
    named = [one for name in brokers or () for one in brokers_named(every, name)]
    compared = list(dict.fromkeys(named)) if brokers else list(every)
    if len(compared) < 2:
        raise UsageError(f"two brokers are needed to compare settings, got {len(compared)}")
    answer = await admin.brokers.settings_of(compared)
    tables = {f"{one.name}:{one.broker_id}": settings for one, settings in answer.found.items()}
    keys = sorted({key for table in tables.values() for key in table})
    rows = [
        {
            "key": key,
            "values": {
                name: masked(key, table[key]) if key in table else None for name, table in tables.items()
            },
        }
        for key in keys
        if len({table.get(key) for table in tables.values()}) > 1
    ]
    columns: Columns = {"key": "key", **{name: _value_at(name) for name in tables}}
    return View(
        {},
        [Table("settings", rows, columns, optional=True)],
        lines=[] if rows else ["all settings are equal"],
        left_out=answer.left_out,
        missing="its settings are",
    )


def _value_at(broker: str) -> Callable[[Row], object]:
    return lambda row: row["values"][broker]


def _row(broker: BrokerInfo, key: str, before: str, after: str) -> dict[str, object]:
    return {
        "broker": broker.name,
        "broker_id": broker.broker_id,
        "address": broker.address,
        "key": key,
        "before": masked(key, before),
        "after": masked(key, after),
    }


def _unknown(broker: BrokerInfo, key: str, settings: dict[str, str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, settings, 1)
    hint = f": did you mean {near[0]}?" if near else ""
    return f"{broker.name} at {broker.address} has no setting {key}{hint}"
