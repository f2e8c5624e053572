"""Messages: one by its id, those with a key, and those of a topic from a place on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.admin import Admin, QueueProgress
from orbitmq.client.consumer.options import ReaderStart
from orbitmq.client.consumer.reader import Reader
from orbitmq.client.model import ConsumeFrom
from orbitmq.console.asking import names, optional
from orbitmq.console.bodies import first_line, shown
from orbitmq.console.model import (
    Block,
    Column,
    Facts,
    Field,
    Form,
    Link,
    Page,
    Row,
    Said,
    Table,
    path_of,
    said,
)
from orbitmq.console.rights import OPERATOR
from orbitmq.console.times import time_ms
from orbitmq.durations import datetime, instant
from orbitmq.errors import NotAllReadError, ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.numbers import INT32, INT64, whole_number

# A search ends after this many messages or seconds, and says so.
MOST_READ: Final = 100_000
LONGEST_S: Final = 10.0
MOST_SHOWN: Final = 50
# How often new messages at a topic's end are looked for.
TAIL_S: Final = 2
# How many messages at each queue's end are read for "the newest".
NEWEST: Final = MOST_SHOWN
# The same with a filter, which most of them may not pass.
FILTERED: Final = 5000
MOST_QUEUES: Final = 4096
# Groups whose online members are offered to consume a message now, and the time for finding them.
MOST_GROUPS: Final = 10
MEMBERS_S: Final = 0.4
FROM: Final = ("newest", "first", "time", "offset")

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


class MakesReader(Protocol):
    """Makes a reader of a topic, for the cluster of the pages."""

    def __call__(self, topic: str, *, start: ReaderStart, tags: str, sql: str | None) -> Reader: ...


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that a search found, at most ``MOST_SHOWN``.

    Attributes:
        rows: of the messages; their bodies are not kept.
        read: messages that the brokers gave.
        next: where to go on, by queue; empty: all is read.
        ended: why the search ended early; ``None``: it did not.
        left_out: brokers that were not read, with the reason.
    """

    rows: Sequence[Row]
    read: int
    next: Mapping[MessageQueue, int]
    ended: Said | None
    left_out: Sequence[str]


async def messages(
    admin: Admin, reader: MakesReader, query: Mapping[str, str], role_sees_bodies: bool, now_ms: int
) -> Page:
    """The forms, and what they find."""
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
    found = await search(reader, topic, start, query, newest=newest, bodies=role_sees_bodies)
    links = [Link("continue", _path(topic, query, found.next))] if found.next else []
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
        refresh_s=TAIL_S if tail else 0,
    )


def _from(query: Mapping[str, str]) -> str:
    if query.get("at"):
        return "offset"
    if query.get("offset"):
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
    """The time in a field of the query; ``None``: it is empty."""
    text = query.get(name, "").strip()
    return instant(time_ms(name, text, now_ms)) if text else None


async def _start(admin: Admin, topic: str, query: Mapping[str, str], now_ms: int) -> ReaderStart:
    """The offset or time at which reading begins.

    Raises:
        ValidationError: a field is wrong; it is named.
    """
    if at := query.get("at", ""):
        return places(topic, at)
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


async def search(
    reader: MakesReader,
    topic: str,
    start: ReaderStart,
    query: Mapping[str, str],
    *,
    newest: bool,
    bodies: bool,
) -> Found:
    """Read from a place on until there are enough messages, or the limits of a search are reached.

    Args:
        newest: the last messages are wanted, and all from the start on are read; else the first ones.

    Raises:
        ValidationError: tag and SQL92 are both given.
        OrbitError: no queue could be read.
    """
    tag, sql = query.get("tag", "").strip(), query.get("sql", "").strip()
    if tag and sql:
        raise ValidationError("give a tag or an SQL92 expression, not both")
    if isinstance(start, Mapping) and not start:
        return Found((), 0, {}, None, ())
    found: list[Row] = []
    after: dict[MessageQueue, int] = {}
    read, ended, left_out = 0, None, list[str]()
    try:
        async with (
            asyncio.timeout(LONGEST_S),
            reader(topic, start=start, tags=tag or "*", sql=sql or None) as one,
        ):
            after = await one.offsets(start)
            most = MOST_READ if newest else MOST_SHOWN * max(1, len(after))
            async with aclosing(one.batches()) as batches:
                async for batch in batches:
                    read += len(batch)
                    found += [message_row(message, bodies=bodies) for message in batch]
                    after[_queue(topic, batch[-1])] = batch[-1].queue_offset + 1
                    if len(found) >= most:
                        ended = said("ended_enough", n=MOST_SHOWN)
                        break
    except TimeoutError:
        ended = said("ended_time", s=int(LONGEST_S), read=read)
    except NotAllReadError as error:
        left_out = [f"{name}: {why}" for name, why in error.left_out.items()]
    found.sort(key=lambda row: row["stored"], reverse=newest)
    if newest:
        return Found(found[:MOST_SHOWN], read, {}, ended, left_out)
    for row in reversed(found[MOST_SHOWN:]):
        queue = MessageQueue(topic, row["broker"], row["queue"])
        after[queue] = min(after[queue], row["offset"])
        ended = ended or said("ended_enough", n=MOST_SHOWN)
    # A search without a find has no offset to go on from: it would begin at the same one again.
    return Found(found[:MOST_SHOWN], read, after if ended and found else {}, ended, left_out)


