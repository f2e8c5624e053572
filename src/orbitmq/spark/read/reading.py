"""Creates tasks from ranges, and reads the rows of a task; for batch reads and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from orbitmq.message.numbers import INT32, whole_number
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.garbage import spare_modules
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.read.partitions import CORES_VARIABLE, TaskLimits, plan, task_count
from orbitmq.spark.read.positions import Positions


class TaskPartition(InputPartition):  # type: ignore[misc]
    """The ranges of one task; pickled by Spark.

    Attributes:
        ranges: ranges of queues, in the order of the queues.
        routes: the planner's routes of the queues, by topic, so that a task need not ask a name server.
    """

    def __init__(self, ranges: Sequence[QueueRange], routes: Mapping[str, QueueAddresses]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.routes = dict(routes)


def cluster_cores() -> int:
    """The number of tasks that run at a time, as recorded by :func:`orbitmq.spark.session.session`; without a
    record, the number of this machine's processors.
    """
    return whole_number(os.environ.get(CORES_VARIABLE, ""), INT32) or this_worker().host.cores


def tasks(positions: Positions, ranges: Sequence[QueueRange], count: int | None) -> list[InputPartition]:
    """The tasks that read ``ranges``.

    Args:
        count: the number of tasks; ``None`` derives it from the size of the ranges.
    """
    positions.check_filter(ranges)
    planned = plan(ranges, count or tasks_for(positions, ranges))
    return [TaskPartition(some, positions.brokers.routes_of(item.queue for item in some)) for some in planned]


def tasks_for(positions: Positions, ranges: Sequence[QueueRange]) -> int:
    """The number of tasks for ``ranges``."""
    options = positions.options
    limits = TaskLimits(options.parallelism, options.max_rows_per_task, options.max_bytes_per_task)
    rows = sum(item.rows for item in ranges)
    return task_count(rows, cluster_cores(), limits, positions.bytes_of(ranges))


def read_task(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The messages of one task. If there is nothing to read, Spark passes an empty partition."""
    if not isinstance(partition, TaskPartition):
        return
    maker = BatchMaker(schema, options.tags, options.on_bad_message)
    brokers = Brokers(options.name_servers, options.request_timeout_ms, partition.routes, options.identity)
    reader = RangeReader(brokers, options)
    try:
        yield from reader.batches(partition.ranges, maker)
    finally:
        spare_modules()
