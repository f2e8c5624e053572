"""The trace of one message: when it was sent, stored, delivered and consumed, as a timeline and as a table.

Clients with message trace record their sends and deliveries; the stored message has the time of storing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from orbitmq.admin import Admin, TraceStep
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Field, Form, Link, Page, Row, Said, Table, path_of, said
from orbitmq.console.timeline import Timeline, brief_text
from orbitmq.durations import datetime, instant
from orbitmq.errors import OrbitError
from orbitmq.message.model import ReceivedMessage

# How much of the page's deadline may be spent on reading the stored message, for its time of storing.
STORED_S: Final = 0.8
STEPS: Final = (
    Column("kind", "step"),
    Column("group"),
    Column("client", "code"),
    Column("at", "moment"),
    Column("after", "brief"),
    Column("waited", "brief"),
    Column("took", "brief"),
    Column("done", "moment"),
    Column("result"),
    Column("redeliveries", "number"),
    Column("topic"),
)


def trace_form() -> Page:
    form = Form("/traces", "search", (Field("id", required=True, hint="hint_trace"),), title="trace")
    return Page("traces", "", said("choose_trace"), (form,))


async def trace(admin: Admin, message_id: str, topic: str) -> Page:
    """The steps of a message: its sends, then its deliveries by group, each in the order of time.

    Args:
        topic: the message's topic; if it is empty, the topic is taken from the trace of its send.
    """
    answer = await admin.messages.trace(message_id)
    topic = topic or next((one.topic for one in answer.found if one.topic), "")
    stored = await _stored(admin, message_id, topic)
    rows = rows_of(answer.found, stored)
    links = [Link("the_message", path_of("messages", message_id, topic=topic))] if topic else []
    return Page(
        "traces",
        message_id,
        _sentence(rows),
        (Timeline("timeline", rows), Table("steps", STEPS, rows)),
        links,
        [said("trace_clocks")],
        names(answer.left_out),
    )


async def _stored(admin: Admin, message_id: str, topic: str) -> ReceivedMessage | None:
    """The stored message; ``None`` if it was deleted, or its broker does not answer in time."""
    if not topic:
        return None
    try:
        async with asyncio.timeout(STORED_S):
            return await admin.messages.get(message_id, topic=topic)
    except (TimeoutError, OrbitError):
        return None


def rows_of(steps: Sequence[TraceStep], stored: ReceivedMessage | None) -> list[Row]:
    """The steps as rows, with the time since the first step and the wait before a delivery."""
    stored_at = None if stored is None else instant(stored.store_timestamp_ms)
    times = [one.at for one in steps if one.at is not None]
    begin = min(times if stored_at is None else [*times, stored_at], default=None)
    sent = [one for one in steps if one.kind != "delivery"]
    rows = [_row(one, begin, None) for one in sent]
    if stored is not None:
        where = f"{stored.broker_name}:{stored.queue_id}"
        row = _row(TraceStep("send", stored_at, "", where, "", topic=stored.topic), begin, None)
        rows.insert(min(1, len(rows)), {**row, "kind": "stored"})
    ready = stored_at or next((_end(one) for one in sent), None)
    groups: dict[str, list[TraceStep]] = {}
    for one in steps:
        if one.kind == "delivery":
            groups.setdefault(one.group, []).append(one)
    for own in groups.values():
        rows += [_row(one, begin, _before(one, own, ready)) for one in own]
    return rows


def _before(step: TraceStep, own: Sequence[TraceStep], ready: datetime | None) -> datetime | None:
    """The earliest time of a delivery: when the message was stored, or, for a redelivery, when the delivery
    before it ended.
    """
    if not step.redeliveries or step.at is None:
        return ready
    ends = [_end(one) for one in own if one.at is not None and one.at < step.at]
    return max((end for end in ends if end is not None), default=None)


def _end(step: TraceStep) -> datetime | None:
    return None if step.at is None else instant(round((step.at.timestamp() + (step.took or 0)) * 1000))


def _row(step: TraceStep, begin: datetime | None, ready: datetime | None) -> Row:
    return {
        "kind": step.kind,
        "group": step.group,
        "client": step.client,
        "at": step.at,
        "after": _seconds(begin, step.at),
        "waited": _seconds(ready, step.at),
        "took": step.took,
        "done": None if step.took is None else _end(step),
        "result": step.result,
        "redeliveries": step.redeliveries,
        "topic": step.topic or "",
    }


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else round((end - begin).total_seconds(), 3)


def _sentence(rows: Sequence[Row]) -> Said:
    """The sentence about the groups that have consumed the message, and when the last one had."""
    deliveries = [row for row in rows if row["kind"] == "delivery"]
    groups = dict.fromkeys(row["group"] for row in deliveries)
    done = {row["group"]: row for row in reversed(deliveries) if row["result"] == "success"}
    if not groups:
        return said("trace_nobody")
    if open_ones := [name for name in groups if name not in done]:
        return said("trace_open", "warn", names=", ".join(open_ones))
    last = max(((row["after"] or 0) + (row["took"] or 0) for row in done.values()), default=0.0)
    return said("trace_done", "good", all=len(groups), span=brief_text(last))
