"""The stream reader of the format ``rocketmq`` for Spark 4.2 and later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark.cluster.connections import close_connections
from orbitmq.spark.errors import plainly
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read.reading import read_task
from orbitmq.spark.read.stream import Stream

# A batch without a limit of rows is limited by maxBytesPerTrigger only.
NO_ROW_LIMIT = (1 << 63) - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A :class:`~orbitmq.spark.read.stream.Stream` behind Spark's interface of stream readers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._stream = Stream(options)

    @override
    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.min_rows is not None:
            return ReadMinRows(self._options.min_rows)
        # Spark replaces this limit by ReadAllAvailable if the batch has to read everything (trigger once).
        return ReadMaxRows(NO_ROW_LIMIT)

    @override
    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.prepare_available_now()

    @override
    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._stream.latest(
            start,
            everything=isinstance(limit, ReadAllAvailable),
            max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._stream.report()

    @override
    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._stream.tasks(start, end)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark does not call this for the last batch of a run; see :meth:`Stream.latest`."""

    @override
    def stop(self) -> None:
        close_connections()
