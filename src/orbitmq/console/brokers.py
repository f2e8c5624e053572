"""The page of all brokers, and that of one broker with its replicas, connections, settings and state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, BrokerSetting, BrokerState
from orbitmq.console.asking import Sight, names, optional
from orbitmq.console.clients import CLIENTS_S, COLUMNS, rows_of
from orbitmq.console.history import History
from orbitmq.console.model import Column, Facts, Field, Form, Link, Page, Row, Table, path_of, said
from orbitmq.console.overview import broker_row, broker_rows, columns_of, no_status
from orbitmq.console.rights import ADMIN
from orbitmq.console.risks import RISKY_SETTINGS, setting_risk, typing_field
from orbitmq.durations import instant
from orbitmq.message.numbers import whole_number
from orbitmq.wording import masked

# The most connections on a broker's page; the page of all clients has all of them, and can be searched.
MOST_CONNECTIONS: Final = 100
PAIRS: Final = (Column("name", "code"), Column("value", "long"))
REPLICAS: Final = (
    Column("address", "code", "/brokers/{address}"),
    Column("id", "number"),
    Column("role"),
    Column("sync", "state"),
    Column("behind", "bytes"),
    Column("behind_for", "seconds"),
    Column("log_end", "number"),
    Column("epoch", "number"),
    Column("problem", "long"),
)


async def brokers(sight: Sight, history: History, now_ms: int) -> Page:
    rows = broker_rows(await sight.statuses(), history, now_ms)
    name, *others = columns_of(rows)
    table = Table("brokers", (name, Column("id", "number"), *others), rows, "no_brokers", long=True)
    return Page("brokers", "", said("count_brokers", n=len(rows)), (table,))


async def broker(admin: Admin, address: str, key: str, history: History, now_ms: int) -> Page:
    """The page of one registered broker. The console never connects to an address that is not registered.

    Args:
        key: the setting that the form changes; empty before one is chosen.
    """
    known = [one for one in await admin.brokers.list() if one.address == address]
    if not known:
        return Page("brokers", address, said("no_broker_at", "bad", address=address))
    state, settings, replicas, clients = await asyncio.gather(
        admin.brokers.runtime(address),
        admin.brokers.setting_details(address),
        admin.brokers.replicas(known[0].name),
        optional(admin.clients.list(address=address, within=CLIENTS_S), ()),
    )
    own = next(one for one in replicas if one.broker.address == address)
    row = broker_row(own, state, history.disks.note(now_ms, address, state))
    connections = None if clients.left_out else len(clients.found)
    copies = list(map(_replica, replicas))
    connected = Table(
        "connections",
        [column for column in COLUMNS if column.key != "brokers"],
        rows_of(clients.found[:MOST_CONNECTIONS]),
        "no_clients",
    )
    blocks = (
        _facts(own, row, whole_number(state.get("bootTimestamp", "")), connections),
        Table("replicas", _filled(REPLICAS, copies), copies),
        connected,
        _setting(address, key, settings),
        _settings(address, settings),
        Table("state", PAIRS, [{"name": name, "value": value} for name, value in sorted(state.items())]),
    )
    left_out = names(clients.left_out)
    more = len(clients.found) > MOST_CONNECTIONS
    notes = [said("connections_more", n=MOST_CONNECTIONS)] if more else []
    if any(one.live is None for one in settings.values()):
        notes.append(said("live_unknown"))
    links = (Link("drain", path_of("brokers", address, "drain"), ADMIN),)
    return Page("brokers", f"{known[0].name} ({address})", None, blocks, links, notes, left_out)


def _facts(own: BrokerState, row: Row, started_ms: int | None, connections: int | None) -> Facts:
    """The facts about a broker and its present state.

    Args:
        row: the broker's row in the table of all brokers.
        connections: the number of its connections; ``None`` if unknown.
    """
    return Facts(
        (
            ("role", own.role, "text"),
            ("version", row["version"], "text"),
            ("started", None if started_ms is None else instant(started_ms), "time"),
            ("in_rate", row["in_rate"], "number"),
            ("out_rate", row["out_rate"], "number"),
            ("disk_used", row["disk_used"], "share"),
            ("full_in", row["full_in"], "seconds"),
            ("connections", connections, "number"),
        )
    )


def _replica(one: BrokerState) -> Row:
    sync = {True: "in_sync", False: "not_in_sync", None: ""}[one.in_sync]
    return {
        "address": one.broker.address,
        "id": one.broker.broker_id,
        "role": one.role,
        "sync": no_status(one) or sync,
        "behind": one.lag_bytes,
        "behind_for": one.lag,
        "log_end": one.log_end,
        "epoch": one.epoch,
        "problem": one.problem,
    }


def _filled(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """The columns with a value in at least one row: RocketMQ's brokers report fewer values than OrbitMQ's."""
    return [column for column in columns if any(row[column.key] not in (None, "") for row in rows)]


def _settings(address: str, settings: Mapping[str, BrokerSetting]) -> Table:
    """The table of all settings; those that can be changed while the broker runs have a link to the form."""
    effects = {True: "at_once", False: "after_restart", None: None}
    rows: list[Row] = [
        {
            "name": name,
            "value": masked(name, one.value),
            "takes_effect": effects[one.live],
            "editable": one.live is not False,
        }
        for name, one in sorted(settings.items())
    ]
    form = path_of("brokers", address) + "?key={name}#change_setting"
    columns = (
        Column("name", "code", form, linked="editable"),
        Column("value", "long"),
        Column("takes_effect", "state"),
    )
    return Table("settings", _filled(columns, rows), rows, long=True)


def _setting(address: str, key: str, settings: Mapping[str, BrokerSetting]) -> Form:
    """The form that changes one setting, or in which one is chosen."""
    one = settings.get(key)
    live = tuple(name for name, each in sorted(settings.items()) if each.live is not False)
    if one is None:
        return Form(
            path_of("brokers", address),
            "choose",
            (Field("key", "select", options=live, hint="hint_setting"),),
            title="change_setting",
            note=said("no_such_setting", "bad", key=key) if key else None,
            needs=ADMIN,
        )
    if one.live is False:
        note = said("setting_restart", key=key, value=masked(key, one.value))
        return Form("", "", title="change_setting", note=note, needs=ADMIN)
    risky = one.live is None or key in RISKY_SETTINGS
    risk = setting_risk(address, key)
    return Form(
        "/do/broker-setting",
        "save",
        (
            Field("address", "hidden", address),
            Field("key", "hidden", key),
            Field("value", value=masked(key, one.value)),
            *((typing_field(risk.wanted),) if risky else ()),
        ),
        post=True,
        title="change_setting",
        note=risk.why if risky else said("setting_live", key=key),
        needs=ADMIN,
        danger=risky,
    )
