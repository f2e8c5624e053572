"""Rows of a data frame as messages, each with an id of its own and a digest that a replay gives again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from orbitmq.message import property_names
from orbitmq.message.model import Message
from orbitmq.spark.errors import SchemaError

# The whole id, readable: query id, batch id, partition, row, digest of the row.
SPARK_ID = "ORBITMQ_SPARK_ID"
MAX_ROWS_PER_TASK = 1 << 32

_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "body": (BinaryType(), StringType()),
    "tags": (StringType(),),
    "keys": (StringType(), ArrayType(StringType())),
    "properties": (MapType(StringType(), StringType()),),
}
# A batch of messages is stored at once, so the broker's timers cannot take single ones out of it.
_NOT_IN_A_BATCH = (property_names.DELAY, *sorted(property_names.TIMER_PROPERTIES))


def check_columns(schema: StructType, topic: str | None) -> None:
    """Accept the schema of a data frame to write.

    Raises:
        SchemaError: a column is unknown, missing or of a wrong type.
    """
    for field in schema.fields:
        allowed = _COLUMNS.get(field.name.lower())
        if allowed is None:
            raise SchemaError(f"column {field.name!r} cannot be written; known: {', '.join(_COLUMNS)}")
        if type(field.dataType) not in {type(kind) for kind in allowed}:
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            raise SchemaError(
                f"column {field.name} has type {field.dataType.simpleString()}, must be {wanted}"
            )
    there = {field.name.lower() for field in schema.fields}
    if "body" not in there:
        raise SchemaError("column body is missing")
    if topic is None and "topic" not in there:
        raise SchemaError("name the topic in the option topic or in a column topic")


@dataclass(frozen=True, slots=True)
class TaskId:
    """One task of one batch: with the row's number it identifies a message for ever."""

    query_id: str
    batch_id: int
    partition: int

    @property
    def text(self) -> str:
        """As people read it."""
        return f"{self.query_id}/{self.batch_id}/{self.partition}"

    @property
    def prefix(self) -> str:
        """The first 16 characters of the UNIQ_KEY of all messages of this task."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest().upper()

    def row_of(self, unique_key: str, prefix: str) -> int | None:
        """The row whose message has this key, or ``None`` when it is not of this task."""
        if len(unique_key) != 32 or not unique_key.startswith(prefix):
            return None
        try:
            return int(unique_key[16:20] + unique_key[28:], 16)
        except ValueError:
            return None


def unique_key(prefix: str, row: int) -> str:
    """The UNIQ_KEY of a row: 32 hex digits in RocketMQ's layout.

    Its eight time digits are zero, the first instant of the month, which is what admin tools read there to
    know since when to search.
    """
    return f"{prefix}{row >> 16:04X}00000000{row & 0xFFFF:04X}"


class Row(NamedTuple):
    """A row on its way.

    Attributes:
        number: its place in this attempt of its task.
        digest: of its content, as 16 hexadecimal digits.
    """

    number: int
    digest: str
    message: Message


def messages(batch: pa.RecordBatch, task: TaskId, first_row: int, topic: str | None) -> Iterator[Row]:
    """The rows of ``batch`` as messages.

    Raises:
        SchemaError: a row lacks topic or body, asks for a delay, or the task has too many rows.
    """
    columns = {name.lower(): batch.column(i).to_pylist() for i, name in enumerate(batch.schema.names)}
    if first_row + batch.num_rows > MAX_ROWS_PER_TASK:
        raise SchemaError(f"a task can write {MAX_ROWS_PER_TASK} rows; use more partitions")
    prefix = task.prefix
    origin = task.text
    for i in range(batch.num_rows):
        values = {name: column[i] for name, column in columns.items()}
        row = first_row + i
        target = values.get("topic") or topic
        if target is None or values["body"] is None:
            raise SchemaError(f"row {row} of {origin} has no {'body' if target else 'topic'}")
        message = Message(
            target,
            values["body"],
            tags=values.get("tags"),
            keys=_words(values.get("keys")),
            properties=_given(values),
        )
        digest = _digest(message)
        message.properties[property_names.UNIQ_KEY] = unique_key(prefix, row)
        message.properties[SPARK_ID] = f"{origin}/{row}/{digest}"
        yield Row(row, digest, message)


def _digest(message: Message) -> str:
    """Equal rows have equal digests, whatever the order of their properties."""
    parts = [message.topic.encode(), message.body]
    for name in sorted(message.properties):
        parts += (name.encode(), message.properties[name].encode())
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()


def _words(value: Any) -> Any:
    return value if isinstance(value, str) else [word for word in value or () if word]


def _given(values: Mapping[str, Any]) -> dict[str, str]:
    given = values.get("properties") or ()
    pairs = given.items() if isinstance(given, Mapping) else given
    properties = {name: value for name, value in pairs if name and value}
    for name in _NOT_IN_A_BATCH:
        if name in properties:
            raise SchemaError(f"property {name}: delayed messages cannot be written from Spark")
    return properties
