"""``orbitmq spark``: jobs over topics and archives."""

from __future__ import annotations

from typing import Annotated, Literal

from orbitmq.cli.app import Common, make_app
from orbitmq.cli.spark_running import Spark, flag, named, run_job, show, span, teller
from orbitmq.cli.times import Between, rate_per_s

app = make_app(
    "spark",
    "Jobs on Spark: archive topics, replay, audit, look into dead letters. Each can be killed and run again.",
    """
orbitmq spark archive orders,payments /data/archive
orbitmq spark archive orders /data/archive --verify
orbitmq spark replay /data/archive orders-again --where "tags = 'eu'" --rate 500/s
orbitmq spark audit orders --archive /data/archive --group billing
orbitmq spark dlq billing --by reason,origin_topic
orbitmq spark redrive billing --where "reason like '%timeout%'" --dry-run
""",
)


@app.command
def archive(
    topics: str,
    to: str,
    /,
    *,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",
    table: str = "",
    continuous: Annotated[bool, flag()] = False,
    trigger: str = "10 seconds",
    verify: Annotated[bool, flag()] = False,
    footers: Annotated[bool, flag()] = False,
    columns: str = "",
    properties: Literal["map", "raw", "none"] = "map",
    codec: str = "zstd",
    skip_lost: Annotated[bool, flag()] = False,
    checkpoint: str = "",
    dry_run: Annotated[bool, flag()] = False,
    spark: Spark = Spark(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Write topics to Parquet files, each message in one of them, whatever is killed meanwhile.

    Parameters
    ----------
    topics
        Names of the topics, separated by commas.
    to
        The folder of the archive: a path or a URI such as s3://bucket/archive.
    format
        Also keep a table over the files: Delta (in the folder) or Iceberg.
    table
        The table of --format iceberg, as catalog.namespace.table.
    continuous
        Go on until Ctrl-C, instead of ending with what is there now.
    trigger
        Time between two writes of a --continuous archive, as Spark writes it.
    verify
        Tell whether the archive is complete, by the names of its files alone, without Spark and brokers.
    footers
        With --verify: also open each file.
    columns
        Columns to keep, separated by commas; those that place a message are always there.
    properties
        Form in which the properties are kept.
    codec
        Compression of the Parquet files.
    skip_lost
        Go on when messages are gone before they were archived; --verify names them.
    checkpoint
        The folder in which Spark keeps how far it is, when not in the archive.
    dry_run
        Only tell what would be archived.
    """
    from orbitmq.spark.jobs import archiving

    if verify:
        with teller() as tell:
            return show(archiving.verify(to, named(topics), footers=footers, tell=tell), common)
    job = archiving.ArchiveJob(
        topics=named(topics),
        to=to,
        name_servers=common.addresses,
        table_format=format,
        table=table,
        columns=named(columns),
        properties=properties,
        codec=codec,
        trigger=trigger,
        skip_lost=skip_lost,
        checkpoint=checkpoint,
    )
    if dry_run:
        return show(archiving.plan(job), common)
    archiving.check(job)
    return run_job(
        "archive", lambda s, tell: archiving.archive(s, job, continuous=continuous, tell=tell), spark, common
    )


@app.command
def replay(
    source: str,
    to: str,
    /,
    *,
    topic: str | None = None,
    between: Between = Between(),  # noqa: B008 - immutable
    tags: str = "*",
    where: str | None = None,
    rate: str | None = None,
    resume: str | None = None,
    state: str | None = None,
    dry_run: Annotated[bool, flag()] = False,
    spark: Spark = Spark(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send messages of an archive or a topic again. They keep their old ids and times as properties.

    Parameters
    ----------
    source
        A topic, or the folder of an archive (with a slash or a dot in it).
    to
        The topic to send to.
    topic
        The topic to send of an archive of several topics.
    tags
        Send only messages with one of these tags, as 'a || b'. Default: all messages.
    where
        Send only messages for which this expression in Spark's SQL is true; its columns are those of the
        format rocketmq, and text, the body as text.
    rate
        Messages a second, as 500 or 500/s. Default: as fast as it goes.
    resume
        Go on with this run, which was interrupted: what the topic has of it is not sent again.
    state
        A folder that driver and workers share: a task that Spark tries again then sends nothing twice.
    dry_run
        Only count the messages; nothing is sent.
    """
    from orbitmq.spark.jobs import replaying

    job = replaying.ReplayJob(
        source=source,
        to=to,
        name_servers=common.addresses,
        topic=topic,
        span=span(between),
        tags=tags,
        where=where,
        rate=None if rate is None else rate_per_s(rate),
        resume=resume,
        state=state,
    )
    replaying.check(job)
    return run_job(
        "replay", lambda s, tell: replaying.replay(s, job, dry_run=dry_run, tell=tell), spark, common
    )


@app.command
def audit(
    topic: str,
    /,
    *,
    sent: str | None = None,
    consumed: str | None = None,
    group: str | None = None,
    archive: str | None = None,
    stored: bool = True,
    between: Between = Between(),  # noqa: B008 - immutable
    spark: Spark = Spark(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Compare what was sent, stored, consumed and archived by unique key. Exit code 1: lost or doubled.

    Parameters
    ----------
    topic
        Topic whose messages are compared.
    sent
        File or folder of the senders with unique keys in a column message_id (Parquet, CSV, JSON lines), or
        text with one in each line.
    consumed
        A file or folder of the same form from the consumers.
    group
        Instead of --consumed: what lies before the offsets of this group counts as consumed.
    archive
        Folder of the archive that is compared.
    stored
        Read the topic itself, too.
    """
    from orbitmq.spark.jobs import auditing

    job = auditing.AuditJob(
        topic=topic,
        name_servers=common.addresses,
        sent=sent,
        consumed=consumed,
        group=group,
        archive=archive,
        stored=stored,
        span=span(between),
    )
    auditing.check(job)
    return run_job("audit", lambda s, tell: auditing.audit(s, job, tell=tell), spark, common)
