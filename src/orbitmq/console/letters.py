"""Dead letters: which groups have some, those of one group, and sending them again."""

from __future__ import annotations

import asyncio

from orbitmq.admin import Admin, RedriveJob
from orbitmq.console.asking import names
from orbitmq.console.model import Block, Column, Facts, Field, Form, Link, Page, Row, Table, path_of, said
from orbitmq.console.rights import OPERATOR
from orbitmq.message.reserved import dead_letter_topic

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


async def letters(admin: Admin, name: str) -> Page:
    answer, jobs = await asyncio.gather(admin.dead_letters.show(name), admin.dead_letters.redrives(name))
    one = answer.found
    topic = dead_letter_topic(name)
    facts = Facts((("dead_letters", one.count, "number"), ("newest", one.newest, "time")))
    rows = [{"broker": broker, "count": count} for broker, count in one.brokers.items()]
    form = Form(
        "/do/redrive",
        "redrive",
        (
            Field("group", "hidden", name),
            Field("chosen", hint="hint_chosen"),
            Field("rate", "number", hint="hint_rate"),
        ),
        post=True,
        title="redrive",
        note=said("note_redrive"),
        needs=OPERATOR,
    )
    running = any(job.ended is None for job in jobs.found)
    stop = Form(
        "/do/redrive-stop",
        "stop",
        (Field("group", "hidden", name),),
        post=True,
        needs=OPERATOR,
        title="stop_redrive",
    )
    blocks: list[Block] = [
        facts,
        Table("brokers", (Column("broker"), Column("count", "number")), rows, "no_letters"),
        Table("jobs", JOBS, [_job(job) for job in jobs.found], "no_jobs"),
        *([stop] if running else [form] if one.count else []),
    ]
    links = (
        Link("see_messages", path_of("messages", topic=topic)),
        Link("see_group", path_of("groups", name)),
    )
    left_out = names([*answer.left_out, *jobs.left_out])
    return Page("dead-letters", name, None, blocks, links, left_out=left_out, refresh_s=3 if running else 0)


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
