"""From decoded messages to the rows that were asked for: values of bodies."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from orbitmq.message import columns as names
from orbitmq.spark.read.arrow_types import arrow_schema
from orbitmq.spark.read.values import ValueReader
from orbitmq.spark.schema import VALUE, VALUE_ERROR


class Shape:
    """The form of the rows of a read.

    Args:
        schema: what Spark asked for.

    Attributes:
        stored: the columns of it that come from messages as they are, for the decoder.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = arrow_schema(schema)
        by_name = {field.name.lower(): field for field in schema.fields}
        stored = [field for name, field in by_name.items() if name not in (VALUE, VALUE_ERROR)]
        self._reader = ValueReader(by_name[VALUE].dataType) if VALUE in by_name else None
        if self._reader is not None and names.BODY not in by_name:
            stored.append(StructField(names.BODY, BinaryType(), True))
        self.stored = StructType(stored)
        self._is_plain = self.stored == schema

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of ``batch``, which has the columns of :attr:`stored`, in the form that was asked for."""
        if self._is_plain:
            return batch
        columns = {
            name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        if self._reader is not None:
            bodies = columns[names.BODY].cast(pa.binary()).to_pylist()
            columns[VALUE], columns[VALUE_ERROR] = self._reader.read(bodies)
        return self._rows(columns)

    def _rows(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [columns[name.lower()] for name in self._schema.names], schema=self._schema
        )
