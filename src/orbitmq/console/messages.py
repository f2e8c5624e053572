"""The pages of messages: one by its id, those with a key, and those of a topic from a place on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, QueueProgress
from orbitmq.client.consumer.options import ReaderStart
from orbitmq.client.model import ConsumeFrom
from orbitmq.console.asking import names, optional
from orbitmq.console.bodies import shown
from orbitmq.console.model import (
    Block,
    Column,
    Facts,
    Field,
    Form,
    Link,
    Page,
    Row,
    Table,
    path_of,
    said,
)
from orbitmq.console.rights import OPERATOR
from orbitmq.console.search import MOST_SHOWN, MakesReader, Search, message_row, places
from orbitmq.console.times import time_ms
from orbitmq.durations import datetime, instant
from orbitmq.errors import ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.numbers import INT64, whole_number

# The interval in seconds at which the live tail of a topic is read.
TAIL_S: Final = 2
# How many messages at the end of each queue are read to find the newest messages.
NEWEST: Final = MOST_SHOWN
# As NEWEST, for a search with a filter, which most messages may not pass.
FILTERED: Final = 5000
# The most groups whose online members are offered for consuming a message now, and the time for finding them.
MOST_GROUPS: Final = 10
MEMBERS_S: Final = 0.4
FROM: Final = ("newest", "first", "time", "offset")
FORMS: Final = ("text", "json", "hex")
PROPERTIES: Final = (Column("name", "code"), Column("value", "long"))
READERS: Final = (
    Column("group", link="/groups/{group}"),
    Column("state", "state"),
    Column("committed", "number"),
)

COLUMNS: Final = (
    Column("stored", "time"),
    Column("broker"),
    Column("queue", "number"),
    Column("offset", "number", "/messages/{message}?topic={topic}"),
    Column("tag"),
    Column("keys", "snippet"),
    Column("body", "snippet"),
    Column("size", "bytes"),
    Column("message", "code", "/messages/{message}?topic={topic}"),
)


async def messages(
    admin: Admin,
    reader: MakesReader,
    query: Mapping[str, str],
    role_sees_bodies: bool,
    now_ms: int,
    stopped: Callable[[str], None],
) -> Page:
    """The page of the search forms and their results.

    Args:
        stopped: called when the browser stops a search, with the address that continues it, or empty.
    """
    topic = query.get("topic", "").strip()
    forms = _forms(query)
    if not topic:
        return Page("messages", "", said("choose_topic"), forms)
    if key := query.get("key", "").strip():
        begin, end = (_time(query, name, now_ms) for name in ("since", "until"))
        answer = await admin.messages.find(topic, key=key, begin=begin, end=end)
        rows = [message_row(one, bodies=role_sees_bodies) for one in answer.found]
        table = Table("messages", COLUMNS, rows, "no_messages")
        sentence = said("found_key", n=len(rows), key=key)
        return Page("messages", topic, sentence, (*forms, table), left_out=names(answer.left_out))
    newest = _from(query) == "newest"
    start = await _start(admin, topic, query, now_ms)
    tag, sql = query.get("tag", "").strip(), query.get("sql", "").strip()
    search = Search(topic, start, tag, sql, newest=newest, bodies=role_sees_bodies)
    try:
        found = await search.run(reader)
    except asyncio.CancelledError:
        stopped(path_to_go_on(topic, query, cursor) if (cursor := search.stopped()) else "")
        raise
    links = [Link("continue", path_to_go_on(topic, query, found.cursor))] if found.cursor else []
    tail = newest and bool(query.get("tail"))
    if newest:
        links.append(Link("tail_off" if tail else "tail_on", _tail(topic, query, on=not tail)))
    return Page(
        "messages",
        topic,
        said("found_read", n=len(found.rows), read=found.read),
        (*forms, Table("messages", COLUMNS, found.rows, "no_messages")),
        links,
        [found.ended] if found.ended else [],
        found.left_out,
        cursor=found.cursor,
        refresh_s=TAIL_S if tail else 0,
    )


def _from(query: Mapping[str, str]) -> str:
    if query.get("cursor") or query.get("offset"):
        return "offset"
    given = query.get("from", "newest") or "newest"
    return given if given in FROM else "time"


def _forms(query: Mapping[str, str]) -> Sequence[Form]:
    given = query.get
    browse = Form(
        "/messages",
        "search",
        (
            Field("topic", value=given("topic", ""), required=True),
            Field("from", "select", _from(query), FROM),
            Field("time", value=given("time", ""), hint="hint_time"),
            Field("broker", value=given("broker", "")),
            Field("queue", value=given("queue", "")),
            Field("offset", value=given("offset", "")),
            Field("tag", value=given("tag", ""), hint="hint_tag"),
            Field("sql", value=given("sql", ""), hint="hint_sql"),
        ),
        title="browse",
    )
    by_key = Form(
        "/messages",
        "search",
        (
            Field("topic", value=given("topic", ""), required=True),
            Field("key", value=given("key", "")),
            Field("since", value=given("since", ""), hint="hint_time"),
            Field("until", value=given("until", ""), hint="hint_time"),
            Field("id", value=given("id", ""), hint="hint_id"),
        ),
        title="by_key",
        folded=not (given("key") or given("id")) and bool(given("topic")),
    )
    return browse, by_key


def _time(query: Mapping[str, str], name: str, now_ms: int) -> datetime | None:
    """The time in a field of the query; ``None`` for an empty field."""
    text = query.get(name, "").strip()
    return instant(time_ms(name, text, now_ms)) if text else None


async def _start(admin: Admin, topic: str, query: Mapping[str, str], now_ms: int) -> ReaderStart:
    """The offset or time at which reading begins.

    Raises:
        ValidationError: a field, which the text names, is wrong.
    """
    if cursor := query.get("cursor", ""):
        return places(topic, cursor)
    where = _from(query)
    broker, queue = query.get("broker", "").strip(), query.get("queue", "").strip()
    if where == "time":
        if broker or queue:
            raise ValidationError("from a time all queues are read: leave broker and queue empty")
        return instant(time_ms("time", query.get("time", "").strip() or "10m", now_ms))
    if where == "offset" and not (broker and queue):
        raise ValidationError("offset: an offset belongs to one queue: give broker and queue, too")
    if where == "first" and not (broker or queue):
        return ConsumeFrom.FIRST
    states = [
        one
        for one in (await admin.topics.status(topic)).found
        if broker in ("", one.queue.broker_name) and queue in ("", str(one.queue.queue_id))
    ]
    if not states:
        raise ValidationError(f"{topic} has no queue {broker or '*'}:{queue or '*'}")
    if where == "offset":
        offset = whole_number(query.get("offset", "").strip(), INT64)
        if offset is None:
            raise ValidationError("offset: expected a number from 0 on")
        return {states[0].queue: offset}
    if where == "first":
        return {one.queue: one.min_offset for one in states}
    each = FILTERED if query.get("tag") or query.get("sql") else NEWEST
    return {one.queue: max(one.min_offset, one.max_offset - each) for one in states if one.count}


def path_to_go_on(topic: str, query: Mapping[str, str], cursor: str) -> str:
    """The address that continues a search."""
    return path_of("messages", topic=topic, cursor=cursor, tag=query.get("tag", ""), sql=query.get("sql", ""))


def _tail(topic: str, query: Mapping[str, str], *, on: bool) -> str:
    kept = {name: query.get(name, "") for name in ("broker", "queue", "tag", "sql")}
    return path_of("messages", **{"topic": topic, **kept, "tail": "1" if on else ""})


def _state(progress: QueueProgress, offset: int) -> str:
    """The state of the message at this offset of a queue for a group."""
    if progress.committed <= offset:
        return "waiting"
    # Brokers do not report which messages below the committed offset are popped and unacknowledged.
    return "handed_out" if progress.popped else "passed"


async def message(
    admin: Admin, message_id: str, topic: str, form: str, *, bodies: bool, operates: bool
) -> Page:
    """The page of one message.

    Args:
        operates: whether to show the forms for operators, which need the online members of the groups.
    """
    one, progress = await asyncio.gather(
        admin.messages.get(message_id, topic=topic or None),
        optional(admin.groups.progress(topic=topic or None), ()),
    )
    readers = _readers(one, progress.found)
    properties = [{"name": name, "value": value} for name, value in sorted(one.properties.items())]
    body = [{"body": shown(one.body, form if form in FORMS else "text")}] if bodies else []
    blocks: list[Block] = [
        _facts(one),
        Table("body", (Column("body", "body"),), body, "nothing" if bodies else "bodies_hidden"),
        Table("properties", PROPERTIES, properties, "no_properties"),
        Table("groups", READERS, readers, "no_readers"),
        _again(message_id, one),
    ]
    if operates:
        groups = [str(row["group"]) for row in readers][:MOST_GROUPS]
        blocks.append(_consuming(message_id, one, await _members(admin, one, groups)))
    links = [
        *(
            Link(f"form_{each}", path_of("messages", message_id, topic=one.topic, form=each))
            for each in FORMS
            if bodies
        ),
        *([Link("download", path_of("messages", message_id, "download", topic=one.topic))] if bodies else []),
        Link("trace", path_of("traces", message_id, topic=one.topic)),
    ]
    notes = [said("as_command", command=f"orbitmq message get {message_id} --topic {one.topic}")]
    left_out = names(progress.left_out)
    return Page("messages", one.message_id, None, blocks, links, notes, left_out)


def _readers(message: ReceivedMessage, progress: Sequence[QueueProgress]) -> list[Row]:
    """The groups that read the message's queue, and whether they have passed the message."""
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    return [
        {"group": one.group, "state": _state(one, message.queue_offset), "committed": one.committed}
        for one in progress
        if one.queue == queue
    ]


