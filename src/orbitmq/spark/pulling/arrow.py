"""Column buffers as Arrow record batches in exactly the schema that Spark expects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, StructType

from orbitmq.message import columns as names
from orbitmq.message.column_decoder import ColumnDecoder
from orbitmq.message.columns import Columns, Pairs, Text
from orbitmq.runtime.seam import Buffer
from orbitmq.spark.arrow_types import arrow_schema
from orbitmq.spark.schema import BROKER, ERROR, check_schema


class BatchMaker:
    """Makes the record batches of one schema.

    Args:
        schema: the schema that Spark requests; see :func:`check_schema`.
        tags: keep only messages with one of these tags, as in ``"a || b"``. The broker compares only hash
            codes, so the tags are compared again here.
        bad_body: the treatment of a body that cannot be decompressed (see :mod:`orbitmq.message.columns`).
    """

    def __init__(self, schema: StructType, tags: str = "*", bad_body: str = names.FAIL) -> None:
        check_schema(schema, error=bad_body != names.FAIL)
        self._schema = schema
        self._bad_body = bad_body
        self._tags = None if tags == "*" else pa.array([t.strip() for t in tags.split("||")], pa.string())
        self._broker = ""
        self._brokers = pa.array([], pa.string())

    @cached_property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._schema)

    @cached_property
    def _decoder(self) -> ColumnDecoder:
        wanted = {_decoded(f.name.lower(), f.dataType) for f in self._schema.fields} - {BROKER}
        if ERROR in wanted:
            wanted = wanted - {ERROR} | {names.BODY}
        if self._tags is not None:
            wanted = wanted | {names.TAGS}
        # Arrow's pool reuses the memory of earlier batches, without clearing it.
        return ColumnDecoder(wanted, self._bad_body, allocate=pa.allocate_buffer)

    def batch(self, pieces: Sequence[Buffer], runs: Sequence[tuple[str, int]]) -> pa.RecordBatch:
        """One record batch with all records in ``pieces``.

        Args:
            pieces: complete records, in the order of their arrival.
            runs: the brokers of the records: name and number of consecutive records.

        Raises:
            MessageFormatError: the records are damaged.
        """
        columns = self._decoder.decode(pieces)
        arrays = [self._array(field, columns, runs) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._tags is None:
            return batch
        # This import takes 50 ms, so it happens only if it is needed.
        import pyarrow.compute as pc

        tags = _text(pa.string(), columns.rows, columns.texts[names.TAGS])
        return batch.filter(pc.is_in(tags, value_set=self._tags))

    def _array(self, field: pa.Field, columns: Columns, runs: Sequence[tuple[str, int]]) -> pa.Array:
        name = field.name.lower()
        if name == BROKER:
            return self._broker_names(field.type, runs)
        if name == ERROR:
            return pa.array([columns.errors.get(row) for row in range(columns.rows)], field.type)
        if name == names.PROPERTIES and columns.properties is None:
            return _text(field.type, columns.rows, columns.texts[names.PROPERTY_BLOCK])
        if name == names.PROPERTIES:
            assert columns.properties is not None
            return _map(field.type, columns.rows, columns.properties)
        if name in columns.texts:
            return _text(field.type, columns.rows, columns.texts[name])
        values = pa.py_buffer(columns.fixed[name].values)
        if not pa.types.is_timestamp(field.type):
            return pa.Array.from_buffers(field.type, columns.rows, [None, values])
        times = pa.Array.from_buffers(pa.timestamp("ms", "UTC"), columns.rows, [None, values])
        # An unsafe cast: a sender may set any time, and an absurd one must not stop the query.
        return times.cast(field.type, safe=False)

    def _broker_names(self, kind: Any, runs: Sequence[tuple[str, int]]) -> pa.Array:
        if len(runs) != 1:
            pieces = [pa.repeat(pa.scalar(broker, kind), rows) for broker, rows in runs]
            return pa.concat_arrays(pieces) if pieces else pa.array([], kind)
        # The usual case: the column is kept for the next batch, which needs one of the same or a similar
        # length.
        broker, rows = runs[0]
        if broker != self._broker or rows > len(self._brokers):
            self._broker, self._brokers = broker, pa.repeat(pa.scalar(broker, kind), rows + rows // 8)
        return self._brokers.slice(0, rows)


def _decoded(name: str, kind: DataType) -> str:
    """The decoder's column for a column of the schema."""
    raw = name == names.PROPERTIES and isinstance(kind, BinaryType)
    return names.PROPERTY_BLOCK if raw else name


def _text(kind: Any, rows: int, text: Text) -> pa.Array:
    validity = None if text.validity is None else pa.py_buffer(text.validity)
    data = pa.py_buffer(text.data).slice(0, text.size_bytes)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(text.offsets), data])


def _map(kind: Any, rows: int, pairs: Pairs) -> pa.Array:
    entries = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]),
        pairs.size,
        [None],
        children=[
            _text(kind.key_type, pairs.size, pairs.names),
            _text(kind.item_type, pairs.size, pairs.values),
        ],
    )
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(pairs.offsets)], children=[entries])
