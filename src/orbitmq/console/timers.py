"""The pages of timer messages, which wait for their time of delivery."""

from __future__ import annotations

from orbitmq.admin import Admin
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Field, Form, Page, Row, Table, said
from orbitmq.console.rights import OPERATOR


async def timers(admin: Admin) -> Page:
    answer = await admin.timers.list()
    topics: dict[str, int] = {}
    for one in answer.found:
        for topic, count in one.topics.items():
            topics[topic] = topics.get(topic, 0) + count
    brokers: list[Row] = [
        {
            "broker": one.broker_name,
            "waiting": one.total,
            "state": "ok" if one.oldest_late is None else "late",
            "due": None if one.oldest_late is None else one.oldest_late.due,
        }
        for one in answer.found
    ]
    minutes: dict[str, Row] = {}
    for one in answer.found:
        for at, count in (one.minutes or {}).items():
            key = at.isoformat()
            minutes[key] = {"at": at, "waiting": count + (minutes[key]["waiting"] if key in minutes else 0)}
    blocks = (
        Table(
            "topics",
            (Column("topic", link="/topics/{topic}"), Column("waiting", "number")),
            [{"topic": name, "waiting": count} for name, count in sorted(topics.items())],
            "no_timers",
        ),
        Table(
            "brokers",
            (Column("broker"), Column("waiting", "number"), Column("state", "state"), Column("due", "time")),
            brokers,
        ),
        Table(
            "minutes",
            (Column("at", "time"), Column("waiting", "number")),
            [minutes[key] for key in sorted(minutes)[:60]],
            "no_minutes",
        ),
        Form("/timers", "search", (Field("id", required=True, hint="hint_timer"),), title="one_timer"),
    )
    waiting = sum(one.total for one in answer.found)
    late = any(one.oldest_late for one in answer.found)
    sentence = said("count_timers", "bad" if late else "", n=waiting)
    return Page("timers", "", sentence, blocks, left_out=names(answer.left_out))


async def timer(admin: Admin, message_id: str) -> Page:
    """The page of one message that was sent with a delay."""
    one = await admin.timers.show(message_id)
    rows = [{"topic": one.topic, "message": one.message_id, "state": one.state, "due": one.deliver_at}]
    columns = (
        Column("topic", link="/topics/{topic}"),
        Column("message", "code"),
        Column("state", "state"),
        Column("due", "time"),
    )
    cancel = Form(
        "/do/timer-cancel",
        "cancel_timer",
        (Field("id", "hidden", message_id),),
        post=True,
        danger=True,
        needs=OPERATOR,
    )
    table = Table("timer", columns, rows)
    return Page("timers", message_id, None, (table, cancel) if one.state == "waiting" else (table,))
