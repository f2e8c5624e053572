"""The job ``lag``: how far each consumer group is behind, written down as a table. Writing needs no Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from orbitmq.admin import Admin, IncompleteError
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_names import OWN_FOLDER
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Report, Tell, counted, silent
from orbitmq.spark.write.ledger import is_of_writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.admin.groups import QueueLag

T = TypeVar("T")
_SCHEMA = pa.schema(
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


# Groups that are asked for at the same time: with one that waits for a broker in vain the others go on.
_AT_ONCE = 16


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


class _Meter:
    """Measures again and again.

    Args:
        groups: empty: all, but those of Spark's writers.
    """

    def __init__(self, name_servers: str, groups: Sequence[str]) -> None:
        self._name_servers = name_servers
        self._groups = groups
        self._brokers: set[str] = set()

    async def measure(self, now_ms: int) -> tuple[list[LagRow], dict[str, str]]:
        """The rows, and why brokers are missing in them, by name: they are silent, or were there before.

        Raises:
            BrokerError, TransportError, NameServerError: nobody answers, or no broker has a group.
        """
        async with Admin(self._name_servers) as admin:
            brokers = {broker.name for broker in await admin.cluster_list()}
            self._brokers |= brokers
            missing = dict.fromkeys(sorted(self._brokers - brokers), "not in the routes any more")
            names: Iterable[str] = self._groups
            if not names:
                found, left_out = await _told(admin.groups.names(), {})
                missing |= left_out
                names = [name for name in found if not is_of_writers(name)]
            turns = asyncio.Semaphore(_AT_ONCE)

            async def one(group: str) -> tuple[str, list[QueueLag], dict[str, str]]:
                async with turns:
                    try:
                        return group, *await _told(admin.groups.lag(group), [])
                    except BrokerError:
                        if self._groups:
                            raise
                        return group, [], {}  # deleted since it was listed

            measured = await asyncio.gather(*map(one, names))
        rows: list[LagRow] = []
        for group, queues, left_out in measured:
            rows += [
                LagRow(now_ms, group, one.queue.topic, one.queue.broker_name, one.queue.queue_id,
                       one.committed, one.end, one.in_flight, one.lag, one.lag_s)
                for one in queues
            ]  # fmt: skip
            rows += [LagRow(now_ms, group, None, broker) for broker in sorted({*missing, *left_out})]
        for _, _, left_out in measured:
            missing |= left_out
        return rows, missing


async def _told(work: Awaitable[T], nothing: T) -> tuple[T, dict[str, str]]:
    """What the brokers that answer tell, and why others do not, by name."""
    try:
        return await work, {}
    except IncompleteError as error:
        left_out = {one.name: f"at {one.address}: {one.reason}" for one in error.left_out}
        return nothing if error.found is None else error.found, left_out


def record_lag(
    to: str,
    name_servers: str = "127.0.0.1:9876",
    *,
    groups: Sequence[str] = (),
    every_s: float = 60.0,
    times: int | None = 1,
    tell: Tell = silent,
) -> Report:
    """Write down the lag of all groups, or of some, so many times.

    The groups in which Spark's writers keep what they know in the brokers consume nothing and are left out.
    A broker that does not answer has a row that says so for each group. Once something was measured, a time
    at which nobody answers is told and not the end.

    Args:
        to: the folder of the table, ``date=<day>/<time>.parquet``.
        times: ``None``: until interrupted.

    Returns:
        The report of all that the folder has; not good when something is missing in what was measured now.

    Raises:
        JobError: the folder cannot be written to.
        BrokerError, TransportError, NameServerError: the first time nobody answers, or no broker has a group.
    """
    folder = Folder(to)
    folder.prepare()
    worker = this_worker()
    meter = _Meter(name_servers, groups)
    due = worker.clock.monotonic()
    done = incomplete = 0
    try:
        while times is None or done < times:
            worker.pause(max(0.0, due - worker.clock.monotonic()))
            due = max(due, worker.clock.monotonic() - every_s) + every_s
            incomplete += not _measured(meter, folder, done, tell)
            done += 1
    except KeyboardInterrupt:
        pass
    report = lag_report(to) if folder.has_tables() else _nothing(to)
    if incomplete:
        report.good = False
        report.summary += f"; something was missing {counted(incomplete, 'time')} of {done}"
    return report


def _measured(meter: _Meter, folder: Folder, done: int, tell: Tell) -> bool:
    """Measure once more, write that down and tell it; whether everybody answered."""
    try:
        rows, missing = asyncio.run(meter.measure(this_worker().clock.now_ms()))
    except OrbitError as error:
        if not done:
            raise
        tell(f"{done + 1}: nothing was measured: {error}")
        return False
    if rows:
        _write(folder, rows)
    behind = sum(row.lag or 0 for row in rows)
    groups = len({row.group for row in rows})
    without = f", without those of {', '.join(missing)}" if missing else ""
    tell(f"{done + 1}: {behind:,} messages behind in {counted(groups, 'group')}{without}")
    for broker, reason in missing.items():
        tell(f"{broker} {reason}")
    return not missing


def _write(folder: Folder, rows: Sequence[LagRow]) -> None:
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema=_SCHEMA)
    day = str(pa.scalar(rows[0].at, pa.timestamp("ms")).as_py())[:10]
    temporary = f"{OWN_FOLDER}/{this_worker().host.pid}.parquet"
    with folder.create(temporary) as stream:
        pq.write_table(table, stream, compression="zstd")
    folder.move(temporary, f"date={day}/{rows[0].at}.parquet")


def _nothing(to: str) -> Report:
    return Report("lag", summary=f"no group has consumed anything: nothing was written to {to}")


def lag_history(spark: SparkSession, folder: str) -> DataFrame:
    """The table that :func:`record_lag` wrote, with the columns of :class:`LagRow`."""
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
            table = file.to_table(schema=_SCHEMA)
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
