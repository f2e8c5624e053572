# cython: annotation_typing=False
"""Checks records of the commit log, whether they are whole and undamaged, and finds their parts.

Recovery, the message index, a slave's appends and every follower of the log read records with
:class:`RecordReader`. Typed in ``records.pxd`` and compiled when a C compiler is there; the same text runs
uncompiled. Compiled, it touches no Python object while it reads. Nothing here does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.message import record_layout
from orbitmq.store.queues import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import crc32, find, get_i16, get_i32, get_i64

MAGIC_V1 = record_layout.MAGIC_V1
MAGIC_V2 = record_layout.MAGIC_V2
MAGIC_BLANK = record_layout.MAGIC_BLANK
CRC_AT = record_layout.CRC_AT
QUEUE_ID_AT = record_layout.QUEUE_ID_AT
QUEUE_OFFSET_AT = record_layout.QUEUE_OFFSET_AT
PHYSICAL_OFFSET_AT = record_layout.PHYSICAL_OFFSET_AT
SYS_FLAG_AT = record_layout.SYS_FLAG_AT
BORN_HOST_AT = record_layout.BORN_HOST_AT
HOST_V4_BYTES = record_layout.HOST_V4_BYTES
HOST_V6_BYTES = record_layout.HOST_V6_BYTES
BORN_V6 = record_layout.BORN_HOST_V6_BIT
STORE_V6 = record_layout.STORE_HOST_V6_BIT
BODY_LENGTH_AT = record_layout.BODY_LENGTH_AFTER_STORE_HOST
MIN_RECORD_BYTES = record_layout.MIN_RECORD_BYTES
BLANK_BYTES = record_layout.BLANK_BYTES

RECORD = layout.RECORD
BLANK = layout.BLANK
CUT = layout.CUT
BAD_SIZE = layout.BAD_SIZE
BAD_MAGIC = layout.BAD_MAGIC
BAD_PLACE = layout.BAD_PLACE
BAD_LENGTHS = layout.BAD_LENGTHS
BAD_CRC = layout.BAD_CRC
# The fewest bytes that a device writes at once.
DEVICE_BLOCK_BYTES = 512

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def hash_on(h: int, buf: Readable, at: int, end: int) -> int:
    """Java's ``String.hashCode`` of UTF-8 text, continued from ``h``; invalid UTF-8 counts as U+FFFD."""
    while at < end:
        # Four ASCII letters at a time, as each multiplication waits for the previous one.
        while end - at >= 4 and (buf[at] | buf[at + 1] | buf[at + 2] | buf[at + 3]) < 0x80:
            h = (h * 923521 + buf[at] * 29791 + buf[at + 1] * 961 + buf[at + 2] * 31 + buf[at + 3]) & _MASK
            at += 4
        if at == end:
            break
        c = buf[at]
        at += 1
        if c >= 0x80:
            if 0xC2 <= c < 0xE0 and at < end:
                c = ((c & 0x1F) << 6) | (buf[at] & 0x3F)
                at += 1
            elif 0xE0 <= c < 0xF0 and at + 1 < end:
                c = ((c & 0x0F) << 12) | ((buf[at] & 0x3F) << 6) | (buf[at + 1] & 0x3F)
                at += 2
            elif 0xF0 <= c < 0xF5 and at + 2 < end:
                c = (
                    ((c & 0x07) << 18)
                    | ((buf[at] & 0x3F) << 12)
                    | ((buf[at + 1] & 0x3F) << 6)
                    | (buf[at + 2] & 0x3F)
                )
                at += 3
                # Java hashes the two surrogates one after the other.
                h = (h * 31 + 0xD800 + ((c - 0x10000) >> 10)) & _MASK
                c = 0xDC00 + (c & 0x3FF)
            else:
                c = 0xFFFD
        h = (h * 31 + c) & _MASK
    return h


