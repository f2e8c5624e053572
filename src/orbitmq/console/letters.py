"""The pages of dead letters: the groups that have some, those of one group, and sending them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from orbitmq.admin import Admin, Partial, RedriveJob
from orbitmq.console.asking import names
from orbitmq.console.choice import ranges
from orbitmq.console.model import Block, Column, Facts, Field, Form, Link, Page, Row, Table, path_of, said
from orbitmq.console.rights import OPERATOR
from orbitmq.console.search import MakesReader
from orbitmq.errors import BrokerError, OrbitError, ValidationError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.property_names import (
    DLQ_CLIENT,
    DLQ_ORIGIN_TOPIC,
    DLQ_REASON,
    DLQ_REDRIVES,
    RETRY_TOPIC,
)
from orbitmq.message.reserved import dead_letter_topic
from orbitmq.wire.refusals import is_not_offered

# The most dead letters on a page; the newest ones are shown.
MOST_SHOWN: Final = 50
READ_S: Final = 1.5
LETTERS: Final = (
    Column("place", "code", "/messages/{message}?topic={topic}"),
    Column("age", "seconds"),
    Column("origin", link="/topics/{origin}"),
    Column("tries", "number"),
    Column("redrives", "number"),
    Column("reason", "long"),
    Column("client", "code"),
)
JOBS = (
    Column("broker"),
    Column("state", "state"),
    Column("started", "time"),
    Column("sent", "number"),
    Column("remaining", "number"),
    Column("too_often", "number"),
    Column("without_topic", "number"),
    Column("problem", "long"),
)


async def all_letters(admin: Admin) -> Page:
    answer = await admin.dead_letters.list()
    rows = [
        {
            "group": one.group,
            "count": one.count,
            "newest": one.newest,
            "brokers": ", ".join(f"{name}: {count:,}" for name, count in one.brokers.items()),
        }
        for one in answer.found
    ]
    columns = (
        Column("group", link="/dead-letters/{group}"),
        Column("count", "number"),
        Column("newest", "time"),
        Column("brokers", "long"),
    )
    table = Table("groups", columns, rows, "no_letters", long=True)
    total = sum(one.count for one in answer.found)
    sentence = said("count_letters", "warn" if rows else "good", n=total)
    return Page("dead-letters", "", sentence, (table,), left_out=names(answer.left_out))


async def letters(admin: Admin, name: str, reader: MakesReader, now_ms: int) -> Page:
    topic = dead_letter_topic(name)
    answer, jobs, newest = await asyncio.gather(
        admin.dead_letters.show(name), _redrives(admin, name), _newest(admin, topic, reader)
    )
    one = answer.found
    facts = Facts((("dead_letters", one.count, "number"), ("newest", one.newest, "time")))
    rows = [{"broker": broker, "count": count} for broker, count in one.brokers.items()]
    choosing = Form(path_of("dead-letters", name, "again"), "redrive_chosen", needs=OPERATOR)
    table = Table(
        "letters",
        LETTERS,
        [_letter(letter, now_ms) for letter in newest],
        "no_letters",
        choose="place",
        choosing=choosing,
    )
    running = any(job.ended is None for job in jobs.found)
    form = _redrive(name, Field("chosen", hint="hint_chosen"))
    blocks: list[Block] = [
        facts,
        Table("brokers", (Column("broker"), Column("count", "number")), rows, "no_letters"),
        Table("jobs", JOBS, [_job(job) for job in jobs.found], "no_jobs"),
        table,
        *([_stop(name)] if running else [form] if one.count else []),
    ]
    links = (
        Link("see_messages", path_of("messages", topic=topic)),
        Link("see_group", path_of("groups", name)),
    )
    left_out = names([*answer.left_out, *jobs.left_out])
    return Page("dead-letters", name, None, blocks, links, left_out=left_out, refresh_s=3 if running else 0)


async def _redrives(admin: Admin, name: str) -> Partial[Sequence[RedriveJob]]:
    """The redrives of a group. Apache's brokers have none."""
    try:
        return await admin.dead_letters.redrives(name)
    except BrokerError as error:
        if not is_not_offered(error):
            raise
        return Partial([])


async def _newest(admin: Admin, topic: str, reader: MakesReader) -> Sequence[ReceivedMessage]:
    """The newest dead letters, as far as they can be read in time."""
    found: list[ReceivedMessage] = []
    try:
        ends = (await admin.topics.status(topic)).found
        start = {one.queue: max(one.min_offset, one.max_offset - MOST_SHOWN) for one in ends if one.count}
        if not start:
            return ()
        async with (
            asyncio.timeout(READ_S),
            reader(topic, start=start, tags="*", sql=None) as one,
            aclosing(one.batches()) as batches,
        ):
            async for batch in batches:
                found += batch
    except (TimeoutError, OrbitError):
        pass  # the page still has its other parts, and a link to the messages
    found.sort(key=lambda message: -message.store_timestamp_ms)
    return found[:MOST_SHOWN]


def _letter(message: ReceivedMessage, now_ms: int) -> Row:
    told = message.properties.get
    return {
        "place": f"{message.broker_name}:{message.queue_offset}",
        "age": max(0.0, (now_ms - message.store_timestamp_ms) / 1000),
        "origin": told(DLQ_ORIGIN_TOPIC) or told(RETRY_TOPIC, ""),
        "tries": message.reconsume_times,
        "redrives": int(told(DLQ_REDRIVES, "0") or 0),
        "reason": told(DLQ_REASON, ""),
        "client": told(DLQ_CLIENT, ""),
        "message": message.message_id,
        "topic": message.topic,
    }


def again(name: str, chosen: Sequence[str]) -> Page:
    """The page that asks for a confirmation before the chosen dead letters are sent again.

    Raises:
        ValidationError: no dead letter is chosen, or a chosen value is not one.
    """
    if not chosen:
        raise ValidationError("chosen: no dead letter is chosen")
    ranges(",".join(chosen))
    form = _redrive(name, Field("chosen", value=",".join(chosen), required=True))
    return Page("dead-letters", name, None, (form,))


def _redrive(name: str, chosen: Field) -> Form:
    """The form that sends dead letters again; ``chosen`` is its field for the choice of letters."""
    return Form(
        "/do/redrive",
        "redrive",
        (Field("group", "hidden", name), chosen, Field("rate", "number", hint="hint_rate")),
        post=True,
        title="redrive",
        note=said("note_redrive"),
        needs=OPERATOR,
    )


def _stop(name: str) -> Form:
    """The form that stops the redrive under way."""
    return Form(
        "/do/redrive-stop",
        "stop",
        (Field("group", "hidden", name),),
        post=True,
        needs=OPERATOR,
        title="stop_redrive",
    )


def _job(job: RedriveJob) -> Row:
    return {
        "broker": job.broker_name,
        "state": job.state,
        "started": job.started,
        "sent": job.sent,
        "remaining": job.remaining,
        "too_often": job.too_often,
        "without_topic": job.without_topic,
        "problem": job.problem or "",
    }
