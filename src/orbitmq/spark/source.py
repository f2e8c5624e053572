"""The readers behind the format ``rocketmq``: one for batch queries, one for streams."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
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

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.system import SystemClock
from orbitmq.spark.arrow import BatchMaker
from orbitmq.spark.brokers import (
    Brokers,
    Patience,
    close_connections,
    max_offset,
    min_offset,
    offset_at,
)
from orbitmq.spark.errors import DataLossError, OffsetError, UnreachableError
from orbitmq.spark.offsets import Offsets, backlog, prorate
from orbitmq.spark.options import Position, ReadOptions, Start
from orbitmq.spark.partitions import QueueRange, plan
from orbitmq.spark.pull import RangeReader

log = logging.getLogger("orbitmq.spark")


class TaskPartition(InputPartition):  # type: ignore[misc]
    """The ranges that one task reads; pickled by Spark."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class Positions:
    """Turns places such as ``earliest`` into offsets.

    Args:
        options: topics and name servers.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.brokers = Brokers(options.name_servers, options.request_timeout_ms)

    def earliest(self) -> Offsets:
        """The first offset of every readable queue."""
        return Offsets(self.brokers.offsets(self._queues(), min_offset))

    def latest(self) -> Offsets:
        """The offset after the last message of every readable queue."""
        return Offsets(self.brokers.offsets(self._queues(), max_offset))

    def latest_where_possible(self) -> tuple[Offsets, UnreachableError | None]:
        """:meth:`latest` of the brokers that answer, and what is wrong with another one, if any."""
        found, missing = self.brokers.offsets_where_possible(self._queues(), max_offset)
        return Offsets(found), missing

    def resolve(self, place: Position, timestamp_ms: int, other: Start) -> Offsets:
        """The offsets of ``place``; queues that it does not name are at ``other``.

        Raises:
            OffsetError: it names a queue that does not exist.
            DataLossError: it lies before the first message that is left and ``failOnDataLoss`` is on.
        """
        if place is Start.TIMESTAMP:
            return Offsets(self.brokers.offsets(self._queues(), lambda queue: offset_at(queue, timestamp_ms)))
        if isinstance(place, Start):
            return self.earliest() if place is Start.EARLIEST else self.latest()
        first, last = self.earliest(), self.latest()
        unknown = [queue for queue in place if queue not in first]
        if unknown:
            raise OffsetError(
                f"offsets name {unknown[0]}, which is not a readable queue of {self.options.topics}"
            )
        early = [queue for queue, offset in place.items() if offset < first[queue]]
        if early and self.options.fail_on_data_loss:
            queue = early[0]
            raise DataLossError(
                f"offset {place[queue]} of {queue} is gone, the first one left is {first[queue]}"
            )
        others = first if other is Start.EARLIEST else last
        return Offsets({q: min(max(place.get(q, others[q]), first[q]), last[q]) for q in first})

    def with_patience(self, place: Position, timestamp_ms: int, other: Start) -> Offsets:
        """:meth:`resolve`, tried again while the cluster is away, until the offset time-out.

        Raises:
            UnreachableError: it was away for longer.
        """
        patience = Patience(self.options.offset_timeout_ms)
        while True:
            try:
                return self.resolve(place, timestamp_ms, other)
            except UnreachableError:
                if patience.is_over:
                    raise
                patience.pause()

    def ranges(self, start: Offsets, end: Offsets) -> list[QueueRange]:
        """What lies between two places; a queue that ``start`` does not know begins at its first message."""
        new = {queue for queue in backlog(start, end) if queue not in start}
        first: dict[MessageQueue, int] = {}
        if new:
            owners = {queue: at for queue, at in self._queues().items() if queue in new}
            first = self.brokers.offsets(owners, min_offset)
        return [
            QueueRange(queue, start.get(queue, min(first.get(queue, 0), end[queue])), end[queue])
            for queue in backlog(start, end)
        ]

    def tasks(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The tasks that read what lies between two places."""
        count = self.options.parallelism or len(os.sched_getaffinity(0))
        return [TaskPartition(ranges) for ranges in plan(self.ranges(start, end), count)]

    def _queues(self) -> dict[MessageQueue, str]:
        # Routes are asked for anew each time: queues are added and brokers move while a query runs.
        return self.brokers.readable(self.options.topics, refresh=True)


