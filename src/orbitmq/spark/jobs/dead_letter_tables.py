"""The jobs ``dlq`` and ``redrive``: dead letters as a table, chosen with SQL and sent again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.admin import Admin, RedriveJob
from orbitmq.client.core.identities import identity_of
from orbitmq.durations import instant
from orbitmq.errors import BrokerError
from orbitmq.message import property_names, reserved
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.actions import act
from orbitmq.spark.jobs.dead_letter_sending import RedriveOptions, send_again
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.frames import ALL, Span, topic_frame, where, with_text
from orbitmq.spark.jobs.report import TELL_EVERY_S, Progress, Report, silent
from orbitmq.spark.jobs.topics import check_read
from orbitmq.wire.codes import ResponseCode
from orbitmq.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Most ranges of offsets that a broker takes in one request (broker/dead_letters/forms.py).
MAX_RANGES = 10_000
POLL_S = 0.3


def dead_letters(
    spark: SparkSession,
    group: str,
    name_servers: str = "127.0.0.1:9876",
    *,
    span: Span = ALL,
) -> DataFrame:
    """The dead letters of a group: broker, queue_offset, dead_since, origin_topic, origin_id, reason, client,
    redrives, deliveries, message_id, tags, keys, text (the body as text), body, properties.

    Raises:
        JobError: the group has no dead letters.
    """
    topic = reserved.dead_letter_topic(_checked(group))
    with explained():
        frame = topic_frame(spark, [topic], name_servers, span=span)
    properties = sf.col("properties")
    return with_text(frame).select(
        "broker",
        "queue_offset",
        sf.col("store_timestamp").alias("dead_since"),
        sf.coalesce(
            properties[property_names.RETRY_TOPIC], properties[property_names.DLQ_ORIGIN_TOPIC]
        ).alias("origin_topic"),
        properties[property_names.DLQ_ORIGIN_MESSAGE_ID].alias("origin_id"),
        properties[property_names.DLQ_REASON].alias("reason"),
        properties[property_names.DLQ_CLIENT].alias("client"),
        sf.coalesce(properties[property_names.DLQ_REDRIVES].try_cast("int"), sf.lit(0)).alias("redrives"),
        sf.col("reconsume_times").alias("deliveries"),
        "message_id",
        "tags",
        "keys",
        "text",
        "body",
        "properties",
    )


def check(group: str, name_servers: str) -> None:
    """Refuse a group without dead letters, before Spark is started.

    Raises:
        JobError: the group's name is invalid.
        TopicNotFoundError: the group has no dead letters.
        UnreachableError: no name server answers.
    """
    check_read([reserved.dead_letter_topic(_checked(group))], name_servers)


def _checked(group: str) -> str:
    fault = reserved.group_fault(group)
    if fault:
        raise JobError(f"{group!r} is no group: {fault}")
    return group


def summarised(
    spark: SparkSession,
    frame: DataFrame,
    by: Sequence[str],
    *,
    sql: str | None = None,
    most: int = 50,
    progress: Progress = silent,
) -> Report:
    """Count dead letters by expressions: the largest counts first, each with the first and last time.

    Args:
        frame: a result of :func:`dead_letters`.
        by: SQL expressions over its columns.
        most: most rows.
    """
    with explained():
        chosen = where(frame, sql)
        keys = [sf.expr(one).cast("string").alias(f"_{place}") for place, one in enumerate(by)]
        grouped = chosen.groupBy(*keys).agg(
            sf.count(sf.lit(1)).alias("_n"),
            sf.unix_millis(sf.min("dead_since")).alias("_from"),
            sf.unix_millis(sf.max("dead_since")).alias("_to"),
        )
        rows = act(
            spark, "counting", lambda: grouped.orderBy(sf.desc("_n")).limit(most + 1).collect(), progress
        )
    report = Report("dlq", headings=(*by, "messages", "oldest", "newest"))
    report.rows = [(*row[:-2], instant(row["_from"]), instant(row["_to"])) for row in rows[:most]]
    total = sum(row["_n"] for row in rows)
    report.facts = {"messages": total, "kinds": len(report.rows), "complete": len(rows) <= most}
    report.summary = f"{counted(total, 'message')} of {counted(len(report.rows), 'kind')}" + (
        "" if len(rows) <= most else ", and more kinds"
    )
    return report


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as sorted ranges (first, last + 1)."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def redrive(
    spark: SparkSession,
    group: str,
    name_servers: str = "127.0.0.1:9876",
    *,
    sql: str | None = None,
    to_topic: str | None = None,
    rate: int | None = None,
    limit: int | None = None,
    max_redrives: int = 3,
    dry_run: bool = False,
    span: Span = ALL,
    progress: Progress = silent,
) -> Report:
    """Let the brokers resend the dead letters that ``sql`` selects.

    A job in the brokers sends and marks them (``orbitmq dlq status`` shows it), so that none is sent twice.
    Apache's brokers have no such job; with them Spark sends the messages.

    Args:
        sql: an expression in Spark's SQL that selects dead letters, over the columns of :func:`dead_letters`.
        to_topic: the topic to send to; ``None``: each dead letter's own topic.
        rate: messages a second, divided among the brokers; ``None`` for no limit.
        limit: most dead letters of each broker; ``None`` for all.
        max_redrives: dead letters that were sent again this many times are skipped.
        dry_run: only count them.
        span: send only dead letters from this time span.

    Raises:
        JobError: no dead letter is selected, or the selected ones form too many ranges of offsets.
        BrokerError: a broker refuses.
    """
    letters = where(dead_letters(spark, group, name_servers, span=span), sql)
    wanted = RedriveOptions(
        group=group, to_topic=to_topic, rate=rate, limit=limit, max_redrives=max_redrives, dry_run=dry_run
    )
    offsets: defaultdict[str, list[int]] = defaultdict(list)
    for broker, offset in act(spark, "choosing", letters.select("broker", "queue_offset").collect, progress):
        offsets[broker].append(offset)
    if not offsets:
        raise JobError(
            f"group {group} has no dead letter{' that --where chooses' if sql else ' of that time'}"
        )
    only = {broker: ranges(found) for broker, found in offsets.items()}
    for broker, found in only.items():
        if len(found) > MAX_RANGES:
            raise JobError(
                f"the chosen dead letters are in {len(found)} ranges of {broker}, the limit is {MAX_RANGES}: "
                f"choose by time (--from, --to) as well"
            )
    jobs = asyncio.run(_ask(name_servers, wanted, only, progress))
    if jobs is None:
        return send_again(spark, letters, wanted, name_servers, progress)
    return _redriven(jobs, sum(map(len, offsets.values())), wanted)


async def _ask(
    name_servers: str, wanted: RedriveOptions, only: dict[str, list[tuple[int, int]]], progress: Progress
) -> Sequence[RedriveJob] | None:
    """The brokers' jobs after all have ended; an interruption of the wait does not stop them.

    ``None`` if the brokers do not support such jobs.
    """
    mine = identity_of({}, this_worker().host)
    async with Admin(name_servers, credentials=mine.credentials, tls=mine.tls) as admin:
        try:
            jobs = await admin.dead_letters.redrive(
                wanted.group,
                to_topic=wanted.to_topic,
                rate=wanted.rate,
                limit=wanted.limit,
                max_redrives=wanted.max_redrives,
                dry_run=wanted.dry_run,
                only=only,
            )
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        told = asyncio.get_running_loop().time()
        while not wanted.dry_run and any(job.ended is None for job in jobs):
            await asyncio.sleep(POLL_S)
            names = {job.broker_name for job in jobs}
            found = (await admin.dead_letters.redrives(wanted.group)).whole()
            jobs = [job for job in found if job.broker_name in names]
            if asyncio.get_running_loop().time() - told >= TELL_EVERY_S:
                told = asyncio.get_running_loop().time()
                progress(f"{sum(job.sent for job in jobs):,} sent again")
        return jobs


def _redriven(jobs: Sequence[RedriveJob], chosen: int, wanted: RedriveOptions) -> Report:
    report = Report("redrive", headings=("broker", "state", "sent", "too often", "without topic"))
    rows: list[Any] = [
        (job.broker_name, job.state, job.sent, job.too_often, job.without_topic) for job in jobs
    ]
    report.rows = rows
    sent = sum(job.sent for job in jobs)
    left = chosen - sent
    report.facts = {"chosen": chosen, "sent": sent, "dry_run": wanted.dry_run, "group": wanted.group}
    report.summary = (
        f"{sent:,} of {counted(chosen, 'chosen dead letter')} would be sent again; nothing was sent"
        if wanted.dry_run
        else f"{sent:,} of {counted(chosen, 'chosen dead letter')} sent again; "
        f"{left:,} stay (sent before, too often or without topic)"
    )
    problem = next((job.problem for job in jobs if job.problem), None)
    report.ok = not problem
    if problem:
        report.summary += f"; {problem}"
    return report
