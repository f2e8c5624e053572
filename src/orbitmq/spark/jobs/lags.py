"""The job ``lag``: how far each consumer group is behind, written down as a table. Writing needs no Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.admin import Admin, IncompleteError
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.jobs.archive_names import OWN_FOLDER
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.lag_table import SCHEMA, LagRow, lag_report
from orbitmq.spark.jobs.report import Report, Tell, counted, silent
from orbitmq.spark.write.ledger import is_of_writers

if TYPE_CHECKING:
    from orbitmq.admin.groups import QueueLag

T = TypeVar("T")
# Groups that are asked for at the same time: with one that waits for a broker in vain the others go on.
_AT_ONCE = 16


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
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema=SCHEMA)
    day = str(pa.scalar(rows[0].at, pa.timestamp("ms")).as_py())[:10]
    temporary = f"{OWN_FOLDER}/{this_worker().host.pid}.parquet"
    with folder.create(temporary) as stream:
        pq.write_table(table, stream, compression="zstd")
    folder.move(temporary, f"date={day}/{rows[0].at}.parquet")


def _nothing(to: str) -> Report:
    return Report("lag", summary=f"no group has consumed anything: nothing was written to {to}")
