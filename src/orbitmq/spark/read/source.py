"""The reader of batch queries for the format ``rocketmq``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark.errors import plainly
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read.batch_end import batch_ranges
from orbitmq.spark.read.positions import Positions
from orbitmq.spark.read.pushdown import PushedFilters
from orbitmq.spark.read.reading import read_task, tasks


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads the messages between two places of the topics, which are fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = PushedFilters(tags=not options.is_filtered)

    @override
    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        positions = Positions(self._options)
        start = positions.start()
        end = positions.checked_ends(start, positions.end())
        ranges = list(self._pushed.ranges(batch_ranges(start, end, positions.unknown_firsts(start, end))))
        times = self._pushed.times
        narrowed = positions.narrowed(ranges, times.low, times.high)
        return tasks(positions, narrowed, None)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        if self._pushed.tags is not None:
            options = replace(options, tags=self._pushed.tags)
        for batch in read_task(partition, options, self._schema):
            yield self._pushed.rows(batch)


class FilteringBatchReader(BatchReader):
    """A :class:`BatchReader` that takes over filters. Spark refuses such a reader while its setting forbids
    filters.
    """

    @override
    def pushFilters(self, filters: Iterable[Any]) -> Iterator[Any]:
        """The filters that Spark still has to evaluate."""
        for entry in filters:
            attribute: tuple[str, ...] = getattr(entry, "attribute", ())
            taken = len(attribute) == 1 and self._pushed.take(
                type(entry).__name__, attribute[0], getattr(entry, "value", None)
            )
            if not taken:
                yield entry