def _queue(topic: str, message: ReceivedMessage) -> MessageQueue:
    return MessageQueue(topic, message.broker_name, message.queue_id)


def places(topic: str, text: str) -> Mapping[MessageQueue, int]:
    """Offsets by queue, from ``broker-a:0:17,broker-a:1:4``.

    Raises:
        ValidationError: a part is something else.
    """
    found: dict[MessageQueue, int] = {}
    for part in text.split(",")[:MOST_QUEUES]:
        rest, _, offset_text = part.rpartition(":")
        broker, _, queue_text = rest.rpartition(":")
        offset, queue = whole_number(offset_text, INT64), whole_number(queue_text, INT32)
        if not broker or offset is None or queue is None:
            raise ValidationError(f"at: {part[:80]}: expected BROKER:QUEUE:OFFSET")
        found[MessageQueue(topic, broker, queue)] = offset
    return found


def _path(topic: str, query: Mapping[str, str], after: Mapping[MessageQueue, int]) -> str:
    at = ",".join(f"{queue.broker_name}:{queue.queue_id}:{offset}" for queue, offset in after.items())
    return path_of("messages", topic=topic, at=at, tag=query.get("tag", ""), sql=query.get("sql", ""))


def _tail(topic: str, query: Mapping[str, str], *, on: bool) -> str:
    kept = {name: query.get(name, "") for name in ("broker", "queue", "tag", "sql")}
    return path_of("messages", **{"topic": topic, **kept, "tail": "1" if on else ""})


def message_row(message: ReceivedMessage, *, bodies: bool) -> Row:
    """A message as a line of a list."""
    return {
        "stored": instant(message.store_timestamp_ms),
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tag": message.tags or "",
        "keys": " ".join(message.keys),
        "size": len(message.body),
        "body": first_line(message.body) if bodies else "",
        "message": message.message_id,
    }


def _state(progress: QueueProgress, offset: int) -> str:
    """Where a group is with the message at this offset of a queue."""
    if progress.committed <= offset:
        return "waiting"
    # Which of the messages below the committed offset are the popped ones is not told.
    return "handed_out" if progress.popped else "passed"


async def message(
    admin: Admin, message_id: str, topic: str, form: str, *, bodies: bool, operates: bool
) -> Page:
    """The page of one message.

    Args:
        operates: whether the forms for operators are shown; they need the online members of the groups.
    """
    one, progress = await asyncio.gather(
        admin.messages.get(message_id, topic=topic or None),
        optional(admin.groups.progress(topic=topic or None), ()),
    )
    queue = MessageQueue(one.topic, one.broker_name, one.queue_id)
    readers: list[Row] = [
        {
            "group": each.group,
            "state": _state(each, one.queue_offset),
            "committed": each.committed,
        }
        for each in progress.found
        if each.queue == queue
    ]
    facts = Facts(
        (
            ("topic", one.topic, "text"),
            ("queue", f"{one.broker_name}:{one.queue_id}", "text"),
            ("offset", one.queue_offset, "number"),
            ("stored", instant(one.store_timestamp_ms), "time"),
            ("born", instant(one.born_timestamp_ms), "time"),
            ("born_host", one.born_host, "text"),
            ("size", len(one.body), "bytes"),
            ("tries", one.reconsume_times, "number"),
        )
    )
    form = form if form in ("text", "json", "hex") else "text"
    properties = [{"name": name, "value": value} for name, value in sorted(one.properties.items())]
    blocks: list[Block] = [facts]
    links: list[Link] = []
    if bodies:
        links = [
            *(
                Link(f"form_{each}", path_of("messages", message_id, topic=one.topic, form=each))
                for each in ("text", "json", "hex")
            ),
            Link("download", path_of("messages", message_id, "download", topic=one.topic)),
        ]
        blocks.append(Table("body", (Column("body", "body"),), [{"body": shown(one.body, form)}]))
    else:
        blocks.append(Table("body", (Column("body", "body"),), (), "bodies_hidden"))
    blocks.append(
        Table("properties", (Column("name", "code"), Column("value", "long")), properties, "no_properties")
    )
    columns = (
        Column("group", link="/groups/{group}"),
        Column("state", "state"),
        Column("committed", "number"),
    )
    blocks.append(Table("groups", columns, readers, "no_readers"))
    links.append(Link("trace", path_of("traces", message_id, topic=one.topic)))
    again = Form(
        "/do/message-again",
        "send_again",
        (Field("id", "hidden", message_id), Field("topic", "hidden", one.topic)),
        post=True,
        note=said("note_again"),
        needs=OPERATOR,
    )
    blocks.append(again)
    if operates:
        groups = [str(row["group"]) for row in readers][:MOST_GROUPS]
        blocks.append(_consuming(message_id, one, await _members(admin, one, groups)))
    notes = [said("as_command", command=f"orbitmq message get {message_id} --topic {one.topic}")]
    left_out = names(progress.left_out)
    return Page("messages", one.message_id, None, blocks, links, notes, left_out)


async def _members(admin: Admin, message: ReceivedMessage, groups: Sequence[str]) -> Sequence[str]:
    """The members of the groups that the message's broker reaches, as "GROUP CLIENT", as far as they are
    known in time.
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
    """The form that lets a member consume the message, if there is one."""
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
