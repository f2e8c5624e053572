"""The job ``replay``: sends messages of an archive or a topic again, to another topic or the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as sf

from orbitmq.durations import instant
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.actions import act
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.frames import ALL, Span, archive_frame, is_archive, topic_frame, where, with_text
from orbitmq.spark.jobs.kept_properties import BORN_TIME, FROM, MESSAGE_ID, RUN, STORE_TIME, kept_properties
from orbitmq.spark.jobs.report import Progress, Report, duration_text, silent
from orbitmq.spark.jobs.throttle import throttled, written_slowly
from orbitmq.spark.jobs.topics import check_read, check_written
from orbitmq.spark.option_values import instant_ms
from orbitmq.spark.options import AT_LEAST_ONCE
from orbitmq.wording import Remark, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The largest clock difference between this machine and the brokers for which the search allows.
CLOCK_MARGIN_MS = 600_000


@dataclass(frozen=True)
class ReplayJob:
    """The options of the job ``replay``.

    Attributes:
        source: a topic, or the folder of an archive.
        to: the topic to send to.
        topic: the topic to send from an archive with several.
        span: the span of the messages' store times.
        tags: send only messages with these tags, as ``a || b``.
        where: a SQL expression over the columns of the format ``rocketmq`` and ``text``, the body as text.
        rate: messages a second; ``None`` for no limit.
        resume: the name of the interrupted run to continue.
        state: a folder that driver and workers share, with which a task that Spark repeats sends nothing
            twice.
    """

    source: str
    to: str
    name_servers: str = "127.0.0.1:9876"
    topic: str | None = None
    span: Span = ALL
    tags: str = "*"
    where: str | None = None
    rate: int | None = None
    resume: str | None = None
    state: str | None = None


def chosen(spark: SparkSession, job: ReplayJob) -> DataFrame:
    """The messages to send again, with the columns of the format ``rocketmq`` and ``text``.

    Raises:
        JobError: the source does not exist, or the expression is invalid.
    """
    if is_archive(job.source):
        topics = [job.topic] if job.topic else []
        frame = archive_frame(spark, job.source, topics, span=job.span)
        if "properties" not in frame.columns or "body" not in frame.columns:
            raise JobError(f"{job.source} was archived without body or properties: it cannot be replayed")
        if dict(frame.dtypes)["properties"] == "binary":
            raise JobError(f"{job.source} was archived with properties=raw: only a map can be replayed")
    else:
        frame = topic_frame(spark, [job.source], job.name_servers, span=job.span)
    if job.tags != "*":
        frame = frame.where(sf.col("tags").isin([tag.strip() for tag in job.tags.split("||")]))
    return where(with_text(frame), job.where)


def place() -> Any:
    """Topic, broker, queue and offset of a message as one text."""
    return sf.concat_ws("/", "topic", "broker", sf.col("queue_id"), sf.col("queue_offset"))


def messages(frame: DataFrame, run: str) -> DataFrame:
    """Archived rows as messages to send: the sink's columns, with the properties of the original messages."""
    marks = sf.create_map(
        *(sf.lit(RUN), sf.lit(run)),
        *(sf.lit(FROM), place()),
        *(sf.lit(MESSAGE_ID), sf.coalesce("message_id", sf.lit(""))),
        *(sf.lit(BORN_TIME), sf.unix_millis("born_timestamp").cast("string")),
        *(sf.lit(STORE_TIME), sf.unix_millis("store_timestamp").cast("string")),
    )
    return frame.select("body", "tags", "keys", sf.map_concat(kept_properties(), marks).alias("properties"))


def check(job: ReplayJob) -> None:
    """Refuse a job that cannot run, before Spark is started for it.

    Raises:
        JobError: the source does not exist, or a topic's name is invalid.
        TopicNotFoundError: a topic does not exist.
        NotPermittedError: the permission of the target topic does not allow writing, or that of the source
            topic reading.
        UnreachableError: no name server answers.
    """
    check_written(job.to, job.name_servers)
    if not is_archive(job.source):
        check_read([job.source], job.name_servers)
    if job.resume:
        began_ms(job.resume)


