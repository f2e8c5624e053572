"""Messages as data frames, from a topic or from an archive, with the same columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_names import ArchiveFile, redundant
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Span:
    """A span of store times in milliseconds since 1970: from ``begin_ms``, included, to ``end_ms``,
    excluded.
    """

    begin_ms: int | None = None
    end_ms: int | None = None

    def __post_init__(self) -> None:
        if self.begin_ms is not None and self.end_ms is not None and self.begin_ms >= self.end_ms:
            raise JobError("the time span ends before it begins")

    def days(self) -> tuple[int | None, int | None]:
        """The first and the last day, counted from 1970."""
        return (
            None if self.begin_ms is None else self.begin_ms // DAY_MS,
            None if self.end_ms is None else (self.end_ms - 1) // DAY_MS,
        )


ALL = Span()


def is_archive(place: str) -> bool:
    """Whether the text names a folder: names of topics have neither slash nor dot."""
    return any(mark in place for mark in ("/", ".", ":", "~"))


def topic_frame(
    spark: SparkSession,
    topics: Sequence[str],
    name_servers: str,
    *,
    span: Span = ALL,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The messages of topics, with the properties as a map.

    Args:
        options: further options of the format ``rocketmq``.
    """
    wanted = {"topic": ",".join(topics), "nameServers": name_servers, "properties": "map"}
    if span.begin_ms is not None:
        wanted |= {"startingTimestamp": str(span.begin_ms), "startingTimestampStrategy": "latest"}
    if span.end_ms is not None:
        wanted["endingTimestamp"] = str(span.end_ms)
    wanted |= dict(options or {})
    reader = spark.read.format("rocketmq")
    for name, value in wanted.items():
        reader = reader.option(name, value)
    with explained():
        return within(reader.load(), span)


def archive_frame(
    spark: SparkSession,
    folder: str,
    topics: Sequence[str] = (),
    *,
    span: Span = ALL,
) -> DataFrame:
    """The messages of an archive, each once, even while its files are being merged.

    Raises:
        JobError: the folder holds no archive of these topics, or no messages of the time span.
    """
    found = Folder(folder)
    files = [file for file in found.archive_files() if not topics or file.topic in topics]
    if not files:
        raise JobError(f"{folder} holds no archive{f' of {topics[0]}' if topics else ''}")
    left_over = set(redundant(files))
    chosen = [file for file in files_of(files, span) if file not in left_over]
    if not chosen:
        days = sorted(file.date for file in files)
        raise JobError(f"{folder} has no messages of that time: its days are {days[0]} to {days[-1]}")
    with explained():
        frame = spark.read.parquet(*sorted(found.below(file.path) for file in chosen))
        return within(frame, span)


def files_of(files: Iterable[ArchiveFile], span: Span) -> list[ArchiveFile]:
    """The files that may hold messages of a time span."""
    first, last = (None if day is None else _date(day) for day in span.days())
    return [
        file
        for file in files
        if (first is None or first <= file.date) and (last is None or file.date <= last)
    ]


def _date(day: int) -> str:
    """A day, counted from 1970, as ``2026-11-22``."""
    return str(pa.scalar(day, pa.date32()).as_py())


def within(frame: DataFrame, span: Span) -> DataFrame:
    """The rows that were stored in a time span."""
    stored = sf.unix_millis("store_timestamp")
    if span.begin_ms is not None:
        frame = frame.where(stored >= span.begin_ms)
    if span.end_ms is not None:
        frame = frame.where(stored < span.end_ms)
    return frame


def where(frame: DataFrame, sql: str | None) -> DataFrame:
    """The rows for which a SQL expression of the user is true.

    Raises:
        JobError: the expression is wrong.
    """
    if sql is None:
        return frame
    with explained(f"--where {sql!r}"):
        return frame.where(sql)


def with_text(frame: DataFrame) -> DataFrame:
    """Add a column ``text``, the body as text, for SQL expressions of the user."""
    return frame.withColumn("text", sf.col("body").cast("string"))
