"""``orbitmq spark``: jobs over topics, archives and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from orbitmq.cli.app import DryRun, Flag, Group, make_app
from orbitmq.cli.command import Addresses, command
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.spark_running import Spark, run_job, span, view_of
from orbitmq.cli.times import Between, rate_per_s
from orbitmq.cli.values import named
from orbitmq.cli.view import View

if TYPE_CHECKING:
    from orbitmq.cli.output import Tell
    from orbitmq.spark.jobs.report import Report

app = make_app(
    "spark",
    "Jobs on Spark: archive topics, replay, audit, look into dead letters. Each can be killed and run again.",
    """
orbitmq spark archive orders,payments /data/archive
orbitmq spark replay /data/archive again --where "tags = 'eu'" --rate 500/s
orbitmq spark audit orders --archive /data/archive --group billing
orbitmq spark dlq billing --by reason,origin_topic
orbitmq spark redrive billing --where "reason like '%timeout%'" --dry-run
""",
)


@app.command
@command
def archive(
    servers: Addresses,
    topics: str,
    to: str,
    /,
    *,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",
    table: str = "",
    continuous: Flag = False,
    trigger: str = "10 seconds",
    columns: str = "",
    properties: Literal["map", "raw", "none"] = "map",
    codec: str = "zstd",
    skip_lost: Flag = False,
    checkpoint: str = "",
    dry_run: DryRun = False,
    spark: Spark = Spark(),
) -> View:
    """Write topics to Parquet files, each message in exactly one of them, even if processes are killed
    meanwhile.

    Args:
        topics: Names of the topics, separated by commas.
        to: Folder of the archive, a path or a URI such as s3://bucket/archive.
        format: Also keep a table over the files: Delta (in the folder) or Iceberg.
        table: The table of --format iceberg, as catalog.namespace.table.
        continuous: Continue until Ctrl-C. Without it the job ends after the messages that are stored now.
        trigger: Time between two writes of a --continuous archive, as Spark writes it.
        columns: Columns to keep, separated by commas; topic, broker, queue and offset are always kept.
            Default: all.
        properties: Form in which the properties are kept.
        codec: Compression of the Parquet files.
        skip_lost: Continue if messages were deleted before they were archived; 'orbitmq archive verify' names
            them.
        checkpoint: Folder in which Spark keeps the progress of the job. Default: a folder in the archive.
    """
    from orbitmq.spark.jobs import archiving

    kept = named(columns)
    job = archiving.ArchiveJob(
        named(topics), to, servers, format, table, kept, properties, codec, trigger, skip_lost, checkpoint
    )
    if dry_run:
        return view_of(archiving.plan(job))
    archiving.check(job)
    return run_job(
        "archive", lambda s, tell: archiving.archive(s, job, continuous=continuous, progress=tell), spark
    )


@app.command
@command
def replay(
    servers: Addresses,
    source: str,
    to: str,
    /,
    *,
    topic: str | None = None,
    between: Between = Between(),
    tags: str = "*",
    where: str | None = None,
    rate: str | None = None,
    resume: str | None = None,
    state: str | None = None,
    dry_run: DryRun = False,
    spark: Spark = Spark(),
) -> View:
    """Send messages of an archive or a topic again. They keep their old ids and times as properties.

    Args:
        source: A topic, or the folder of an archive (with a slash or a dot in it).
        to: The topic to send to.
        topic: The topic to send of an archive of several topics.
        tags: Send only messages with one of these tags, as 'a || b'. Default: all messages.
        where: Send only messages for which this expression in Spark's SQL is true; its columns are those of
            the format rocketmq, and text, the body as text.
        rate: Messages a second, as 500 or 500/s. Default: no limit.
        resume: Name of an interrupted run to continue: messages of it that the topic already has are not sent
            again.
        state: A folder that driver and workers share: a task that Spark tries again then sends nothing twice.
    """
    from orbitmq.spark.jobs import replaying

    limit = None if rate is None else rate_per_s(rate)
    job = replaying.ReplayJob(source, to, servers, topic, span(between), tags, where, limit, resume, state)
    replaying.check(job)
    return run_job("replay", lambda s, tell: replaying.replay(s, job, dry_run=dry_run, progress=tell), spark)


@app.command
@command
def audit(
    servers: Addresses,
    topic: str,
    /,
    *,
    sent: str | None = None,
    consumed: str | None = None,
    group: str | None = None,
    archive: str | None = None,
    stored: bool = True,
    between: Between = Between(),
    spark: Spark = Spark(),
) -> View:
    """Compare sent, stored, consumed and archived messages by unique key. Exit code 1: lost or doubled.

    Args:
        topic: Topic whose messages are compared.
        sent: File or folder of the senders with unique keys in a column message_id (Parquet, CSV, JSON
            lines), or text with one in each line.
        consumed: A file or folder of the same form from the consumers.
        group: Instead of --consumed: messages before the committed offsets of this group count as consumed.
        archive: Folder of the archive that is compared.
        stored: Read the messages that the topic holds, too.
    """
    from orbitmq.spark.jobs import auditing

    job = auditing.AuditJob(topic, servers, sent, consumed, group, archive, stored, span(between))
    auditing.check(job)
    return run_job("audit", lambda s, tell: auditing.audit(s, job, progress=tell), spark)


@app.command
@command
def dlq(
    servers: Addresses,
    group: Group,
    /,
    *,
    by: str = "origin_topic,reason",
    where: str | None = None,
    between: Between = Between(),
    spark: Spark = Spark(),
) -> View:
    """Count the dead letters of a group by topic, reason or any SQL expression.

    Args:
        by: SQL expressions, separated by commas, over broker, queue_offset, dead_since, origin_topic,
            origin_id, reason, client, redrives, deliveries, message_id, tags, keys, text (the body) and
            properties.
        where: Count only those for which this expression in Spark's SQL is true; its columns are those of
            --by.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    keys, wanted = expressions(by), span(between)
    tables.check(group, servers)

    def count(session: Any, tell: Tell) -> Report:
        letters = tables.dead_letters(session, group, servers, span=wanted)
        return tables.summarised(session, letters, keys, sql=where, progress=tell)

    return run_job("dlq", count, spark)


@app.command
@command
def redrive(
    servers: Addresses,
    group: Group,
    /,
    *,
    where: str | None = None,
    between: Between = Between(),
    how: Redriving = Redriving(),
    spark: Spark = Spark(),
) -> View:
    """Choose dead letters with SQL and let the brokers send them again; none is sent twice.

    Args:
        where: Send only those for which this expression in Spark's SQL is true; its columns are those of dlq
            --by.
    """
    from orbitmq.spark.jobs import dead_letter_tables as tables

    options, wanted = how.options, span(between)
    tables.check(group, servers)

    def send(session: Any, tell: Tell) -> Report:
        return tables.redrive(session, group, servers, sql=where, span=wanted, progress=tell, **options)

    return run_job("redrive", send, spark)


def expressions(text: str) -> list[str]:
    """SQL expressions separated by those commas that are outside of parentheses and quotes."""
    found, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        else:
            depth += (character == "(") - (character == ")")
            if character == "," and not depth:
                found.append("")
                continue
        found[-1] += character
    return [one.strip() for one in found if one.strip()]
