"""The job ``lag``: how far each consumer group is behind, written down as a table. Writing needs no Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from orbitmq.admin import Admin
from orbitmq.errors import BrokerError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_names import OWN_FOLDER
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Report, Tell, counted, silent
from orbitmq.spark.write.ledger import is_of_writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


class LagRow(NamedTuple):
    """A queue of a group at a time (ms since 1970); ``lag`` in messages, ``lag_s`` in seconds."""

    at: int
    group: str
    topic: str
    broker: str
    queue_id: int
    committed: int
    end: int
    in_flight: int
    lag: int
    lag_s: float


async def _measured(name_servers: str, groups: Sequence[str]) -> list[LagRow]:
    now = this_worker().clock.now_ms()
    rows: list[LagRow] = []
    async with Admin(name_servers) as admin:
        for group in groups or [name for name in await admin.groups.names() if not is_of_writers(name)]:
            try:
                queues = await admin.groups.lag(group)
            except BrokerError:
                if groups:
                    raise
                continue  # deleted since it was listed
            rows += [
                LagRow(now, group, one.queue.topic, one.queue.broker_name, one.queue.queue_id,
                       one.committed, one.end, one.in_flight, one.lag, one.lag_s)
                for one in queues
            ]  # fmt: skip
    return rows


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

    Args:
        to: the folder of the table, ``date=<day>/<time>.parquet``.
        times: ``None``: until interrupted.

    Raises:
        JobError: the folder cannot be written to.
        IncompleteError, BrokerError, TransportError, NameServerError: a server refuses or does not answer.
    """
    folder = Folder(to)
    folder.prepare()
    worker = this_worker()
    due = worker.clock.monotonic()
    done = 0
    try:
        while times is None or done < times:
            worker.pause(max(0.0, due - worker.clock.monotonic()))
            due = max(due, worker.clock.monotonic() - every_s) + every_s
            rows = asyncio.run(_measured(name_servers, groups))
            if rows:
                _write(folder, rows)
            done += 1
            behind = sum(row.lag for row in rows)
            tell(f"{done}: {behind:,} messages behind in {counted(len({r.group for r in rows}), 'group')}")
    except KeyboardInterrupt:
        pass
    return lag_report(to) if folder.has_tables() else _nothing(to)


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


def summary_of(rows: Iterable[tuple[int, str, str, int, int, float]]) -> list[Behind]:
    """By group and topic, out of (at, group, topic, committed, lag, lag_s) of each queue. Pure."""
    at_times: dict[tuple[str, str], dict[int, tuple[int, int, float]]] = {}
    for at, group, topic, committed, lag, lag_s in rows:
        times = at_times.setdefault((group, topic), {})
        before = times.get(at, (0, 0, 0.0))
        times[at] = (before[0] + committed, before[1] + lag, max(before[2], lag_s))
    found = []
    for (group, topic), times in sorted(at_times.items()):
        first, last = times[min(times)], times[max(times)]
        found.append(
            Behind(
                group, topic, last[1], last[2], max(lag for _, lag, _ in times.values()),
                max(seconds for _, _, seconds in times.values()), last[0] - first[0],
            )
        )  # fmt: skip
    return found


def lag_report(folder: str) -> Report:
    """A history in short: of each group and topic the last and the largest lag, and how far it moved.

    Raises:
        JobError: there is none.
    """
    place = Folder(folder)
    if not place.has_tables():
        raise JobError(f"{folder} holds no history of lags")
    columns = ["at", "group", "topic", "committed", "lag", "lag_s"]
    try:
        table = dataset.dataset(
            place.location, format="parquet", schema=_SCHEMA, ignore_prefixes=["_", "."]
        ).to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{folder} cannot be read: {' '.join(str(error).split())[:200]}") from error
    values = [table.column("at").cast(pa.int64()).to_pylist()]
    values += [table.column(name).to_pylist() for name in columns[1:]]
    behind = summary_of(zip(*values, strict=True))
    report = Report("lag", headings=("group", "topic", "lag", "seconds", "most", "most seconds", "consumed"))
    report.rows = [tuple(round(v, 1) if isinstance(v, float) else v for v in one) for one in behind]
    report.facts = {"measured": len(set(values[0])), "folder": folder}
    report.summary = (
        f"{counted(sum(one.now for one in behind), 'message')} behind in "
        f"{counted(len({one.group for one in behind}), 'group')}; measured "
        f"{counted(len(set(values[0])), 'time')}, in {folder}"
    )
    return report
