# cython: annotation_typing=False
"""Decodes stored records into column buffers, without a Python object per message.

A pull response is a plain concatenation of commit log records. :class:`ColumnDecoder` turns records into
buffers in Arrow's layout: fixed-width arrays, and offsets beside data for values of varying length. The
modules that it is made of (``record_parts``, ``text_column``, ``property_columns``) are ordinary Python that
also compiles with Cython (their ``.pxd`` files hold the types); both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import cython

from orbitmq.message import columns as names
from orbitmq.message import record_layout
from orbitmq.message.columns import FAIL, NULL, RAW, Columns, Fixed, Text
from orbitmq.message.compression import decompress
from orbitmq.message.errors import CompressionError, DamagedBodyError, RecordError
from orbitmq.message.property_columns import PropertyColumns
from orbitmq.message.record_parts import RecordParts
from orbitmq.message.text_column import TextColumn

if TYPE_CHECKING:
    from orbitmq.message.text_column import Allocate
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import crc32, get_i32, get_i64

# C integers in the compiled module.
CRC_AT = record_layout.CRC_AT
QUEUE_ID_AT = record_layout.QUEUE_ID_AT
QUEUE_OFFSET_AT = record_layout.QUEUE_OFFSET_AT
BORN_TIME_AT = record_layout.BORN_TIME_AT

# Column buffers use 32-bit offsets; half of the range leaves room for decompressed bodies.
MAX_CHUNK_BYTES = 1 << 30

_FIXED_BYTES = {
    names.QUEUE_ID: 4,
    names.QUEUE_OFFSET: 8,
    names.BORN_TIMESTAMP: 8,
    names.STORE_TIMESTAMP: 8,
    names.RECONSUME_TIMES: 4,
    names.BODY_SIZE: 4,
}


class ColumnDecoder:
    """Decodes stored records into the columns it was made for; it may be used again and again.

    Args:
        columns: names out of :data:`~orbitmq.message.columns.COLUMN_NAMES`. Others are not read.
        bad_body: what a body that cannot be decompressed becomes: ``FAIL``, ``NULL`` or ``RAW``.
        allocate: returns memory for texts; it need not be cleared.

    Raises:
        ValueError: a name is unknown.
    """

    def __init__(
        self, columns: Collection[str], bad_body: str = FAIL, *, allocate: Allocate = bytearray
    ) -> None:
        unknown = sorted(set(columns) - names.COLUMN_NAMES)
        if unknown:
            raise ValueError(f"unknown columns {unknown}; known: {sorted(names.COLUMN_NAMES)}")
        self.names = frozenset(columns)
        self.bad_body = bad_body
        self.allocate = allocate
        self.errors: dict[int, str] = {}
        self.want_topic = names.TOPIC in columns
        self.want_body = names.BODY in columns
        self.want_block = names.PROPERTY_BLOCK in columns
        self.want_numbers = not self.names.isdisjoint(_FIXED_BYTES)
        self.parts = RecordParts()
        self.properties = PropertyColumns(columns)
        self.topic = TextColumn()
        self.body = TextColumn()
        self.block = TextColumn()

    def decode(self, pieces: Sequence[Readable]) -> Columns:
        """The columns of all records in ``pieces``, each of which holds whole records, in order.

        Raises:
            RecordError: a record is cut, has a wrong magic number or lengths that contradict each other, or
                holds an inner batch (topics with ``queue.type=BatchCQ``).
            CompressionError, DamagedBodyError: a body cannot be decompressed, or does not match its checksum,
                with :data:`FAIL`.
        """
        self.errors = {}
        size = sum(map(len, pieces))
        if size > MAX_CHUNK_BYTES:
            raise RecordError(f"a chunk of {size} bytes is over the limit of {MAX_CHUNK_BYTES}")
        self.rows = self.bodies_size = self.topics_size = self.props_size = self.compressed = self.damaged = 0
        self.properties.begin()
        for piece in pieces:
            bad = self._measure(piece, len(piece))
            if bad >= 0:
                raise RecordError(f"record at byte {bad} of {len(piece)} is cut, damaged or an inner batch")
        fixed = self._reserve()
        self.row = 0
        for piece in pieces:
            self._fill(piece, len(piece))
        return self._finish(pieces, fixed)

    def _measure(self, src: Readable, end: int) -> int:
        """Check every record and add up the space; -1, or the position of the first bad record."""
        if cython.compiled:
            buf = cython.address(src[0])
        else:
            buf = src
        at = 0
        while at < end:
            if not self.parts.find(buf, at, end):
                return at
            self.rows += 1
            self.bodies_size += self.parts.body_bytes
            self.topics_size += self.parts.topic_bytes
            self.props_size += self.parts.props_bytes
            self.compressed += self.parts.sys_flag & 1
            if self.want_body and self._is_damaged(buf, at):
                self.damaged += 1
            if self.properties.any:
                self.properties.count(buf, self.parts)
            at += self.parts.total
        return -1

    def _is_damaged(self, buf: Readable, at: int) -> bool:
        """Whether the body of the record found at ``at`` does not match its checksum; a checksum of 0 means
        that there is none."""
        expected = get_i32(buf, at + CRC_AT)
        return expected != 0 and expected != crc32(buf, self.parts.body_at, self.parts.body_bytes)

    def _reserve(self) -> dict[str, bytearray]:
        """Make room for the values that :meth:`_measure` counted; returns the arrays of numbers by name."""
        rows = self.rows
        numbers = rows if self.want_numbers else 0
        fixed = {name: bytearray(width * numbers) for name, width in _FIXED_BYTES.items()}
        self.queue_ids = memoryview(fixed[names.QUEUE_ID]).cast("i")
        self.queue_offsets = memoryview(fixed[names.QUEUE_OFFSET]).cast("q")
        self.born = memoryview(fixed[names.BORN_TIMESTAMP]).cast("q")
        self.stored = memoryview(fixed[names.STORE_TIMESTAMP]).cast("q")
        self.reconsumed = memoryview(fixed[names.RECONSUME_TIMES]).cast("i")
        self.body_sizes = memoryview(fixed[names.BODY_SIZE]).cast("i")
        copies_bodies = self.want_body and not (self.compressed or self.damaged)
        self.topic.reserve(rows, self.topics_size if self.want_topic else 0, self.allocate)
        self.body.reserve(rows, self.bodies_size if copies_bodies else 0, self.allocate)
        self.block.reserve(rows, self.props_size if self.want_block else 0, self.allocate)
        self.properties.reserve(self.allocate)
        return fixed

    def _fill(self, src: Readable, end: int) -> None:
        """Write every column; the records were checked by :meth:`_measure`."""
        if cython.compiled:
            buf = cython.address(src[0])
        else:
            buf = src
        at = 0
        row = self.row
        while at < end:
            self.parts.find(buf, at, end)
            if self.want_numbers:
                self.queue_ids[row] = get_i32(buf, at + QUEUE_ID_AT)
                self.queue_offsets[row] = get_i64(buf, at + QUEUE_OFFSET_AT)
                self.born[row] = get_i64(buf, at + BORN_TIME_AT)
                self.stored[row] = get_i64(buf, self.parts.store_at)
                self.reconsumed[row] = get_i32(buf, self.parts.tail_at)
                self.body_sizes[row] = self.parts.body_bytes
            if self.want_topic:
                self.topic.add(buf, self.parts.topic_at, self.parts.topic_bytes)
            if self.want_block:
                self.block.add(buf, self.parts.props_at, self.parts.props_bytes)
            if self.want_body and not (self.compressed or self.damaged):
                self.body.add(buf, self.parts.body_at, self.parts.body_bytes)
            if self.properties.any:
                self.properties.add(buf, at, self.parts)
            row += 1
            at += self.parts.total
        self.row = row

    def _finish(self, pieces: Sequence[Readable], fixed: dict[str, bytearray]) -> Columns:
        texts = self.properties.texts()
        if self.want_topic:
            texts[names.TOPIC] = self.topic.finish()
        if self.want_block:
            texts[names.PROPERTY_BLOCK] = self.block.finish()
        if self.want_body:
            texts[names.BODY] = (
                self._one_by_one(pieces) if self.compressed or self.damaged else self.body.finish()
            )
        numbers = {name: Fixed(values) for name, values in fixed.items() if name in self.names}
        return Columns(self.rows, numbers, texts, self.properties.maps(), self.errors)

    # -- compressed and damaged bodies: the one place with an object per message -----------------------

    def _one_by_one(self, pieces: Sequence[Readable]) -> Text:
        """The body column of records some of which have compressed or damaged bodies."""
        bodies: list[bytes] = []
        for piece in pieces:
            self._add_bodies(bytes(piece), bodies)
        size = 0
        offset_bytes = bytearray(4 * (self.rows + 1))
        offsets = memoryview(offset_bytes).cast("i")
        for row, body in enumerate(bodies, 1):
            size += len(body)
            if size > 0x7FFFFFFF:
                raise RecordError(f"the decompressed bodies of {self.rows} messages are over 2 GiB")
            offsets[row] = size
        return Text(offset_bytes, b"".join(bodies), size, self._validity())

    def _add_bodies(self, src: bytes, bodies: list[bytes]) -> None:
        at = 0
        while at < len(src):
            self._find(src, at)
            body = src[self.parts.body_at : self.parts.body_at + self.parts.body_bytes]
            if self.damaged and self._looks_damaged(src, at):
                error = DamagedBodyError("the body does not match its checksum")
                body = self._instead(body, len(bodies), self._place(src, at), error)
            elif self.parts.sys_flag & 1:
                body = self._readable(body, len(bodies), self._place(src, at))
            bodies.append(body)
            at += self.parts.total

    def _find(self, src: Readable, at: int) -> None:
        if cython.compiled:
            self.parts.find(cython.address(src[0]), at, len(src))
        else:
            self.parts.find(src, at, len(src))

    def _looks_damaged(self, src: Readable, at: int) -> bool:
        if cython.compiled:
            return self._is_damaged(cython.address(src[0]), at)
        return self._is_damaged(src, at)

    def _place(self, src: Readable, at: int) -> tuple[int, int]:
        """Queue id and queue offset of the record at ``at``."""
        if cython.compiled:
            buf = cython.address(src[0])
        else:
            buf = src
        return get_i32(buf, at + QUEUE_ID_AT), get_i64(buf, at + QUEUE_OFFSET_AT)

    def _readable(self, body: bytes, row: int, place: tuple[int, int]) -> bytes:
        """The decompressed body, or its substitute."""
        try:
            return decompress(body, (self.parts.sys_flag >> 8) & 7)
        except CompressionError as error:
            return self._instead(body, row, place, error)

    def _instead(
        self, body: bytes, row: int, place: tuple[int, int], error: CompressionError | DamagedBodyError
    ) -> bytes:
        """The substitute for a body that cannot be read.

        Raises:
            CompressionError, DamagedBodyError: with :data:`FAIL`.
        """
        text = f"queue {place[0]}, offset {place[1]}: {error}"
        if self.bad_body == FAIL:
            raise type(error)(text) from error
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
