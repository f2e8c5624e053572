"""The rows of a data frame as messages: the allowed columns, and their buffers for the encoder."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
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

from orbitmq.message import batch_encoder, property_names
from orbitmq.message.batch_encoder import BatchEncoder, MapColumn, Named, Strings
from orbitmq.message.properties import MAX_PROPERTIES_BYTES
from orbitmq.message.tags import java_hash
from orbitmq.spark.errors import SchemaError
from orbitmq.spark.write.task import TaskId

SHARDING_KEY, QUEUE_ID = "sharding_key", "queue_id"
DELAY_LEVEL, DELIVER_AT = "delay_level", "deliver_at"
DELAYING = frozenset({DELAY_LEVEL, DELIVER_AT})
MAX_DELAY_LEVEL = 18

_WHOLE = (IntegerType(), LongType(), ShortType())
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "body": (BinaryType(), StringType()),
    "tags": (StringType(),),
    "keys": (StringType(), ArrayType(StringType())),
    "properties": (MapType(StringType(), StringType()),),
    SHARDING_KEY: (StringType(),),
    QUEUE_ID: _WHOLE,
    DELAY_LEVEL: _WHOLE,
    DELIVER_AT: (TimestampType(), LongType()),
}
_FAULTS = {
    batch_encoder.TOO_LONG: f"has properties of more than {MAX_PROPERTIES_BYTES} bytes",
    batch_encoder.CONTROL_CHARACTER: "has a property with U+0000, U+0001 or U+0002, which none may have",
    batch_encoder.DELAYED: (
        f"has a property that asks for a delay: use the column {DELAY_LEVEL} or {DELIVER_AT}"
    ),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the schema of a data frame to write.

    Raises:
        SchemaError: a column is unknown, missing or of a wrong type, or two exclude each other.
    """
    for field in schema.fields:
        allowed = _COLUMNS.get(field.name.lower())
        if allowed is None:
            raise SchemaError(f"column {field.name!r} cannot be written; known: {', '.join(_COLUMNS)}")
        if not any(_same_kind(field.dataType, kind) for kind in allowed):
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            raise SchemaError(
                f"column {field.name} has type {field.dataType.simpleString()}, must be {wanted}"
            )
    there = {field.name.lower() for field in schema.fields}
    if len(there) < len(schema.fields):
        raise SchemaError(f"a column is there twice: {', '.join(schema.fieldNames())}")
    if "body" not in there:
        raise SchemaError("column body is missing")
    if topic is None and "topic" not in there:
        raise SchemaError("name the topic in the option topic or in a column topic")
    for one, other in ((SHARDING_KEY, QUEUE_ID), (DELAY_LEVEL, DELIVER_AT)):
        if {one, other} <= there:
            raise SchemaError(f"columns {one} and {other} say the same thing: give one of them")


