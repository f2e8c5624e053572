# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: annotation_typing=False
"""Stored records straight to column buffers, without a Python object per message.

A pull response is a plain concatenation of commit log records. :class:`ColumnDecoder` turns one into
buffers in Arrow's layout: fixed-width arrays, and offsets beside data for what varies in length. The module
is ordinary Python that also compiles with Cython (``columns.pxd`` holds the types); both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import cython

from orbitmq.message import record_layout
from orbitmq.message.compression import decompress
from orbitmq.message.errors import CompressionError, RecordError

# C integers in the compiled module.
MAGIC_V1 = record_layout.MAGIC_V1
MAGIC_V2 = record_layout.MAGIC_V2
QUEUE_ID_AT = record_layout.QUEUE_ID_AT
QUEUE_OFFSET_AT = record_layout.QUEUE_OFFSET_AT
PHYSICAL_OFFSET_AT = record_layout.PHYSICAL_OFFSET_AT
SYS_FLAG_AT = record_layout.SYS_FLAG_AT
BORN_TIME_AT = record_layout.BORN_TIME_AT
BORN_HOST_AT = record_layout.BORN_HOST_AT
HOST_V4_BYTES = record_layout.HOST_V4_BYTES
HOST_V6_BYTES = record_layout.HOST_V6_BYTES
BORN_V6 = record_layout.BORN_HOST_V6_BIT
STORE_V6 = record_layout.STORE_HOST_V6_BIT
BODY_LENGTH_AT = record_layout.BODY_LENGTH_AFTER_STORE_HOST
MIN_BYTES = record_layout.MIN_RECORD_BYTES

QUEUE_ID = "queue_id"
QUEUE_OFFSET = "queue_offset"
BORN_TIMESTAMP = "born_timestamp"
STORE_TIMESTAMP = "store_timestamp"
RECONSUME_TIMES = "reconsume_times"
TOPIC = "topic"
TAGS = "tags"
KEYS = "keys"
BODY = "body"
BODY_SIZE = "body_size"
PROPERTIES = "properties"
PROPERTY_BLOCK = "property_block"
MESSAGE_ID = "message_id"

COLUMN_NAMES = frozenset(
    (
        QUEUE_ID,
        QUEUE_OFFSET,
        BORN_TIMESTAMP,
        STORE_TIMESTAMP,
        RECONSUME_TIMES,
        TOPIC,
        TAGS,
        KEYS,
        BODY,
        BODY_SIZE,
        PROPERTIES,
        PROPERTY_BLOCK,
        MESSAGE_ID,
    )
)

# What a body that cannot be decompressed becomes: an error of the chunk, null, or its stored bytes.
FAIL = "fail"
NULL = "null"
RAW = "raw"

# Column buffers use 32-bit offsets; half of the range leaves room for decompressed bodies.
MAX_CHUNK_BYTES = 1 << 30


class Fixed(NamedTuple):
    """A column of fixed width: 4-byte integers (ids, counts) or 8-byte ones (offsets, milliseconds)."""

    values: bytearray


class Text(NamedTuple):
    """A column of varying width: ``rows + 1`` 32-bit offsets into ``data``; a bit per row if nullable."""

    offsets: bytearray
    data: bytearray | bytes
    size_bytes: int
    validity: bytearray | None


class Pairs(NamedTuple):
    """The property map: ``rows + 1`` 32-bit offsets into ``names`` and ``values``."""

    offsets: bytearray
    size: int
    names: Text
    values: Text


class Columns(NamedTuple):
    """The decoded chunk: the requested columns by name; what was wrong with bodies, by row."""

    rows: int
    fixed: dict[str, Fixed]
    texts: dict[str, Text]
    properties: Pairs | None
    errors: dict[int, str]


class Scan(NamedTuple):
    """What :func:`scan_range` found.

    Attributes:
        records: how many were accepted.
        end_position: bytes they take from the start of the buffer.
        next_offset: queue offset after the last accepted record.
        found: the queue offset that broke the continuity, or -1.
    """

    records: int
    end_position: int
    next_offset: int
    found: int


def _u16(src: bytes, at: int) -> int:
    return (src[at] << 8) | src[at + 1]


def _i32(src: bytes, at: int) -> int:
    return ((src[at] ^ 0x80) - 0x80) * 0x1000000 + (src[at + 1] << 16) + _u16(src, at + 2)


def _i64(src: bytes, at: int) -> int:
    return (_i32(src, at) * 0x10000 + _u16(src, at + 4)) * 0x10000 + _u16(src, at + 6)


def _find(src: bytes, byte: int, start: int, end: int) -> int:
    """Position of ``byte`` in ``src[start:end]``, or ``end``."""
    i = start
    if cython.compiled:
        while i < end and src[i] != byte:
            i += 1
    else:
        i = src.find(byte, start, end)
        if i < 0:
            i = end
    return i


def _same(a: memoryview, a_at: int, b: bytes, b_at: int, size: int) -> int:
    """1 when both ranges hold the same bytes."""
    for i in range(size):
        if a[a_at + i] != b[b_at + i]:
            return 0
    return 1


def _copy(dst: memoryview, dst_at: int, src: bytes, src_at: int, size: int) -> int:
    """Copy ``size`` bytes and return the position after them."""
    if size > 0:
        if cython.compiled:
            memcpy(cython.address(dst[dst_at]), cython.address(src[src_at]), size)  # type: ignore[name-defined]  # noqa: F821
        else:
            dst[dst_at : dst_at + size] = src[src_at : src_at + size]
    return dst_at + size


def _hex(dst: memoryview, dst_at: int, src: bytes, src_at: int, size: int) -> int:
    """Write ``size`` bytes as upper-case hex and return the position after them."""
    for i in range(size):
        byte = src[src_at + i]
        high = byte >> 4
        low = byte & 15
        dst[dst_at] = high + 48 if high < 10 else high + 55
        dst[dst_at + 1] = low + 48 if low < 10 else low + 55
        dst_at += 2
    return dst_at


def scan_range(src: bytes, expected: int, end: int, strict: bool) -> Scan:
    """Walk the records of one queue in ``src`` that lie in ``[expected, end)``.

    Args:
        src: concatenated records of one queue, as a pull response carries them.
        expected: the first queue offset wanted; earlier records are an error of the sender.
        end: the first queue offset not wanted.
        strict: every offset must be there (no filter at the broker).

    Raises:
        RecordError: the bytes are not whole records.
    """
    size = len(src)
    at = 0
    count = 0
    found = -1
    while at < size:
        total = _i32(src, at) if at + 28 <= size else 0
        if total < 28 or total > size - at:
            raise RecordError(f"record at byte {at} has size {total}, {size - at} bytes are left")
        offset = _i64(src, at + QUEUE_OFFSET_AT)
        if offset >= end:
            if strict and expected < end:
                found = offset
            break
        if offset < expected or (strict and offset != expected):
            found = offset
            break
        expected = offset + 1
        count += 1
        at += total
    return Scan(count, at, expected, found)


class ColumnDecoder:
    """Decodes chunks of stored records into the columns it was made for; it may be used again and again.

    Args:
        columns: names out of :data:`COLUMN_NAMES`. What is not asked for is not looked at.
        bad_body: :data:`FAIL`, :data:`NULL` or :data:`RAW`.

    Raises:
        ValueError: a name is unknown.
    """

    def __init__(self, columns: Collection[str], bad_body: str = FAIL) -> None:
        unknown = sorted(set(columns) - COLUMN_NAMES)
        if unknown:
            raise ValueError(f"unknown columns {unknown}; known: {sorted(COLUMN_NAMES)}")
        self.names = frozenset(columns)
        self.bad_body = bad_body
        self.errors: dict[int, str] = {}
        self.want_topic = TOPIC in columns
        self.want_tags = TAGS in columns
        self.want_keys = KEYS in columns
        self.want_body = BODY in columns
        self.want_id = MESSAGE_ID in columns
        self.want_pairs = PROPERTIES in columns
        self.want_block = PROPERTY_BLOCK in columns
        self.want_numbers = bool(
            self.names & {QUEUE_ID, QUEUE_OFFSET, BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, BODY_SIZE}
        )
        self.want_properties = self.want_tags or self.want_keys or self.want_id or self.want_pairs

    def decode(self, src: bytes) -> Columns:
        """The columns of all records in ``src``.

        Raises:
            RecordError: a record is cut, has a wrong magic number or lengths that contradict each other, or
                holds an inner batch (topics with ``queue.type=BatchCQ``).
            CompressionError: a body cannot be decompressed, with :data:`FAIL`.
        """
        self.errors = {}
        if len(src) > MAX_CHUNK_BYTES:
            raise RecordError(f"a chunk of {len(src)} bytes is over the limit of {MAX_CHUNK_BYTES}")
        bad = self._measure(src, len(src))
        if bad >= 0:
            raise RecordError(f"record at byte {bad} of {len(src)} is cut, damaged or an inner batch")
        buffers = self._allocate()
        self._fill(src, len(src))
        return self._finish(src, buffers)

    def _parse(self, src: bytes, at: int, end: int) -> int:
        """Find the parts of the record at ``at``; 1 when its lengths fit together."""
        if end - at < MIN_BYTES:
            return 0
        self.total = _i32(src, at)
        if self.total < MIN_BYTES or self.total > end - at:
            return 0
        magic = _i32(src, at + 4)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return 0
        stop = at + self.total
        self.sys_flag = _i32(src, at + SYS_FLAG_AT)
        self.store_at = at + BORN_HOST_AT + (HOST_V6_BYTES if self.sys_flag & BORN_V6 else HOST_V4_BYTES)
        self.host_bytes = HOST_V6_BYTES if self.sys_flag & STORE_V6 else HOST_V4_BYTES
        self.tail_at = self.store_at + 8 + self.host_bytes
        self.body_at = self.tail_at + BODY_LENGTH_AT + 4
        if self.body_at > stop:
            return 0
        self.body_bytes = _i32(src, self.tail_at + BODY_LENGTH_AT)
        length_bytes = 1 if magic == MAGIC_V1 else 2
        if self.body_bytes < 0 or self.body_bytes > stop - self.body_at - length_bytes - 2:
            return 0
        self.topic_at = self.body_at + self.body_bytes
        self.topic_bytes = src[self.topic_at]
        if length_bytes == 2:
            self.topic_bytes = (self.topic_bytes << 8) | src[self.topic_at + 1]
        self.topic_at += length_bytes
        self.props_at = self.topic_at + self.topic_bytes + 2
        if self.props_at > stop:
            return 0
        self.props_bytes = (src[self.props_at - 2] << 8) | src[self.props_at - 1]
        if self.props_bytes > stop - self.props_at or self.sys_flag & 0x40:
            return 0
        return 1

    def _measure(self, src: bytes, end: int) -> int:
        """Check every record and add up the space; -1, or the position of the first bad record."""
        at = 0
        self.rows = self.bodies_size = self.topics_size = self.props_size = self.pair_limit = 0
        self.compressed = 0
        while at < end:
            if not self._parse(src, at, end):
                return at
            self.rows += 1
            self.bodies_size += self.body_bytes
            self.topics_size += self.topic_bytes
            self.props_size += self.props_bytes
            self.compressed += self.sys_flag & 1
            if self.want_pairs:
                i = self.props_at
                stop = i + self.props_bytes
                while i < stop:
                    i = _find(src, 2, i, stop) + 1
                    self.pair_limit += 1
            at += self.total
        return -1

    def _allocate(self) -> dict[str, bytearray]:
        """Make the output buffers for what :meth:`_measure` counted."""
        rows = self.rows
        many = rows + 1
        bits = (rows + 7) // 8
        numbers = rows if self.want_numbers else 0
        ids = self.props_size + 56 * rows if self.want_id else 0
        pairs = self.pair_limit if self.want_pairs else 0
        text = self.props_size if self.want_pairs else 0
        sizes = {
            QUEUE_ID: 4 * numbers,
            QUEUE_OFFSET: 8 * numbers,
            BORN_TIMESTAMP: 8 * numbers,
            STORE_TIMESTAMP: 8 * numbers,
            RECONSUME_TIMES: 4 * numbers,
            BODY_SIZE: 4 * numbers,
            "topic_offsets": 4 * many,
            "topic_data": self.topics_size if self.want_topic else 0,
            "tags_offsets": 4 * many,
            "tags_data": self.props_size if self.want_tags else 0,
            "tags_bits": bits,
            "keys_offsets": 4 * many,
            "keys_data": self.props_size if self.want_keys else 0,
            "keys_bits": bits,
            "body_offsets": 4 * many,
            "body_data": self.bodies_size if self.want_body and not self.compressed else 0,
            "id_offsets": 4 * many,
            "id_data": ids,
            "block_offsets": 4 * many,
            "block_data": self.props_size if self.want_block else 0,
            "pair_offsets": 4 * many,
            "name_offsets": 4 * (pairs + 1),
            "name_data": text,
            "value_offsets": 4 * (pairs + 1),
            "value_data": text,
        }
        buffers = {name: bytearray(size) for name, size in sizes.items()}
        self._attach(buffers)
        return buffers

    def _attach(self, buffers: dict[str, bytearray]) -> None:
        self.queue_ids = memoryview(buffers[QUEUE_ID]).cast("i")
        self.queue_offsets = memoryview(buffers[QUEUE_OFFSET]).cast("q")
        self.born = memoryview(buffers[BORN_TIMESTAMP]).cast("q")
        self.stored = memoryview(buffers[STORE_TIMESTAMP]).cast("q")
        self.reconsumed = memoryview(buffers[RECONSUME_TIMES]).cast("i")
        self.body_sizes = memoryview(buffers[BODY_SIZE]).cast("i")
        self.block_offsets = memoryview(buffers["block_offsets"]).cast("i")
        self.block_data = memoryview(buffers["block_data"])
        self.topic_offsets = memoryview(buffers["topic_offsets"]).cast("i")
        self.topic_data = memoryview(buffers["topic_data"])
        self.tags_offsets = memoryview(buffers["tags_offsets"]).cast("i")
        self.tags_data = memoryview(buffers["tags_data"])
        self.tags_bits = memoryview(buffers["tags_bits"])
        self.keys_offsets = memoryview(buffers["keys_offsets"]).cast("i")
        self.keys_data = memoryview(buffers["keys_data"])
        self.keys_bits = memoryview(buffers["keys_bits"])
        self.body_offsets = memoryview(buffers["body_offsets"]).cast("i")
        self.body_data = memoryview(buffers["body_data"])
        self.id_offsets = memoryview(buffers["id_offsets"]).cast("i")
        self.id_data = memoryview(buffers["id_data"])
        self.pair_offsets = memoryview(buffers["pair_offsets"]).cast("i")
        self.name_offsets = memoryview(buffers["name_offsets"]).cast("i")
        self.name_data = memoryview(buffers["name_data"])
        self.value_offsets = memoryview(buffers["value_offsets"]).cast("i")
        self.value_data = memoryview(buffers["value_data"])

    def _fill(self, src: bytes, end: int) -> None:
        """Write every column; the records were checked by :meth:`_measure`."""
        self.pairs = 0
        at = 0
        row = 0
        while at < end:
            self._parse(src, at, end)
            if self.want_numbers:
                self.queue_ids[row] = _i32(src, at + QUEUE_ID_AT)
                self.queue_offsets[row] = _i64(src, at + QUEUE_OFFSET_AT)
                self.born[row] = _i64(src, at + BORN_TIME_AT)
                self.stored[row] = _i64(src, self.store_at)
                self.reconsumed[row] = _i32(src, self.tail_at)
                self.body_sizes[row] = self.body_bytes
            if self.want_block:
                self.block_offsets[row + 1] = _copy(
                    self.block_data, self.block_offsets[row], src, self.props_at, self.props_bytes
                )
            if self.want_topic:
                self.topic_offsets[row + 1] = _copy(
                    self.topic_data, self.topic_offsets[row], src, self.topic_at, self.topic_bytes
                )
            if self.want_body and not self.compressed:
                self.body_offsets[row + 1] = _copy(
                    self.body_data, self.body_offsets[row], src, self.body_at, self.body_bytes
                )
            if self.want_properties:
                self._properties(src, at, row)
            row += 1
            at += self.total

    def _properties(self, src: bytes, at: int, row: int) -> None:
        """Walk the properties once: tags, keys, the id and the map.

        A pair counts when name and value have at least one character; the last of equal names wins.
        """
        tags_at = keys_at = id_at = 0
        tags_size = keys_size = id_size = 0
        i = self.props_at
        stop = i + self.props_bytes
        first_pair = self.pairs
        while i < stop:
            end = _find(src, 2, i, stop)
            equal = _find(src, 1, i, end)
            if equal > i and equal < end - 1:
                name_size = equal - i
                # The names as big-endian numbers: "TAGS", "KEYS", "UNIQ_KEY".
                if name_size == 4 and _i32(src, i) == 0x54414753:
                    tags_at = equal + 1
                    tags_size = end - tags_at
                elif name_size == 4 and _i32(src, i) == 0x4B455953:
                    keys_at = equal + 1
                    keys_size = end - keys_at
                elif name_size == 8 and _i32(src, i) == 0x554E4951 and _i32(src, i + 4) == 0x5F4B4559:
                    id_at = equal + 1
                    id_size = end - id_at
                if self.want_pairs:
                    self._pair(src, first_pair, i, equal, end)
            i = end + 1
        if self.want_pairs:
            self.pair_offsets[row + 1] = self.pairs
        if self.want_tags:
            self.tags_offsets[row + 1] = _copy(
                self.tags_data, self.tags_offsets[row], src, tags_at, tags_size
            )
            if tags_size:
                self.tags_bits[row >> 3] |= 1 << (row & 7)
        if self.want_keys:
            self.keys_offsets[row + 1] = _copy(
                self.keys_data, self.keys_offsets[row], src, keys_at, keys_size
            )
            if keys_size:
                self.keys_bits[row >> 3] |= 1 << (row & 7)
        if self.want_id:
            to = self.id_offsets[row]
            if id_size:
                to = _copy(self.id_data, to, src, id_at, id_size)
            else:
                to = _hex(self.id_data, to, src, self.store_at + 8, self.host_bytes)
                to = _hex(self.id_data, to, src, at + PHYSICAL_OFFSET_AT, 8)
            self.id_offsets[row + 1] = to

    def _pair(self, src: bytes, first: int, start: int, equal: int, end: int) -> None:
        """Append one property to the map of the current row, dropping an earlier one of the same name."""
        size = equal - start
        j = first
        while j < self.pairs:
            if self.name_offsets[j + 1] - self.name_offsets[j] == size and _same(
                self.name_data, self.name_offsets[j], src, start, size
            ):
                self._drop_pair(j)
                break
            j += 1
        n = self.pairs
        self.name_offsets[n + 1] = _copy(self.name_data, self.name_offsets[n], src, start, size)
        self.value_offsets[n + 1] = _copy(
            self.value_data, self.value_offsets[n], src, equal + 1, end - equal - 1
        )
        self.pairs = n + 1

    def _drop_pair(self, j: int) -> None:
        """Close the hole that pair ``j`` of the current row leaves."""
        names = self.name_offsets[j + 1] - self.name_offsets[j]
        for i in range(self.name_offsets[j], self.name_offsets[self.pairs] - names):
            self.name_data[i] = self.name_data[i + names]
        values = self.value_offsets[j + 1] - self.value_offsets[j]
        for i in range(self.value_offsets[j], self.value_offsets[self.pairs] - values):
            self.value_data[i] = self.value_data[i + values]
        for i in range(j + 1, self.pairs):
            self.name_offsets[i] = self.name_offsets[i + 1] - names
            self.value_offsets[i] = self.value_offsets[i + 1] - values
        self.pairs -= 1

    def _finish(self, src: bytes, buffers: dict[str, bytearray]) -> Columns:
        rows = self.rows
        numbers = (QUEUE_ID, QUEUE_OFFSET, BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, BODY_SIZE)
        fixed = {name: Fixed(buffers[name]) for name in numbers if name in self.names}
        texts: dict[str, Text] = {}
        if self.want_topic:
            texts[TOPIC] = Text(
                buffers["topic_offsets"], buffers["topic_data"], self.topic_offsets[rows], None
            )
        if self.want_tags:
            size = self.tags_offsets[rows]
            texts[TAGS] = Text(buffers["tags_offsets"], buffers["tags_data"], size, buffers["tags_bits"])
        if self.want_keys:
            size = self.keys_offsets[rows]
            texts[KEYS] = Text(buffers["keys_offsets"], buffers["keys_data"], size, buffers["keys_bits"])
        if self.want_id:
            texts[MESSAGE_ID] = Text(buffers["id_offsets"], buffers["id_data"], self.id_offsets[rows], None)
        if self.want_block:
            size = self.block_offsets[rows]
            texts[PROPERTY_BLOCK] = Text(buffers["block_offsets"], buffers["block_data"], size, None)
        if self.want_body and self.compressed:
            texts[BODY] = self._decompressed(src, buffers["body_offsets"])
        elif self.want_body:
            texts[BODY] = Text(buffers["body_offsets"], buffers["body_data"], self.body_offsets[rows], None)
        pairs = None
        if self.want_pairs:
            names = Text(buffers["name_offsets"], buffers["name_data"], self.name_offsets[self.pairs], None)
            values = Text(
                buffers["value_offsets"], buffers["value_data"], self.value_offsets[self.pairs], None
            )
            pairs = Pairs(buffers["pair_offsets"], self.pairs, names, values)
        return Columns(rows, fixed, texts, pairs, self.errors)

    def _decompressed(self, src: bytes, offsets: bytearray) -> Text:
        """The body column of a chunk with compressed bodies: the one place with an object per message."""
        bodies = []
        at = row = size = 0
        while at < len(src):
            self._parse(src, at, len(src))
            body = src[self.body_at : self.body_at + self.body_bytes]
            if self.sys_flag & 1:
                body = self._readable(src, at, row, body)
            bodies.append(body)
            size += len(body)
            row += 1
            if size > 0x7FFFFFFF:
                raise RecordError(f"the decompressed bodies of a chunk of {len(src)} bytes are over 2 GiB")
            self.body_offsets[row] = size
            at += self.total
        return Text(offsets, b"".join(bodies), size, self._validity())

    def _readable(self, src: bytes, at: int, row: int, body: bytes) -> bytes:
        """The decompressed body of the record at ``at``, or what stands for it."""
        try:
            return decompress(body, (self.sys_flag >> 8) & 7)
        except CompressionError as error:
            text = f"queue {_i32(src, at + 12)}, offset {_i64(src, at + 20)}: {error}"
            if self.bad_body == FAIL:
                raise CompressionError(text) from error
            self.errors[row] = text
            return body if self.bad_body == RAW else b""

    def _validity(self) -> bytearray | None:
        """A bit for each body, when some are null."""
        if self.bad_body != NULL or not self.errors:
            return None
        bits = bytearray(b"\xff" * ((self.rows + 7) // 8))
        for row in self.errors:
            bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        return bits
