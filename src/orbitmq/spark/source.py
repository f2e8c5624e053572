"""The readers behind the format ``rocketmq``: one for batch queries, one for streams."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.arrow import BatchMaker
from orbitmq.spark.batch_end import Shrunk, batch_ranges, next_end, shrunk_queues
from orbitmq.spark.brokers import Brokers, Patience
from orbitmq.spark.connections import close_connections
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.offsets import Offsets, backlog, prorate
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.partitions import CORES_VARIABLE, QueueRange, TaskLimits, plan, task_count
from orbitmq.spark.positions import Positions
from orbitmq.spark.progress import Progress
from orbitmq.spark.pull import RangeReader

log = logging.getLogger("orbitmq.spark")

SILENCE_WARNING_SECONDS = 60.0
# What a batch may hold is then bounded by maxBytesPerTrigger only.
NO_ROW_LIMIT = (1 << 63) - 1


class TaskPartition(InputPartition):  # type: ignore[misc]
    """The ranges that one task reads; pickled by Spark."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def cluster_cores() -> int:
    """How many tasks run at a time: what :func:`orbitmq.spark.session.session` found out, else this machine's
    processors."""
    told = os.environ.get(CORES_VARIABLE, "")
    return int(told) if told.isdigit() and int(told) else this_worker().host.cores


def tasks(positions: Positions, start: Offsets, end: Offsets) -> list[InputPartition]:
    """The tasks that read what lies between two places: as many as ``end`` says, so a replay is the same."""
    ranges = list(batch_ranges(start, end, positions.unknown_firsts(start, end)))
    count = end.tasks or tasks_for(positions, ranges)
    return [TaskPartition(planned) for planned in plan(ranges, count)]


def tasks_for(positions: Positions, ranges: Sequence[QueueRange]) -> int:
    """In how many tasks ``ranges`` are read."""
    options = positions.options
    limits = TaskLimits(options.parallelism, options.max_rows_per_task, options.max_bytes_per_task)
    rows = sum(item.rows for item in ranges)
    return task_count(rows, cluster_cores(), limits, positions.bytes_of(ranges))


def read_task(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The messages of one task. Spark hands an empty partition when there is nothing to read."""
    if isinstance(partition, TaskPartition):
        brokers = Brokers(options.name_servers, options.request_timeout_ms)
        maker = BatchMaker(schema, options.tags, options.on_bad_message)
        yield from RangeReader(brokers, options).batches(partition.ranges, maker)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads what lies between two places of the topics, fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @override
    def partitions(self) -> Sequence[InputPartition]:
        positions = Positions(self._options)
        start = positions.start()
        return tasks(positions, start, positions.checked_ends(start, positions.end()))

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads the topics as they grow. It resumes from the checkpoint; a group is only told."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._positions = Positions(options)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._progress = Progress(self._positions.brokers, options.group_id)
        self._away = Patience(options.offset_timeout_ms)
        self._warned = -SILENCE_WARNING_SECONDS
        self._waiting_since: float | None = None

    @override
    def initialOffset(self) -> dict[str, Any]:
        return self._positions.start().as_first().to_json()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.min_rows is not None:
            return ReadMinRows(self._options.min_rows)
        # Not ReadAllAvailable: Spark asks so when a batch must hold everything (trigger once).
        return ReadMaxRows(NO_ROW_LIMIT)

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._positions.latest_patiently()

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. An exception here kills the query, so a cluster that is away is waited
        for, with ``start`` as the answer, until nothing has answered for the offset time-out.
        """
        begin = Offsets.from_json(start)
        if not begin.is_first:
            # Spark asks when the batch that ended here is done, the last one of an AvailableNow run too.
            self._progress.publish(begin)
        try:
            end = self._end(begin)
        except (UnreachableError, TopicNotFoundError, BrokerError) as error:
            # Also an unknown topic: a name server that just started does not know any yet.
            if self._away.is_over:
                raise
            log.warning("the latest offsets are not known, the query waits: %s", error)
            self._away.pause()
            return begin.to_json()
        self._away.succeeded()
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, end, limit)
        rows = sum(backlog(begin, end).values())
        if dict(end) == dict(begin) or (
            not isinstance(limit, ReadAllAvailable) and self._is_too_little(rows)
        ):
            return begin.to_json()
        self._waiting_since = None
        count = tasks_for(self._positions, list(batch_ranges(begin, end)))
        return Offsets(end, begins=end.begins, tasks=count).to_json()

    def _limited(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> Offsets:
        """An end with at most as many rows and bytes as the options allow, and one row at least."""
        rows = sum(backlog(begin, end).values())
        most = min(rows, limit.max_rows) if isinstance(limit, ReadMaxRows) else rows
        size = self._positions.bytes_of(list(batch_ranges(begin, end)))
        if size > self._options.max_bytes:
            most = min(most, max(1, rows * self._options.max_bytes // size))
        return prorate(begin, end, most)

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return tasks(self._positions, Offsets.from_json(start), Offsets.from_json(end))

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark does not call this for the last batch of a run; see :meth:`latestOffset`."""

    @override
    def stop(self) -> None:
        close_connections()

    def _end(self, begin: Offsets) -> Offsets:
        """Where the queues end now; those of a broker that is away stay where they are."""
        latest: Mapping[MessageQueue, int]
        if self._target is not None:
            # Queues that came after the query began are not part of it.
            latest = self._target
        else:
            latest, failures = self._positions.latest_where_possible()
            self._tell_silent(failures)
            if failures and not latest:
                raise next(iter(failures.values()))
            self._latest = Offsets({**begin, **latest})
        given_up = {
            lost.queue: lost.ends_at for lost in shrunk_queues(begin, latest) if self._has_lost_its_end(lost)
        }
        first = self._positions.first_of({queue for queue in latest if queue not in begin})
        return next_end(begin, latest, first, given_up)

    def _has_lost_its_end(self, shrunk: Shrunk) -> bool:
        if not self._positions.is_told_by_master(shrunk.queue):
            return False  # a slave that is behind
        self._positions.lost(
            f"{shrunk.queue} ends at {shrunk.ends_at}, but was read up to {shrunk.read_to}: "
            f"its topic was made again, or its broker came back without its last messages"
        )
        return True

    def _tell_silent(self, failures: Mapping[str, UnreachableError]) -> None:
        """One warning a minute about brokers whose queues wait."""
        now = this_worker().clock.monotonic()
        if failures and now - self._warned >= SILENCE_WARNING_SECONDS:
            self._warned = now
            log.warning(
                "the queues of %d brokers wait, the others go on: %s",
                len(failures), "; ".join(str(error) for error in failures.values()),
            )  # fmt: skip

    def _is_too_little(self, rows: int) -> bool:
        """Whether to wait: fewer rows than ``minRowsPerTrigger`` and ``maxTriggerDelay`` not over."""
        if self._options.min_rows is None or self._target is not None or not rows:
            return False
        now = this_worker().clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            rows < self._options.min_rows and (now - self._waiting_since) * 1000 < self._options.max_delay_ms
        )