def replay(
    spark: SparkSession, job: ReplayJob, *, dry_run: bool = False, progress: Progress = silent
) -> Report:
    """Send the messages again, or only count them.

    Raises:
        TopicNotFoundError: the target topic does not exist.
        NotPermittedError: the target topic's permission does not allow writing.
        JobError: the job cannot continue. Sent messages stay sent; ``resume`` sends the rest.
    """
    check(job)
    run = job.resume or new_run()
    frame = chosen(spark, job)
    if job.resume:
        frame = _rest(spark, frame, job, run)
    if dry_run:
        return _counted(spark, frame, job, progress)
    clock = this_worker().clock
    began = clock.monotonic()
    progress(Remark(f"run {run}: if it is interrupted, --resume {run} sends the rest"))
    observed = Observation()
    made = messages(frame, run).observe(observed, sf.count(sf.lit(1)).alias("rows"))
    state = {"stateLocation": job.state} if job.state else {"delivery": AT_LEAST_ONCE}
    writer = {"nameServers": job.name_servers, "topic": job.to, **state}
    if job.rate is not None:
        made = throttled(made, job.rate)
    with written_slowly(spark, job.rate, writer):
        save = made.write.format("rocketmq").options(**writer).mode("append").save
        act(spark, "sending", save, progress)
    rows = int(observed.get["rows"])
    seconds = clock.monotonic() - began
    report = Report("replay", facts={"run": run, "messages": rows, "seconds": round(seconds, 3)})
    report.summary = (
        f"replayed {counted(rows, 'message')} of {job.source} to {job.to}, {duration_text(seconds)} "
        f"({rows / max(seconds, 0.001):,.0f}/s), run {run}"
        if rows
        else f"nothing was replayed: {job.source} has no message that was asked for"
    )
    return report


def new_run() -> str:
    """A name for a new run, which contains its start time."""
    worker = this_worker()
    return f"{worker.clock.now_ms()}-{worker.random.getrandbits(32):08x}"


def began_ms(run: str) -> int:
    """The start time of a run, in milliseconds since 1970.

    Raises:
        JobError: the text is no name of a run.
    """
    try:
        return instant_ms(run.partition("-")[0])
    except ValueError as error:
        raise JobError(f"--resume {run}: that is no run; each replay prints the name of its run") from error


def _rest(spark: SparkSession, frame: DataFrame, job: ReplayJob, run: str) -> DataFrame:
    """The messages that the interrupted run has not sent, which are those that the topic lacks."""
    since = Span(began_ms(run) - CLOCK_MARGIN_MS)
    sent = topic_frame(
        spark, [job.to], job.name_servers, span=since, options={"columns": "properties,store_timestamp"}
    )
    with explained():
        sent = sent.where(sf.col("properties")[RUN] == run).select(sf.col("properties")[FROM].alias("sent"))
        return frame.join(sent, place() == sent["sent"], "left_anti")


def _counted(spark: SparkSession, frame: DataFrame, job: ReplayJob, progress: Progress) -> Report:
    grouped = frame.groupBy("topic").agg(
        sf.count(sf.lit(1)),
        sf.unix_millis(sf.min("store_timestamp")),
        sf.unix_millis(sf.max("store_timestamp")),
    )
    rows = act(spark, "counting", lambda: grouped.orderBy("topic").collect(), progress)
    total = sum(row[1] for row in rows)
    report = Report("replay", headings=("topic", "messages", "first stored", "last stored"))
    report.rows = [(topic, count, instant(low), instant(high)) for topic, count, low, high in rows]
    report.facts = {"messages": total, "dry_run": True}
    report.summary = f"{counted(total, 'message')} would be sent to {job.to}; nothing was sent"
    return report
