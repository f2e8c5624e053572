"""Writing a stream with PySpark 4.0, which passes rows: they are converted to Arrow batches for the
writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import DataType, MapType, StructType, TimestampType
from typing_extensions import override

from orbitmq.spark.arrow_types import arrow_schema

ROWS_PER_BATCH = 1_000


def record_batches(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """``rows`` in their order, as batches of up to a thousand."""
    kinds = arrow_schema(schema)
    forms = [_FORMS.get(type(field.dataType)) for field in schema.fields]
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_PER_BATCH)):
        columns = [
            pa.array([_value(row[i], form) for row in chunk], kinds.field(i).type)
            for i, form in enumerate(forms)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=kinds)


def _with_zone(local: Any) -> Any:
    """Add the time zone: Spark's times are in the machine's zone, and Arrow would take them as UTC."""
    return local.astimezone()


# Types that Arrow would convert otherwise than Spark.
_FORMS: dict[type[DataType], Callable[[Any], Any]] = {
    MapType: lambda pairs: list(pairs.items()),
    TimestampType: _with_zone,
}


def _value(value: Any, form: Callable[[Any], Any] | None) -> Any:
    return value if form is None or value is None else form(value)


class RowStreamWriter(DataSourceStreamWriter):  # type: ignore[misc]
    """A writer of rows, which converts them for a writer of Arrow batches.

    Args:
        inner: the writer of Arrow batches.
        schema: the schema of the rows.
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
