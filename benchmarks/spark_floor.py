"""The format ``rocketmq_floor``: record batches from memory, and a writer that discards them.

The cost of a query with this format is Spark's own part, independent of reader and writer. The batches are
the first ones of each task from the topic, repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark.datasource import DefaultSource
from orbitmq.spark.options import read_options
from orbitmq.spark.read.reading import TaskPartition
from orbitmq.spark.read.source import BatchReader

FORMAT = "rocketmq_floor"
# Number of different batches: more than fit into a processor's cache.
KEPT_BATCHES = 16


class FloorSource(DefaultSource):
    """The format's data source, with the options of ``rocketmq``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @override
    def reader(self, schema: StructType) -> BatchReader:
        return RepeatingReader(read_options(self._given), schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DiscardingWriter()


class RepeatingReader(BatchReader):
    """Reads the begin of each task and repeats it."""

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        left = sum(item.rows for item in partition.ranges)
        kept = list(islice(super().read(partition), KEPT_BATCHES))
        for batch in cycle(kept):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


class DiscardingWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Discards all rows."""

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
