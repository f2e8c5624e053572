"""The job ``audit``: compares sent, stored, consumed and archived messages one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.actions import act
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.frames import ALL, Span, archive_frame, topic_frame
from orbitmq.spark.jobs.report import Progress, Report, silent
from orbitmq.spark.jobs.topics import check_read
from orbitmq.spark.option_values import addresses
from orbitmq.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Sides of an audit, in the order in which a message passes through them.
SENT, STORED, CONSUMED, ARCHIVED = "sent", "stored", "consumed", "archived"
# Possible names of the column with unique keys in a file.
ID_COLUMNS = ("message_id", "msg_id", "msgid", "messageid", "unique_key", "uniq_key", "id")
EXAMPLES = 3
REQUEST_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class AuditJob:
    """The options of the job ``audit``.

    Attributes:
        topic: the topic whose messages are compared.
        sent: a file or folder from the senders (Parquet, CSV with a header line, JSON lines, or plain text
            with an id in each line) with the unique keys in one of :data:`ID_COLUMNS`.
        consumed: such a file or folder from the consumers.
        group: a consumer group; messages before its offsets count as consumed.
        archive: the folder of an archive.
        stored: whether to read the topic; False if its messages exist only in the archive.
        span: the span of the messages' store times.
    """

    topic: str
    name_servers: str = "127.0.0.1:9876"
    sent: str | None = None
    consumed: str | None = None
    group: str | None = None
    archive: str | None = None
    stored: bool = True
    span: Span = ALL


@dataclass(frozen=True, slots=True)
class Side:
    """The counts of one side of an audit.

    Attributes:
        rows, ids: the number of messages, and of distinct unique keys.
        lost: keys of the reference that this side lacks.
        doubled: keys that this side has more than once.
        unknown: keys of this side that the reference lacks.
    """

    name: str
    rows: int
    ids: int
    lost: int
    doubled: int
    unknown: int


def reference(sides: Sequence[str]) -> str:
    """The side with which the others are compared: the first one that a message passes through."""
    return next(side for side in (SENT, STORED, ARCHIVED, CONSUMED) if side in sides)


def may_wait(side: str, job_group: str | None) -> bool:
    """Whether missing messages of a side may still arrive: those of a group that continues to consume."""
    return side == CONSUMED and job_group is not None


def verdict(sides: Sequence[Side], gaps: int, *, waits: str | None) -> tuple[bool, str]:
    """The verdict: whether each message exists exactly once, and a line of text. A pure function.

    Args:
        gaps: number of offsets missing between two stored messages.
        waits: the side whose missing messages may still arrive.
    """
    faults = []
    waiting = 0
    for side in sides:
        if side.lost and side.name == waits:
            waiting = side.lost
        elif side.lost:
            faults.append(f"{side.lost:,} lost ({side.name})")
        if side.doubled:
            faults.append(f"{side.doubled:,} doubled ({side.name})")
        if side.unknown:
            faults.append(f"{side.unknown:,} unknown ({side.name})")
    if gaps:
        faults.append(f"{gaps:,} offsets missing (stored)")
    told = "; ".join(faults) if faults else "each message is there once"
    behind = f"; {waiting:,} wait to be consumed" if waiting else ""
    return not faults, f"{told}{behind}"


def check(job: AuditJob) -> None:
    """Refuse a job that cannot run, before Spark is started for it.

    Raises:
        JobError: a file does not exist, the topic's name is invalid, or there is nothing to compare.
        TopicNotFoundError: the topic does not exist.
        NotPermittedError: the topic's permission allows only writing.
        UnreachableError: no name server answers.
    """
    if job.stored or job.group is not None:
        check_read([job.topic], job.name_servers)
    kept = [place for place in (job.sent, job.consumed) if place is not None]
    for place in kept:
        if not Folder(place).exists():
            raise JobError(f"{place} is not there")
    if not job.stored and not kept and job.group is None and job.archive is None:
        raise JobError("there is nothing to audit: neither stored, nor sent, consumed or archived")


def frames(spark: SparkSession, job: AuditJob) -> dict[str, DataFrame]:
    """The unique keys of each side, in a column ``id``.

    Raises:
        JobError: a file does not exist or has no unique keys, or there is nothing to compare.
    """
    found: dict[str, DataFrame] = {}
    if job.sent is not None:
        found[SENT] = ledger(spark, job.sent)
    if job.stored:
        found[STORED] = _stored(spark, job)
    if job.consumed is not None:
        found[CONSUMED] = ledger(spark, job.consumed)
    elif job.group is not None:
        found[CONSUMED] = _before_group(spark, job, job.group)
    if job.archive is not None:
        found[ARCHIVED] = archive_frame(spark, job.archive, [job.topic], span=job.span)
    if not found:
        raise JobError("there is nothing to audit: neither stored, nor sent, consumed or archived")
    with explained():
        return {
            side: frame if frame.columns == ["id"] else frame.select(sf.col("message_id").alias("id"))
            for side, frame in found.items()
        }


def ledger(spark: SparkSession, place: str) -> DataFrame:
    """The unique keys in a file or folder of the user.

    Raises:
        JobError: the file does not exist, cannot be read, or has no column with unique keys.
    """
    folder = Folder(place)
    if not folder.exists():
        raise JobError(f"{place} is not there")
    names = [*folder.files(), place]
    kind = next(
        (end for end in ("parquet", "csv", "json", "jsonl") if any(n.endswith(f".{end}") for n in names)), ""
    )
    with explained(place):
        if kind == "parquet":
            frame = spark.read.parquet(folder.location)
        elif kind == "csv":
            frame = spark.read.option("header", "true").csv(folder.location)
        elif kind:
            frame = spark.read.json(folder.location)
        else:
            return spark.read.text(folder.location).select(sf.trim("value").alias("id")).where("id <> ''")
        by_lower = {name.lower(): name for name in frame.columns}
        column = next((by_lower[name] for name in ID_COLUMNS if name in by_lower), None)
        if column is None:
            raise JobError(f"{place} has no column of unique keys, such as {ID_COLUMNS[0]}: {frame.columns}")
        return frame.select(sf.col(column).cast("string").alias("id"))


def _stored(spark: SparkSession, job: AuditJob) -> DataFrame:
    columns = "message_id,broker,queue_id,queue_offset,store_timestamp"
    options = {"columns": columns, "properties": "none", "failOnDataLoss": "false"}
    return topic_frame(spark, [job.topic], job.name_servers, span=job.span, options=options)


def _before_group(spark: SparkSession, job: AuditJob, group: str) -> DataFrame:
    """The stored messages that a group has consumed, by its offsets."""
    brokers = Brokers(addresses(job.name_servers), REQUEST_TIMEOUT_MS)
    committed = brokers.committed(group, brokers.readable([job.topic]))
    if not committed:
        raise JobError(f"group {group} has consumed nothing of {job.topic}")
    places = spark.createDataFrame(
        [(queue.broker_name, queue.queue_id, offset) for queue, offset in committed.items()],
        "broker string, queue_id int, committed bigint",
    )
    stored = _stored(spark, job).join(sf.broadcast(places), ["broker", "queue_id"])
    return stored.where("queue_offset < committed")


def compare(sides: Mapping[str, DataFrame]) -> DataFrame:
    """For each unique key, the number of its messages on each side, in a column for each side."""
    tagged = [
        frame.select("id", *(sf.lit(int(side == other)).alias(other) for other in sides))
        for side, frame in sides.items()
    ]
    together = reduce(lambda one, other: one.unionAll(other), tagged)
    return together.groupBy("id").agg(*(sf.sum(side).alias(side) for side in sides))


def audit(spark: SparkSession, job: AuditJob, *, progress: Progress = silent) -> Report:
    """Compare the sides by unique key: lost, doubled and unknown messages, and missing offsets.

    Raises:
        JobError: a side does not exist, or there is nothing to compare.
    """
    sides = frames(spark, job)
    first = reference(list(sides))
    with explained():
        compared = compare(sides)
        sums: list[Any] = []
        for side in sides:
            count = sf.col(side)
            sums += [sf.sum(count), sf.count_if(count > 0)]
            sums += [sf.count_if(fault) for fault in _faults(side, first).values()]
        (row,) = act(spark, "comparing", lambda: compared.agg(*sums).collect(), progress)
    found = [Side(side, *(int(v or 0) for v in row[5 * n : 5 * n + 5])) for n, side in enumerate(sides)]
    gaps = _gaps(spark, job, progress) if job.stored else {}
    good, line = verdict(
        found,
        sum(gaps.values()),
        waits=CONSUMED if may_wait(CONSUMED, job.group) and not job.consumed else None,
    )
    report = Report("audit", ok=good, headings=("side", "messages", "keys", "lost", "doubled", "unknown"))
    report.rows = [(s.name, s.rows, s.ids, s.lost, s.doubled, s.unknown) for s in found]
    report.facts = {
        "topic": job.topic,
        "reference": first,
        "gaps": {str(queue): missing for queue, missing in gaps.items()},
        "examples": {} if good else _examples(spark, compared, found, first, progress),
    }
    report.summary = f"{job.topic}: {line} ({counted(found[0].ids, 'key')} {first})"
    return report


def _faults(side: str, first: str) -> dict[str, Column]:
    """The possible faults of a key at a side, by the names in :class:`Side`."""
    count, known = sf.col(side), sf.col(first)
    # A message that was sent twice may also be stored twice.
    allowed = sf.lit(1) if side == first else sf.greatest(sf.lit(1), known)
    return {
        "lost": (known > 0) & (count == 0),
        "doubled": count > allowed,
        "unknown": (known == 0) & (count > 0),
    }


def _gaps(spark: SparkSession, job: AuditJob, progress: Progress) -> dict[MessageQueue, int]:
    """The number of missing offsets in each queue between its first and its last message."""
    grouped = (
        _stored(spark, job)
        .groupBy("broker", "queue_id")
        .agg(
            (sf.max("queue_offset") - sf.min("queue_offset") + 1 - sf.count_distinct("queue_offset")).alias(
                "n"
            )
        )
        .where("n > 0")
    )
    rows = act(spark, "offsets", grouped.collect, progress)
    return {MessageQueue(job.topic, broker, queue): missing for broker, queue, missing in rows}


def _examples(
    spark: SparkSession, compared: DataFrame, found: Sequence[Side], first: str, progress: Progress
) -> dict[str, list[str]]:
    """Some keys with each fault, for a search with ``orbitmq message find``."""
    examples: dict[str, list[str]] = {}
    for side in found:
        for fault, condition in _faults(side.name, first).items():
            if getattr(side, fault):
                chosen = compared.where(condition).select("id").limit(EXAMPLES)
                rows = act(spark, "examples", chosen.collect, progress)
                examples[f"{fault} ({side.name})"] = [row["id"] for row in rows]
    return examples
