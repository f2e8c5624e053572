# cython: annotation_typing=False
"""Responses of the fast path, encoded one behind the other, in both header formats.

Typed in ``responses.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. A response
takes at most ``room`` bytes besides its body and the ids of a batch; callers keep that room free.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.layout import Texts
    from orbitmq.runtime.buffers import Readable, Writable
    from orbitmq.wire.scan import HeaderScan

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import put_decimal, put_hex
    from orbitmq.message.octets import copy, get_i32, move, put_i16, put_i32

# Numbers of the constant texts, in the order of ``layout.texts``.
HOST_HEX = 0
JSON_SEND_IDS = 1
JSON_QUEUE_ID = 2
JSON_QUEUE_OFFSET = 3
JSON_TRANSACTION_ID = 4
JSON_OPAQUE = 5
JSON_END = 6
BINARY_SEND_IDS = 7
BINARY_QUEUE_ID = 8
BINARY_QUEUE_OFFSET = 9
BINARY_TRANSACTION_ID = 10
JSON_GROUP_FLAG = 11
JSON_PULL_MAX = 12
JSON_MIN_OFFSET = 13
JSON_NEXT_OFFSET = 14
JSON_TOPIC_FLAG = 15
JSON_PULL_OPAQUE = 16
JSON_PULL_END = 17
BINARY_REMARK = 18
BINARY_GROUP_FLAG = 19
BINARY_MAX_OFFSET = 20
BINARY_MIN_OFFSET = 21
BINARY_NEXT_OFFSET = 22
BINARY_TOPIC_FLAG = 23
BINARY_SUGGEST = 24

# The longest a response's numbers, ids and lengths can be, without the constant texts.
NUMBERS_BYTES = 512 + layout.MAX_UNIQUE_KEY


class Responses:
    """An output buffer with encoded responses.

    Args:
        texts: constant parts, see ``layout.texts``.
        size_bytes: how much the buffer holds besides the room of one response.
    """

    def __init__(self, texts: Texts, size_bytes: int) -> None:
        self.text = texts.text
        self.parts = array("q", texts.bounds)
        self.language = texts.language
        self.version = texts.version
        self.room = len(texts.text) + NUMBERS_BYTES
        self.size = size_bytes + self.room
        # The header of a pull response is first written behind the buffer: its length is not known before.
        self.data = bytearray(self.size + self.room)
        self.view = self.data
        self.used = 0
        self.head = self.room

    def take(self) -> bytes:
        """The encoded bytes; the buffer is empty afterwards."""
        if cython.compiled:
            out = cython.address(self.view[0])
            data = out[: self.used]
        else:
            data = bytes(memoryview(self.data)[: self.used])
        self.used = 0
        return data

    def has_room(self, more_bytes: int) -> bool:
        """Whether one more response fits, with ``more_bytes`` of body or ids."""
        return self.used + self.room + more_bytes <= self.size

    def _text(self, out: Writable, at: int, part: int) -> int:
        """Write constant text number ``part``; returns the position behind it."""
        start = self.parts[part]
        length = self.parts[part + 1] - start
        if cython.compiled:
            copy(out, at, cython.address(self.text[0]), start, length)
        else:
            copy(out, at, self.text, start, length)
        return at + length

    # -- send ------------------------------------------------------------------------------------------

    def answer_send(
        self,
        scan: HeaderScan,
        physical: int,
        queue_id: int,
        queue_offset: int,
        count: int,
        records: Readable,
        unique: Readable,
        unique_at: int,
        unique_length: int,
    ) -> None:
        """Encode the response to a send.

        Args:
            physical, count: where the first stored record is, and how many there are.
            records: a buffer that begins with these records.
            unique, unique_at, unique_length: the UNIQ_KEY to repeat; no UNIQ_KEY when the length is 0.
        """
        if cython.compiled:
            out = cython.address(self.view[0])
        else:
            out = self.data
        start = self.used
        if scan.binary:
            at = self._binary_head(out, start + 8, scan.opaque, 0)
            fields = at
            at = self._text(out, at, BINARY_SEND_IDS)
            at = self._close(out, at, self._ids(out, at, physical, count, records))
            at = self._text(out, at, BINARY_QUEUE_ID)
            at = self._close(out, at, put_decimal(out, at, queue_id))
            at = self._text(out, at, BINARY_QUEUE_OFFSET)
            at = self._close(out, at, put_decimal(out, at, queue_offset))
            if unique_length > 0:
                at = self._text(out, at, BINARY_TRANSACTION_ID)
                copy(out, at, unique, unique_at, unique_length)
                at = self._close(out, at, at + unique_length)
            self._close(out, fields, at)
        else:
            at = self._text(out, start + 8, JSON_SEND_IDS)
            at = self._ids(out, at, physical, count, records)
            at = self._text(out, at, JSON_QUEUE_ID)
            at = put_decimal(out, at, queue_id)
            at = self._text(out, at, JSON_QUEUE_OFFSET)
            at = put_decimal(out, at, queue_offset)
            if unique_length > 0:
                at = self._text(out, at, JSON_TRANSACTION_ID)
                copy(out, at, unique, unique_at, unique_length)
                at += unique_length
            at = self._text(out, at, JSON_OPAQUE)
            at = put_decimal(out, at, scan.opaque)
            at = self._text(out, at, JSON_END)
        self._finish(out, start, at, at, scan.binary)

    def _ids(self, out: Writable, at: int, physical: int, count: int, records: Readable) -> int:
        """Offset message ids of ``count`` records from ``physical`` on, joined by commas."""
        place = 0
        for i in range(count):
            if i > 0:
                out[at] = 0x2C
                at += 1
            at = self._text(out, at, HOST_HEX)
            at = put_hex(out, at, physical + place, 16)
            if i + 1 < count:
                place += get_i32(records, place)
        return at

    # -- pull ------------------------------------------------------------------------------------------

    def body_at(self) -> int:
        """Where to put the body of the next pull response, assuming a header as long as the last one."""
        return self.used + self.head

    def body_room(self) -> int:
        """The most bytes of that body, however long the header becomes."""
        return self.size - self.used - self.room

    def answer_pull(
        self,
        scan: HeaderScan,
        lowest: int,
        highest: int,
        following: int,
        topic_flag: int,
        group_flag: int,
        body_length: int,
        in_place: bool,
    ) -> None:
        """Encode the response to a pull whose body stands at :meth:`body_at`.

        Args:
            lowest, highest: offsets of the queue; ``following``: the offset of the next pull.
            in_place: whether the body is elsewhere, and is sent after the bytes that :meth:`take` returns.
        """
        if cython.compiled:
            out = cython.address(self.view[0])
        else:
            out = self.data
        at = self.size
        if scan.binary:
            at = self._binary_pull(out, at, scan, lowest, highest, following, topic_flag, group_flag)
        else:
            at = self._text(out, at, JSON_GROUP_FLAG)
            at = put_decimal(out, at, group_flag)
            at = self._text(out, at, JSON_PULL_MAX)
            at = put_decimal(out, at, highest)
            at = self._text(out, at, JSON_MIN_OFFSET)
            at = put_decimal(out, at, lowest)
            at = self._text(out, at, JSON_NEXT_OFFSET)
            at = put_decimal(out, at, following)
            at = self._text(out, at, JSON_TOPIC_FLAG)
            at = put_decimal(out, at, topic_flag)
            at = self._text(out, at, JSON_PULL_OPAQUE)
            at = put_decimal(out, at, scan.opaque)
            at = self._text(out, at, JSON_PULL_END)
        length = at - self.size
        start = self.used
        at = start + 8 + length
        if at != self.body_at() and not in_place:
            move(out, at, self.body_at(), body_length)
            self.head = 8 + length
        copy(out, start + 8, out, self.size, length)
        self._finish(out, start, at, at + body_length, scan.binary)
        if in_place:
            self.used = at

    def _binary_pull(
        self,
        out: Writable,
        at: int,
        scan: HeaderScan,
        lowest: int,
        highest: int,
        following: int,
        topic_flag: int,
        group_flag: int,
    ) -> int:
        at = self._binary_head(out, at, scan.opaque, 1)
        fields = at
        at = self._text(out, at, BINARY_GROUP_FLAG)
        at = self._close(out, at, put_decimal(out, at, group_flag))
        at = self._text(out, at, BINARY_MAX_OFFSET)
        at = self._close(out, at, put_decimal(out, at, highest))
        at = self._text(out, at, BINARY_MIN_OFFSET)
        at = self._close(out, at, put_decimal(out, at, lowest))
        at = self._text(out, at, BINARY_NEXT_OFFSET)
        at = self._close(out, at, put_decimal(out, at, following))
        at = self._text(out, at, BINARY_TOPIC_FLAG)
        at = self._close(out, at, put_decimal(out, at, topic_flag))
        at = self._text(out, at, BINARY_SUGGEST)
        return self._close(out, fields, at)

    # -- frames ----------------------------------------------------------------------------------------

    def _binary_head(self, out: Writable, at: int, opaque: int, remark: int) -> int:
        """A binary header up to its fields, whose length :meth:`_close` fills in."""
        put_i16(out, at, 0)
        out[at + 2] = self.language
        put_i16(out, at + 3, self.version)
        put_i32(out, at + 5, opaque)
        put_i32(out, at + 9, 1)
        start = at + 17
        at = start
        if remark:
            at = self._text(out, at, BINARY_REMARK)
        self._close(out, start, at)
        return at + 4

    def _close(self, out: Writable, value_at: int, at: int) -> int:
        """Fill in the length field that ends at ``value_at``, for the value from there to ``at``."""
        put_i32(out, value_at - 4, at - value_at)
        return at

    def _finish(self, out: Writable, start: int, header_end: int, end: int, kind: int) -> None:
        put_i32(out, start, end - start - 4)
        put_i32(out, start + 4, (kind << 24) | (header_end - start - 8))
        self.used = end