def _facts(message: ReceivedMessage) -> Facts:
    return Facts(
        (
            ("topic", message.topic, "text"),
            ("queue", f"{message.broker_name}:{message.queue_id}", "text"),
            ("offset", message.queue_offset, "number"),
            ("stored", instant(message.store_timestamp_ms), "time"),
            ("born", instant(message.born_timestamp_ms), "time"),
            ("born_host", message.born_host, "text"),
            ("size", len(message.body), "bytes"),
            ("tries", message.reconsume_times, "number"),
        )
    )


def _again(message_id: str, message: ReceivedMessage) -> Form:
    """The form that sends the message again."""
    return Form(
        "/do/message-again",
        "send_again",
        (Field("id", "hidden", message_id), Field("topic", "hidden", message.topic)),
        post=True,
        note=said("note_again"),
        needs=OPERATOR,
    )


async def _members(admin: Admin, message: ReceivedMessage, groups: Sequence[str]) -> Sequence[str]:
    """The members of the groups that are connected to the message's broker, as "GROUP CLIENT", as far as they
    are found in time.
    """
    try:
        async with asyncio.timeout(MEMBERS_S):
            answers = await asyncio.gather(
                *(optional(admin.clients.list(group=group), ()) for group in groups)
            )
    except TimeoutError:
        return ()
    return [
        f"{one.group} {one.client_id}"
        for answer in answers
        for one in answer.found
        if one.role == "consumer" and message.broker_name in one.brokers
    ]


def _consuming(message_id: str, message: ReceivedMessage, members: Sequence[str]) -> Form:
    """The form that lets a member consume the message; without members it has no button."""
    return Form(
        "/do/message-consume",
        "consume_now" if members else "",
        (
            Field("id", "hidden", message_id),
            Field("topic", "hidden", message.topic),
            Field("member", "select", options=members),
        )
        if members
        else (),
        post=True,
        title="consume_now",
        note=said("note_consume") if members else said("no_member_there", broker=message.broker_name),
        needs=OPERATOR,
        folded=True,
    )
