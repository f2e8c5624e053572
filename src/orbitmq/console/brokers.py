"""Brokers: all of them, and one with its state and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from orbitmq.admin import Admin
from orbitmq.console.history import History
from orbitmq.console.model import Column, Field, Form, Page, Row, Table, said
from orbitmq.console.overview import broker_rows, columns_of, statuses
from orbitmq.console.rights import ADMIN
from orbitmq.wording import masked

PAIRS = (Column("name", "code"), Column("value", "long"))


async def brokers(admin: Admin, history: History, now_ms: int) -> Page:
    rows = broker_rows(await statuses(admin), history, now_ms)
    name, *others = columns_of(rows)
    table = Table("brokers", (name, Column("id", "number"), *others), rows, "no_brokers", long=True)
    return Page("brokers", "", said("count_brokers", n=len(rows)), (table,))


async def broker(admin: Admin, address: str) -> Page:
    """State and settings of one registered broker; no other address is asked."""
    known = [one for one in await admin.brokers.list() if one.address == address]
    if not known:
        return Page("brokers", address, said("no_broker_at", "bad", address=address))
    state, settings = await asyncio.gather(admin.brokers.runtime(address), admin.brokers.settings(address))
    change = Form(
        "/do/broker-setting",
        "save",
        (
            Field("address", "hidden", address),
            Field("key", required=True, hint="hint_setting"),
            Field("value"),
        ),
        post=True,
        title="change_setting",
        note=said("note_setting"),
        needs=ADMIN,
    )
    tables = (
        Table("settings", PAIRS, _pairs(settings), long=True),
        change,
        Table("state", PAIRS, _pairs(state)),
    )
    return Page("brokers", f"{known[0].name} ({address})", None, tables)


def _pairs(table: Mapping[str, str]) -> list[Row]:
    return [{"name": name, "value": masked(name, value)} for name, value in sorted(table.items())]
