"""The columns of messages as Arrow types, by Spark's documented mapping."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from orbitmq.spark.errors import SchemaError

_PLAIN: dict[type[DataType], Any] = {
    BinaryType: pa.binary(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """``schema`` as an Arrow schema.

    Raises:
        SchemaError: a message cannot hold a type.
    """
    return pa.schema([pa.field(f.name, _arrow_type(f.dataType), f.nullable) for f in schema.fields])


def _arrow_type(kind: DataType) -> Any:
    """The Arrow type of a Spark type. Errors as with :func:`arrow_schema`."""
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        key = pa.field("key", _arrow_type(kind.keyType), False)
        return pa.map_(key, pa.field("value", _arrow_type(kind.valueType), kind.valueContainsNull))
    raise SchemaError(f"type {kind.simpleString()} cannot be read from messages")
