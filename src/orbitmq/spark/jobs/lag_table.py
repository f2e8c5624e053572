"""What the job ``lag`` has written: its table, as a DataFrame and in short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import dataset

from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Report, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("ms", "UTC")),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("committed", pa.int64()),
        ("end", pa.int64()),
        ("in_flight", pa.int64()),
        ("lag", pa.int64()),
        ("lag_s", pa.float64()),
    ]
)


class LagRow(NamedTuple):
    """A queue of a group at a time (ms since 1970); ``lag`` in messages, ``lag_s`` in seconds.

    A row without ``topic`` and what follows ``broker`` says that this broker did not tell of the group then.
    """

    at: int
    group: str
    topic: str | None
    broker: str
    queue_id: int | None = None
    committed: int | None = None
    end: int | None = None
    in_flight: int | None = None
    lag: int | None = None
    lag_s: float | None = None


def lag_history(spark: SparkSession, folder: str) -> DataFrame:
    """The table that :func:`.lags.record_lag` wrote, with the columns of :class:`LagRow`."""
    place = Folder(folder)
    if not place.has_tables():
        raise JobError(f"{folder} holds no history of lags")
    with explained():
        return spark.read.option("recursiveFileLookup", "true").parquet(place.location)


class Behind(NamedTuple):
    """A group and topic over a history: lags in messages and seconds."""

    group: str
    topic: str
    now: int
    now_s: float
    most: int
    most_s: float
    moved: int


class Place(NamedTuple):
    """A queue of a group's topic."""

    topic: str
    broker: str
    queue_id: int


class _History:
    """What is kept of a group while its history is read, from the oldest measurement to the newest."""

    def __init__(self) -> None:
        self._latest: dict[Place, LagRow] = {}
        # By topic: messages consumed since each of its queues was seen first; lags in messages and seconds.
        self._moved: dict[str, int] = {}
        self._now: dict[str, tuple[int, float]] = {}
        self._most: dict[str, tuple[int, float]] = {}

    def add(self, rows: Iterable[LagRow]) -> None:
        """Take the rows of one measurement; the queues of silent brokers count as they were last."""
        told: dict[Place, LagRow] = {}
        silent_ones: set[str] = set()
        for row in rows:
            if row.topic is None:
                silent_ones.add(row.broker)
                continue
            place = Place(row.topic, row.broker, row.queue_id or 0)
            told[place] = row
            before = self._latest.get(place, row)
            moved = (row.committed or 0) - (before.committed or 0)
            self._moved[row.topic] = self._moved.get(row.topic, 0) + moved
        kept = {place: row for place, row in self._latest.items() if place.broker in silent_ones}
        self._latest = kept | told
        now: dict[str, tuple[int, float]] = {}
        for place, row in self._latest.items():
            lag, lag_s = now.get(place.topic, (0, 0.0))
            now[place.topic] = lag + (row.lag or 0), max(lag_s, row.lag_s or 0.0)
        self._now |= now
        for topic, (lag, lag_s) in now.items():
            most, most_s = self._most.get(topic, (0, 0.0))
            self._most[topic] = max(most, lag), max(most_s, lag_s)

    def summary(self, group: str) -> list[Behind]:
        """By topic."""
        return [
            Behind(group, topic, *self._now[topic], *self._most[topic], moved)
            for topic, moved in sorted(self._moved.items())
        ]


def summary_of(rows: Iterable[LagRow]) -> list[Behind]:
    """By group and topic, out of a history in the order of time, in each measurement by group. Pure."""
    groups: dict[str, _History] = {}
    for (_, group), measured in groupby(rows, key=lambda row: (row.at, row.group)):
        groups.setdefault(group, _History()).add(measured)
    return [one for group, history in sorted(groups.items()) for one in history.summary(group)]


def _rows(place: Folder) -> Iterator[LagRow]:
    """A history, from the oldest measurement to the newest: files are named by their time."""
    try:
        files = dataset.dataset(place.location, format="parquet", ignore_prefixes=["_", "."]).get_fragments()
        for file in sorted(files, key=lambda one: str(one.path)):
            table = file.to_table(schema=SCHEMA)
            times = table.column("at").cast(pa.int64())
            yield from (LagRow(**row) for row in table.set_column(0, "at", times).to_pylist())
    except (OSError, pa.ArrowException) as error:
        text = " ".join(str(error).split())[:200]
        raise JobError(f"{place.location} cannot be read: {text}") from error


def lag_report(folder: str) -> Report:
    """A history in short: of each group and topic the last and the largest lag, and how far it moved.

    Raises:
        JobError: there is none.
    """
    place = Folder(folder)
    if not place.has_tables():
        raise JobError(f"{folder} holds no history of lags")
    times: set[int] = set()

    def counting() -> Iterator[LagRow]:
        for row in _rows(place):
            times.add(row.at)
            yield row

    behind = summary_of(counting())
    report = Report("lag", headings=("group", "topic", "lag", "seconds", "most", "most seconds", "consumed"))
    report.rows = [tuple(round(v, 1) if isinstance(v, float) else v for v in one) for one in behind]
    report.facts = {"measured": len(times), "folder": folder}
    report.summary = (
        f"{counted(sum(one.now for one in behind), 'message')} behind in "
        f"{counted(len({one.group for one in behind}), 'group')}; measured "
        f"{counted(len(times), 'time')}, in {folder}"
    )
    return report