def read_task(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The messages of one task. Spark hands an empty partition when there is nothing to read."""
    if isinstance(partition, TaskPartition):
        brokers = Brokers(options.name_servers, options.request_timeout_ms)
        yield from RangeReader(brokers, options).batches(partition.ranges, BatchMaker(schema, options.tags))


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads what lies between two places of the topics, fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @override
    def partitions(self) -> Sequence[InputPartition]:
        options, positions = self._options, Positions(self._options)
        start = positions.with_patience(options.starting, options.starting_timestamp_ms, Start.EARLIEST)
        end = positions.with_patience(options.ending, options.ending_timestamp_ms, Start.LATEST)
        return positions.tasks(start, end)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads the topics as they grow. Progress is the query's checkpoint, never a consumer group's."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._away: Patience | None = None
        self._waiting_since: float | None = None

    @override
    def initialOffset(self) -> dict[str, Any]:
        options, positions = self._options, Positions(self._options)
        place = positions.with_patience(options.starting, options.starting_timestamp_ms, Start.EARLIEST)
        return place.to_json()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.min_rows is not None:
            return ReadMinRows(self._options.min_rows)
        return ReadAllAvailable()

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = Positions(self._options).with_patience(Start.LATEST, 0, Start.LATEST)

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. An exception here kills the query, so a cluster that is away is waited
        for, with ``start`` as the answer, until the offset time-out has passed without any success.
        """
        begin = Offsets.from_json(start)
        try:
            end = self._end(begin)
            if isinstance(limit, ReadMaxRows):
                end = prorate(self._with_first(begin, end), end, limit.max_rows)
        except OrbitError as error:
            # Also an unknown topic: a name server that just started does not know any yet.
            self._wait_or_raise(error)
            return begin.to_json()
        if not isinstance(limit, ReadAllAvailable) and self._is_too_little(begin, end):
            return begin.to_json()
        self._waiting_since = None
        return end.to_json()

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return Positions(self._options).tasks(Offsets.from_json(start), Offsets.from_json(end))

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is the only progress."""

    @override
    def stop(self) -> None:
        close_connections()

    def _end(self, begin: Offsets) -> Offsets:
        """Where the queues end now, never before ``begin``; those of a broker that is away stay there."""
        if self._target is not None:
            # Queues that came after the query began are not part of it.
            return self._target.no_less_than(begin)
        found, missing = Positions(self._options).latest_where_possible()
        if missing is None:
            self._away = None
        else:
            self._wait_or_raise(missing)
        self._latest = found.no_less_than(begin)
        return self._latest

    def _wait_or_raise(self, error: OrbitError) -> None:
        """Wait a little, since Spark asks again at once; or raise what is wrong for too long already."""
        self._away = self._away or Patience(self._options.offset_timeout_ms)
        if self._away.is_over:
            raise error
        log.warning("not all latest offsets are known, those queues wait: %s", error)
        self._away.pause()

    def _with_first(self, begin: Offsets, end: Offsets) -> Offsets:
        """``begin`` with the queues that are new in ``end``, at their first message."""
        if all(queue in begin for queue in end):
            return begin
        positions = Positions(self._options)
        return Offsets({r.queue: r.low for r in positions.ranges(begin, end)}).no_less_than(begin)

    def _is_too_little(self, begin: Offsets, end: Offsets) -> bool:
        """Whether to wait: fewer rows than ``minRowsPerTrigger`` and ``maxTriggerDelay`` not over."""
        rows = sum(backlog(begin, end).values())
        if self._options.min_rows is None or self._target is not None or not rows:
            return False
        now = SystemClock().monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            rows < self._options.min_rows and (now - self._waiting_since) * 1000 < self._options.max_delay_ms
        )
