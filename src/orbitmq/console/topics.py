"""The pages of topics: all topics, one topic with its queues, the forms to create, change and delete one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, QueueProgress, QueueStatus, TopicSettings
from orbitmq.console.asking import Sight, names, optional
from orbitmq.console.charts import topic_rates
from orbitmq.console.history import History
from orbitmq.console.model import Column, Facts, Field, Form, Link, Page, Row, Table, path_of, said
from orbitmq.console.rights import ADMIN, OPERATOR
from orbitmq.console.risks import typing_field
from orbitmq.durations import datetime

TYPES: Final = ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
PERMISSIONS: Final = {6: "read+write", 4: "read", 2: "write", 0: "none"}
_TYPE: Final = "message.type"
QUEUES: Final = (
    Column("broker"),
    Column("queue", "number", "/messages?topic={topic}&broker={broker}&queue={queue}"),
    Column("first", "number"),
    Column("end", "number"),
    Column("messages", "number"),
    Column("oldest_message", "time"),
    Column("newest", "time"),
    Column("kept", "seconds"),
)
READERS: Final = (Column("group", link="/groups/{group}"), Column("lag", "number"))


async def topics(sight: Sight, history: History, now_ms: int) -> Page:
    answer, lags = await asyncio.gather(sight.admin.topics.settings(), sight.topic_lags())
    rates = topic_rates(lags, history, now_ms)
    readers: dict[str, set[str]] = {}
    for one in lags.found:
        readers.setdefault(one.topic, set()).add(one.group)
    rows: list[Row] = [
        {
            "topic": name,
            "type": next((one.attributes.get(_TYPE, "") for one in own.values()), "") or "NORMAL",
            "queues": sum(one.queues for one in own.values()),
            "permission": "; ".join(dict.fromkeys(PERMISSIONS.get(one.perm, "none") for one in own.values())),
            "ordered": "yes" if any(one.order for one in own.values()) else "",
            "groups": len(readers.get(name, ())),
            "in_rate": rates.get(name),
            "brokers": ", ".join(own),
        }
        for name, own in answer.found.items()
    ]
    columns = (
        Column("topic", link="/topics/{topic}"),
        Column("type"),
        Column("queues", "number"),
        Column("permission"),
        Column("ordered"),
        Column("groups", "number"),
        *((Column("in_rate", "number"),) if rates else ()),
        Column("brokers", "long"),
    )
    choosing = Form("/topics/~delete", "delete_chosen", needs=ADMIN, danger=True)
    table = Table("topics", columns, rows, "no_topics", long=True, choose="topic", choosing=choosing)
    links = (Link("new_topic", "/topics/~new", OPERATOR),)
    left_out = names([*answer.left_out, *lags.left_out])
    return Page("topics", "", said("count_topics", n=len(rows)), (table,), links, left_out=left_out)


async def topic(admin: Admin, name: str, history: History, now_ms: int) -> Page:
    answer, settings, oldest, progress = await asyncio.gather(
        admin.topics.status(name),
        admin.topics.settings(),
        optional(admin.topics.oldest(name), {}),
        optional(admin.groups.progress(topic=name), ()),
    )
    rows = [_queue(one, oldest.found.get(one.queue)) for one in answer.found]
    in_rate = None
    if not answer.left_out:  # the messages of a broker that was left out would count all at once afterwards
        in_rate = history.note_topic(now_ms, name, sum(one.max_offset for one in answer.found))
    blocks = (
        _facts(answer.found, rows, _first(settings.found.get(name, {})), in_rate),
        Table("queues", QUEUES, rows, "no_queues"),
        Table("groups", READERS, _readers(progress.found), "no_readers"),
    )
    links = (
        Link("see_messages", path_of("messages", topic=name)),
        Link("send_message", path_of("topics", name, "send"), OPERATOR),
        Link("edit", path_of("topics", name, "edit"), OPERATOR),
        Link("delete", path_of("topics", "~delete", chosen=name), ADMIN),
    )
    missing = (answer.left_out, settings.left_out, oldest.left_out, progress.left_out)
    left_out = names([one for some in missing for one in some])
    return Page("topics", name, None, blocks, links, left_out=left_out)


def _queue(one: QueueStatus, oldest: datetime | None) -> Row:
    return {
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "first": one.min_offset,
        "end": one.max_offset,
        "messages": one.count,
        "oldest_message": oldest if one.count else None,
        "newest": one.newest,
        "kept": _span(oldest, one.newest) if one.count else None,
        "topic": one.queue.topic,
    }


def _readers(progress: Sequence[QueueProgress]) -> list[Row]:
    """The groups that read the topic, the largest lag first."""
    lags: dict[str, int] = {}
    for one in progress:
        lags[one.group] = lags.get(one.group, 0) + one.lag
    return [{"group": group, "lag": lag} for group, lag in sorted(lags.items(), key=lambda item: -item[1])]


def _facts(
    queues: Sequence[QueueStatus], rows: Sequence[Row], settings: TopicSettings, in_rate: float | None
) -> Facts:
    newest = max((one.newest for one in queues if one.newest is not None), default=None)
    return Facts(
        (
            ("messages", sum(one.count for one in queues), "number"),
            ("queues", len(queues), "number"),
            ("type", settings.attributes.get(_TYPE, "NORMAL"), "text"),
            ("permission", PERMISSIONS.get(settings.perm, "none"), "text"),
            ("in_rate", in_rate, "number"),
            ("newest", newest, "time"),
            ("kept", max((row["kept"] for row in rows if row["kept"] is not None), default=None), "seconds"),
        )
    )


def _span(oldest: datetime | None, newest: datetime | None) -> float | None:
    """The time between the oldest and the newest message of a queue, in seconds."""
    return None if oldest is None or newest is None else max(0.0, (newest - oldest).total_seconds())


def _first(own: Mapping[str, TopicSettings]) -> TopicSettings:
    return max(own.values(), key=lambda one: one.queues, default=TopicSettings())


def new_topic() -> Page:
    return Page("topics", "", None, (_form("", TopicSettings(), "create", "new_topic"),))


async def edit_topic(admin: Admin, name: str) -> Page:
    answer = await admin.topics.settings()
    own = answer.found.get(name)
    if own is None:
        return Page("topics", name, said("no_topic", "bad", name=name), left_out=names(answer.left_out))
    form = _form(name, _first(own), "save", "edit_topic")
    return Page("topics", name, None, (form,), left_out=names(answer.left_out))


def _form(name: str, settings: TopicSettings, button: str, title: str) -> Form:
    perm = PERMISSIONS.get(settings.perm, "read+write")
    return Form(
        "/do/topic-save",
        button,
        (
            Field(
                "topic", "hidden" if name else "text", name, required=True, hint="" if name else "hint_topic"
            ),
            Field("queues", "number", str(settings.queues), required=True, hint="hint_queues"),
            Field("permission", "select", perm, ("read+write", "read", "write")),
            Field("type", "select", settings.attributes.get(_TYPE, ""), TYPES, hint="hint_type"),
            Field("ordered", "check", "yes" if settings.order else "", hint="hint_ordered"),
        ),
        post=True,
        title=title,
        needs=OPERATOR,
    )


async def deleting(admin: Admin, chosen: tuple[str, ...]) -> Page:
    """The page of a deletion, with the messages that would be lost, and a form for the topic's name."""
    answers = await asyncio.gather(*(admin.topics.status(name) for name in chosen))
    rows = [
        {"topic": name, "queues": len(one.found), "messages": sum(queue.count for queue in one.found)}
        for name, one in zip(chosen, answers, strict=True)
    ]
    columns = (
        Column("topic", link="/topics/{topic}"),
        Column("queues", "number"),
        Column("messages", "number"),
    )
    wanted = chosen[0] if len(chosen) == 1 else f"{len(chosen)} topics"
    form = Form(
        "/do/topic-delete",
        "delete",
        (Field("topics", "hidden", "\n".join(chosen)), typing_field(wanted)),
        post=True,
        danger=True,
        needs=ADMIN,
    )
    left_out = names([one for answer in answers for one in answer.left_out])
    table = Table("topics", columns, rows)
    return Page(
        "topics", "", said("sure_topics", "warn"), (table, form) if rows else (table,), left_out=left_out
    )


def sending(name: str) -> Page:
    form = Form(
        "/do/message-send",
        "send_message",
        (
            Field("topic", "hidden", name),
            Field("body", "area"),
            Field("tag"),
            Field("keys", hint="hint_keys"),
        ),
        post=True,
        title="send_message",
        needs=OPERATOR,
    )
    return Page("topics", name, None, (form,))
