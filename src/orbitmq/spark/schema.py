"""The columns of a topic as Spark knows them. Without pyarrow: Spark asks before anything is read."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.message import columns as names
from orbitmq.spark.errors import SchemaError
from orbitmq.spark.options import ReadOptions

BROKER = "broker"
# Why a body could not be decompressed; only with another onBadMessage than fail.
ERROR = "error"
# Columns that are there only when an option asks for them.
_ON_REQUEST = (names.BODY_SIZE, names.PROPERTIES)
_SOMETIMES_NULL = (names.TAGS, names.KEYS, ERROR)

_TYPES: dict[str, tuple[DataType, ...]] = {
    names.TOPIC: (StringType(),),
    names.QUEUE_ID: (IntegerType(),),
    names.QUEUE_OFFSET: (LongType(),),
    BROKER: (StringType(),),
    names.TAGS: (StringType(),),
    names.KEYS: (StringType(),),
    names.BODY: (BinaryType(), StringType()),
    names.BODY_SIZE: (IntegerType(),),
    names.PROPERTIES: (MapType(StringType(), StringType()), BinaryType()),
    names.BORN_TIMESTAMP: (TimestampType(),),
    names.STORE_TIMESTAMP: (TimestampType(),),
    names.MESSAGE_ID: (StringType(),),
    names.RECONSUME_TIMES: (IntegerType(),),
    ERROR: (StringType(),),
}


def column_names() -> tuple[str, ...]:
    """Every column that a read may have."""
    return tuple(_TYPES)


def message_schema(
    columns: Sequence[str] = (),
    *,
    error: bool = False,
    properties: str = "none",
    body: str = "binary",
) -> StructType:
    """The schema of a topic: the usual columns, or the named ones in their order.

    Args:
        error: there is a column that says why a body could not be read.
        properties: ``none``; ``map``: there is a column ``properties`` too; ``raw``: as its stored bytes. To
            name the column is to ask for the map.
        body: ``string``: the body is a string.

    ``keys`` holds the key words joined by one space; ``message_id`` is the sender's unique key, or the offset
    id when there is none; ``body_size`` is that of the stored body; the times have milliseconds.

    Raises:
        SchemaError: a column is unknown or named twice.
    """
    types = {name: kinds[0] for name, kinds in _TYPES.items()}
    if properties == "raw":
        types[names.PROPERTIES] = BinaryType()
    if body == "string":
        types[names.BODY] = StringType()
    if not error:
        del types[ERROR]
    usual = [name for name in types if name not in _ON_REQUEST]
    if properties != "none":
        usual.append(names.PROPERTIES)
    wanted = [name.lower() for name in columns] or usual
    unknown = [name for name in wanted if name not in types]
    if unknown or len(set(wanted)) < len(wanted):
        raise SchemaError(f"columns {wanted}: unknown {unknown} or repeated; known: {', '.join(types)}")
    return StructType([StructField(name, types[name], True) for name in wanted])


def schema_of(options: ReadOptions) -> StructType:
    """The schema of a read.

    Raises:
        SchemaError: the option columns names an unknown column, or one twice.
    """
    return message_schema(
        options.columns,
        error=options.on_bad_message != "fail",
        properties=options.properties,
        body=options.value_format,
    )


def check_schema(schema: StructType, *, error: bool = False) -> None:
    """Accept a schema that the user gave: a subset of the columns, in any order, ``body`` also as string.

    Args:
        error: as in :func:`message_schema`.

    Raises:
        SchemaError: a column is unknown or has another type than messages have.
    """
    message_schema(schema.fieldNames(), error=error)
    for field in schema.fields:
        name = field.name.lower()
        allowed = _TYPES[name]
        if not any(_same_type(field.dataType, kind) for kind in allowed):
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            raise SchemaError(
                f"column {field.name} has type {field.dataType.simpleString()}, must be {wanted}"
            )
        sometimes_null = name in _SOMETIMES_NULL or (name == names.BODY and error)
        if not field.nullable and sometimes_null:
            raise SchemaError(f"column {field.name} is NOT NULL, but there are rows without {field.name}")


def _same_type(one: DataType, other: DataType) -> bool:
    if isinstance(one, MapType) and isinstance(other, MapType):
        return bool(one.keyType == other.keyType and one.valueType == other.valueType)
    return bool(one == other)
