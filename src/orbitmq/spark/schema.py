"""The columns of a topic in Spark. Without pyarrow, since Spark asks for the schema before it reads
anything.
"""

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
# The column with the reason why a body could not be decompressed; exists only if onBadMessage is not fail.
ERROR = "error"
# Columns that exist only if an option requests them.
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
        error: whether a column holds the reason why a body could not be read.
        properties: ``none``; ``map`` adds a column ``properties``; ``raw`` adds it with the stored bytes.
            Naming the column also requests the map.
        body: ``string`` makes the body a string.

    ``keys`` holds the key words joined by one space; ``message_id`` is the sender's unique key, or the offset
    id if there is none; ``body_size`` is the size of the stored body; times have millisecond precision.

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
        SchemaError: the option columns names an unknown column, or a column twice.
    """
    return message_schema(
        options.columns,
        error=options.on_bad_message != "fail",
        properties=options.properties,
        body=options.value_format,
    )


def check_schema(schema: StructType, *, error: bool = False) -> None:
    """Check the user's schema: a subset of the columns, in any order, in which ``body`` may be a string.

    Args:
        error: as in :func:`message_schema`.

    Raises:
        SchemaError: a column is unknown, or has another type than the message's field.
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