class RecordReader:
    """Checks one record after the other and finds its parts.

    Attributes:
        size: of the record or the blank, bytes.
        queue_id, queue_offset, physical, sys_flag: as stored.
        store_time: ms.
        body_at, body_end, topic_at, topic_end, props_at, props_end: places in the buffer.
        tags_at, tags_end, keys_at, keys_end, id_at, id_end: places of the values of TAGS, KEYS and UNIQ_KEY,
            after :meth:`find_properties`; both 0 when there is none.
    """

    def __init__(self) -> None:
        self.size = 0
        self.queue_id = 0
        self.queue_offset = 0
        self.physical = 0
        self.sys_flag = 0
        self.store_time = 0
        self.body_at = self.body_end = 0
        self.topic_at = self.topic_end = 0
        self.props_at = self.props_end = 0
        self.tags_at = self.tags_end = 0
        self.keys_at = self.keys_end = 0
        self.id_at = self.id_end = 0

    def read(self, buf: Readable, at: int, have: int, limit: int, physical: int, check_crc: int) -> int:
        """Check the record that begins at ``at``; returns RECORD, BLANK, CUT or one of BAD_*.

        Args:
            have: the end of the written bytes in ``buf``.
            limit: the end of the log file that the bytes belong to.
            physical: the log offset of ``at``; -1: it is not compared with the record's own.
            check_crc: compare the body with its checksum too.
        """
        if have - at < BLANK_BYTES:
            return CUT
        self.size = get_i32(buf, at)
        magic = get_i32(buf, at + 4)
        if magic == MAGIC_BLANK:
            return BLANK if self.size == limit - at else BAD_SIZE
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return BAD_MAGIC
        if self.size < MIN_RECORD_BYTES or self.size > limit - at:
            return BAD_SIZE
        if self.size > have - at:
            return CUT
        self.physical = get_i64(buf, at + PHYSICAL_OFFSET_AT)
        if physical >= 0 and self.physical != physical:
            return BAD_PLACE
        return self._parts(buf, at, magic == MAGIC_V2, check_crc)

    def _parts(self, buf: Readable, at: int, wide: int, check_crc: int) -> int:
        end = at + self.size
        self.queue_id = get_i32(buf, at + QUEUE_ID_AT)
        self.queue_offset = get_i64(buf, at + QUEUE_OFFSET_AT)
        self.sys_flag = get_i32(buf, at + SYS_FLAG_AT)
        pos = at + BORN_HOST_AT + (HOST_V6_BYTES if self.sys_flag & BORN_V6 else HOST_V4_BYTES)
        self.store_time = get_i64(buf, pos)
        pos += 8 + (HOST_V6_BYTES if self.sys_flag & STORE_V6 else HOST_V4_BYTES) + BODY_LENGTH_AT
        if pos + 7 > end:
            return BAD_LENGTHS
        length = get_i32(buf, pos)
        self.body_at = pos + 4
        if length < 0 or length > end - self.body_at - 3:
            return BAD_LENGTHS
        self.body_end = pos = self.body_at + length
        if wide:
            if pos + 4 > end:
                return BAD_LENGTHS
            length = get_i16(buf, pos)
            pos += 2
        else:
            length = buf[pos]
            pos += 1
        if length <= 0 or length > end - pos - 2:
            return BAD_LENGTHS
        self.topic_at = pos
        self.topic_end = pos = pos + length
        length = get_i16(buf, pos)
        self.props_at = pos + 2
        self.props_end = end
        if length != end - self.props_at:
            return BAD_LENGTHS
        if check_crc:
            expected = get_i32(buf, at + CRC_AT)
            if expected != crc32(buf, self.body_at, self.body_end - self.body_at):
                return BAD_CRC
        return RECORD

    def has_hole(self, buf: Readable) -> bool:
        """Whether a power loss left a hole in the last record read, outside of the body.

        The checksum covers only the body. A hole of zeros ends at the end of a block or of the written log;
        topics and properties have no zero bytes, so a zero at such a place shows a hole. ``buf`` is a whole
        log file.
        """
        if self.store_time == 0 or buf[self.topic_end - 1] == 0:
            return True
        if self.props_end > self.props_at and buf[self.props_end - 1] == 0:
            return True
        last = (self.topic_at // DEVICE_BLOCK_BYTES + 1) * DEVICE_BLOCK_BYTES - 1
        while last < self.props_end:
            if buf[last] == 0 and (last < self.topic_end or last >= self.props_at):
                return True
            last += DEVICE_BLOCK_BYTES
        return False

    def find_properties(self, buf: Readable) -> None:
        """Find TAGS, KEYS and UNIQ_KEY of the last record read.

        A pair without a value does not count; of equal names the last one counts
        (MessageDecoder.string2messageProperties).
        """
        self.tags_at = self.tags_end = self.keys_at = self.keys_end = self.id_at = self.id_end = 0
        pos = self.props_at
        end = self.props_end
        while pos < end:
            stop = find(buf, 2, pos, end)
            if stop - pos > 5:
                if buf[pos + 4] == 1:
                    if buf[pos] == 84 and buf[pos + 1] == 65 and buf[pos + 2] == 71 and buf[pos + 3] == 83:
                        self.tags_at = pos + 5
                        self.tags_end = stop
                    elif buf[pos] == 75 and buf[pos + 1] == 69 and buf[pos + 2] == 89 and buf[pos + 3] == 83:
                        self.keys_at = pos + 5
                        self.keys_end = stop
                elif (
                    stop - pos > 9 and buf[pos] == 85 and buf[pos + 8] == 1 and self._is_unique_key(buf, pos)
                ):
                    self.id_at = pos + 9
                    self.id_end = stop
            pos = stop + 1

    def _is_unique_key(self, buf: Readable, pos: int) -> bool:
        """Whether the name at ``pos``, which begins with U, is UNIQ_KEY."""
        return (
            buf[pos + 1] == 78
            and buf[pos + 2] == 73
            and buf[pos + 3] == 81
            and buf[pos + 4] == 95
            and buf[pos + 5] == 75
            and buf[pos + 6] == 69
            and buf[pos + 7] == 89
        )

    def tags_code(self, buf: Readable) -> int:
        """The tags code of the record's consume queue entry: the Java hash of TAGS, 0 without tags.

        Call :meth:`find_properties` before.
        """
        h = hash_on(0, buf, self.tags_at, self.tags_end)
        if cython.compiled:
            return cython.cast(cython.int, h)
        return (h ^ _SIGN) - _SIGN

    # -- for callers in Python -------------------------------------------------------------------------

    def read_at(self, view: Readable, at: int, physical: int, check_crc: bool) -> int:
        """:meth:`read` of a whole log file, or of bytes that end where their log file does."""
        length = len(view)
        if length == 0 or at < 0:
            return CUT
        if cython.compiled:
            return self.read(cython.address(view[0]), at, length, length, physical, check_crc)
        return self.read(view, at, length, length, physical, check_crc)