def _same_kind(one: DataType, other: DataType) -> bool:
    """Whether two types are the same, apart from nullability and the collation of strings."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same_kind(one.elementType, other.elementType)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same_kind(one.keyType, other.keyType) and _same_kind(one.valueType, other.valueType)
    return type(one) is type(other)


class Portion(NamedTuple):
    """Rows of one topic that may share a batch.

    Attributes:
        lane: the index of their queue among the topic's queues, from a hash or a queue id; ``None`` for any
            queue.
        selection: the indexes of the rows in the loaded batch.
        delayed: whether the rows have a delay, so that each is sent alone: a batch cannot have delays.
    """

    topic: str
    lane: int | None
    delayed: bool
    selection: memoryview


class RowLoader:
    """Loads the record batches of one task into an encoder.

    Args:
        task: the task's name in errors.
        topic: the topic of rows that do not name one.
    """

    def __init__(self, encoder: BatchEncoder, task: TaskId, topic: str | None) -> None:
        self.rows = 0
        self._encoder = encoder
        self._task = task
        self._topic = topic
        self._columns: dict[str, Any] = {}
        self._topics: list[str] = []
        self._codes: Any = None
        self._all = _selection(())

    def load(self, batch: pa.RecordBatch) -> None:
        """Load the rows into the encoder, with their sizes and digests.

        Raises:
            SchemaError: a row is no message; the text names it.
        """
        if any(column.offset for column in batch.columns):
            batch = batch.take(pa.array(range(batch.num_rows)))
        columns = {
            name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        first, self.rows = self.rows, self.rows + batch.num_rows
        self._columns = columns
        self._find_topics(columns.get("topic"), batch.num_rows, first)
        body = columns["body"]
        if body.null_count:
            raise self._fault(first + _first_null(body), "has no body")
        try:
            self._encoder.load(
                batch.num_rows,
                _strings(body),
                list(self._named(columns, first)),
                _pairs(columns["properties"]) if "properties" in columns else None,
                self._topics,
                memoryview(self._codes.buffers()[1] or bytes(4)).cast("B").cast("i"),
                first,
            )
        except ValueError as error:
            raise SchemaError(f"{self._task.text}: {error}") from error
        bad = self._encoder.measure()
        if bad >= 0:
            raise self._fault(first + bad, _FAULTS[self._encoder.fault])

    def portions(self, queues: dict[str, int], wanted: memoryview | None = None) -> Iterator[Portion]:
        """The loaded rows by topic and lane, in their order.

        Args:
            queues: the number of queues of each topic, for hashes of sharding keys.
            wanted: only these rows; ``None`` for all.
        """
        if wanted is None:
            # Batches usually have the same length, so the selection is reused.
            if len(self._all) != len(self._codes):
                self._all = _selection(range(len(self._codes)))
            wanted = self._all
        lanes, delayed = self._lanes(queues), self._delayed()
        if len(self._topics) == 1 and lanes is None and delayed is None:
            if len(wanted):
                yield Portion(self._topics[0], None, False, wanted)
            return
        codes = self._codes.to_pylist()
        groups: dict[tuple[int, int | None, bool], list[int]] = {}
        for row in wanted.tolist():
            lane = None if lanes is None else lanes[row]
            late = delayed is not None and delayed[row]
            groups.setdefault((codes[row], lane, late), []).append(row)
        for (code, lane, late), members in groups.items():
            yield Portion(self._topics[code], lane, late, _selection(members))

    @property
    def topics(self) -> list[str]:
        """The topics of the loaded rows."""
        return self._topics

    def _find_topics(self, column: Any, rows: int, first: int) -> None:
        if column is None:
            assert self._topic is not None
            self._topics, self._codes = [self._topic], _zeros(rows)
            return
        if column.null_count or pc.any(pc.equal(column, "")).as_py():
            if self._topic is None:
                empty = pc.or_kleene(pc.is_null(column), pc.equal(column, ""))
                raise self._fault(first + pc.index(empty, True).as_py(), "has no topic")
            column = pc.if_else(pc.fill_null(pc.equal(column, ""), True), self._topic, column)
        coded = column.cast(pa.string()).dictionary_encode()
        self._topics, self._codes = coded.dictionary.to_pylist(), coded.indices

    def _named(self, columns: dict[str, Any], first: int) -> Iterator[Named]:
        if "tags" in columns:
            yield Named(property_names.TAGS, _strings(columns["tags"]))
        if "keys" in columns:
            yield Named(property_names.KEYS, _strings(_joined(columns["keys"])))
        if SHARDING_KEY in columns:
            yield Named(property_names.SHARDING_KEY, _strings(columns[SHARDING_KEY]))
        if QUEUE_ID in columns:
            self._check(columns[QUEUE_ID], 0, 1 << 30, QUEUE_ID, first)
            yield Named(QUEUE_ID, _strings(columns[QUEUE_ID].cast(pa.string())), stored=False)
        if DELAY_LEVEL in columns:
            levels = columns[DELAY_LEVEL].cast(pa.int64())
            self._check(levels, 0, MAX_DELAY_LEVEL, DELAY_LEVEL, first)
            yield Named(property_names.DELAY, _strings(_without_zeros(levels).cast(pa.string())))
        if DELIVER_AT in columns:
            times = _milliseconds(columns[DELIVER_AT])
            self._check(times, 0, 1 << 62, DELIVER_AT, first)
            yield Named(property_names.TIMER_DELIVER_MS, _strings(_without_zeros(times).cast(pa.string())))

    def _check(self, column: Any, low: int, high: int, name: str, first: int) -> None:
        bad = pc.fill_null(pc.or_kleene(pc.less(column, low), pc.greater(column, high)), False)
        row = pc.index(bad, True).as_py()
        if row >= 0:
            raise self._fault(first + row, f"has {name} {column[row].as_py()}; allowed: {low} to {high}")

    def _lanes(self, queues: dict[str, int]) -> list[int | None] | None:
        """For each row the index of its queue, ``None`` for any; no list if every row may go to any queue."""
        if QUEUE_ID in self._columns:
            found: list[int | None] = self._columns[QUEUE_ID].to_pylist()
            return found
        if SHARDING_KEY not in self._columns:
            return None
        names = self._columns[SHARDING_KEY].to_pylist()
        codes = self._codes.to_pylist()
        counts = [queues[topic] for topic in self._topics]
        # Like Java's SelectMessageQueueByHash: the remainder has the sign of the hash.
        return [
            None if not name else abs(java_hash(name)) % counts[code]
            for name, code in zip(names, codes, strict=True)
        ]

    def _delayed(self) -> list[bool] | None:
        for name in (DELAY_LEVEL, DELIVER_AT):
            if name in self._columns:
                numbers = _milliseconds(self._columns[name]).to_pylist()
                return [value is not None and value != 0 for value in numbers]
        return None

    def _fault(self, row: int, words: str) -> SchemaError:
        return SchemaError(f"row {row} of {self._task.text} {words}")


def _zeros(rows: int) -> Any:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])


def _selection(rows: Any) -> memoryview:
    return memoryview(array("q", rows))


def _first_null(column: Any) -> int:
    found: int = pc.index(pc.is_null(column), True).as_py()
    return found


def _without_zeros(column: Any) -> Any:
    return pc.if_else(pc.equal(column, 0), None, column)


def _milliseconds(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())


def _joined(column: Any) -> Any:
    """Key words joined by one space, the form in which messages carry them."""
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        return column
    words = column.flatten()
    if words.null_count or pc.any(pc.equal(words, "")).as_py():
        texts = [
            None if row is None else " ".join(word for word in row if word) for row in column.to_pylist()
        ]
        return pa.array(texts, pa.string())
    return pc.binary_join(column.cast(pa.list_(pa.string())), " ")


def _strings(column: Any) -> Strings:
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.string() if pa.types.is_large_string(kind) else pa.binary())
    if column.offset:
        column = pa.concat_arrays([column])
    validity, offsets, data = column.buffers()
    bits = validity if column.null_count else None
    return Strings(_numbers(offsets), _bytes(data), None if bits is None else _bytes(bits))


def _pairs(column: Any) -> MapColumn:
    buffers = column.buffers()
    bits = buffers[0] if column.null_count else None
    # The child arrays are not sliced, since the record batch has no offset: they are read from their
    # beginning.
    return MapColumn(
        _numbers(buffers[1]),
        _strings(column.keys),
        _strings(column.items),
        None if bits is None else _bytes(bits),
    )


def _bytes(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B") if buffer is not None else memoryview(b"")


def _numbers(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B").cast("i") if buffer is not None else memoryview(bytes(4)).cast("i")
