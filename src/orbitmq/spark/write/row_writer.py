"""Writing a stream with PySpark 4.0, which hands over rows: they become the batches that the writer takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import MapType, StructType
from typing_extensions import override

from orbitmq.spark.read.arrow_types import arrow_schema

ROWS_PER_BATCH = 1_000


def record_batches(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """``rows`` in their order, as batches of up to a thousand."""
    kinds = arrow_schema(schema)
    maps = [isinstance(field.dataType, MapType) for field in schema.fields]
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_PER_BATCH)):
        columns = [
            pa.array([_value(row[i], is_map) for row in chunk], kinds.field(i).type)
            for i, is_map in enumerate(maps)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=kinds)


def _value(value: Any, is_map: bool) -> Any:
    return list(value.items()) if is_map and value is not None else value


class RowStreamWriter(DataSourceStreamWriter):  # type: ignore[misc]
    """A writer of rows in front of one of Arrow batches.

    Args:
        inner: does the work.
        schema: of the rows.
    """

    def __init__(self, inner: Any, schema: StructType) -> None:
        self._inner = inner
        self._schema = schema

    @override
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._inner.write(record_batches(iterator, self._schema))

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.commit(messages, batchId)

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.abort(messages, batchId)
