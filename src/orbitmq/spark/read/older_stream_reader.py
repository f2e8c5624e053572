"""The stream reader for Spark 4.0 and 4.1, which request the latest offset without passing a start offset."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark.cluster.connections import close_connections
from orbitmq.spark.errors import plainly
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read.reading import read_task
from orbitmq.spark.read.stream import Stream

log = logging.getLogger("orbitmq.spark")


class OlderStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """A :class:`~orbitmq.spark.read.stream.Stream` behind the interface of these versions.

    The end of the last batch is taken from the last planning of tasks: a restarted query first plans an empty
    batch at its last offsets.

    In these versions an AvailableNow run is one batch, and a reader cannot detect such a run. Therefore a
    batch has no limit unless the options set one; with a limit, such a run ends after its first batch.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._stream = Stream(options, may_end=True)
        self._at: dict[str, Any] | None = None
        if options.has_limits:
            log.warning(
                "before Spark 4.2 a run with trigger(availableNow=True) ends after its first batch, which "
                "the options limit: start it again until nothing is left"
            )

    @override
    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    @override
    @plainly
    def latestOffset(self) -> dict[str, Any]:
        if self._at is None:
            self._at = self.initialOffset()
        return self._stream.latest(
            self._at, everything=not self._options.has_limits, max_rows=self._options.max_rows
        )

    @override
    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._at = end
        return self._stream.tasks(start, end)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: see :meth:`Stream.latest`."""

    @override
    def stop(self) -> None:
        close_connections()
