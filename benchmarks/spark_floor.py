"""The format ``rocketmq_floor``: record batches from memory, and a writer that throws them away.

What a query over it costs is Spark's own part, whatever reader and writer do. The batches are the first ones
of each task, from the topic, over and over.
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
# So many differ: more than a processor keeps in its cache.
KEPT_BATCHES = 16


class FloorSource(DefaultSource):
    """Takes the options of ``rocketmq``."""

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
    """Reads the beginning of each task and repeats it."""

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
    """Takes all rows and does nothing with them."""

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
