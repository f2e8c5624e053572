# cython: annotation_typing=False
"""The inner loop of the store: records into the log's turn buffer, index entries into memory, and reads.

A *turn* is everything appended between two writes to the file: :class:`Appender` builds the records in one
buffer, gives out physical and queue offsets, and keeps the newest index entries of each queue in a ring.
At the end of the turn the commit log writes the buffer with one ``pwrite``, calls :meth:`Appender.publish`,
and the records are visible to reads. Nothing here does I/O.

Typed in ``appender.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Queues are
rows of one integer table, so that the compiled code needs no Python object while it works.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.store import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable

# C integers in the compiled module, so that no Python object is touched on the path of a message.
Q_NEXT = layout.Q_NEXT
Q_VISIBLE = layout.Q_VISIBLE
Q_MIN = layout.Q_MIN
Q_TAIL = layout.Q_TAIL
Q_TAIL_FIRST = layout.Q_TAIL_FIRST
Q_SAVED = layout.Q_SAVED
Q_DIRTY = layout.Q_DIRTY
Q_WATCHED = layout.Q_WATCHED
Q_MAP_FIRST = layout.Q_MAP_FIRST
Q_MAP_COUNT = layout.Q_MAP_COUNT
Q_LAST_STORED = layout.Q_LAST_STORED
Q_WIDTH = layout.Q_WIDTH
NO_ROOM = layout.NO_ROOM
ROLL = layout.ROLL
TAIL_FULL = layout.TAIL_FULL
READ_FOUND = layout.READ_FOUND
READ_NO_MATCH = layout.READ_NO_MATCH
READ_NEED_INDEX = layout.READ_NEED_INDEX
READ_NEED_LOG = layout.READ_NEED_LOG
READ_NO_SPACE = layout.READ_NO_SPACE
READ_BROKEN = layout.READ_BROKEN
MAGIC_V1 = layout.MAGIC_V1
MAGIC_V2 = layout.MAGIC_V2
RECORD_FIXED_BYTES = layout.RECORD_FIXED_BYTES
END_OF_FILE_RESERVE = layout.END_OF_FILE_RESERVE
CQ_ENTRY_BYTES = layout.CQ_ENTRY_BYTES
SCAN_LIMIT = layout.SCAN_LIMIT


def _crc_table() -> Integers:
    table = array("I", bytes(4 * 256 * 8))
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        table[n] = c
    for n in range(256):
        c = table[n]
        for k in range(1, 8):
            c = table[c & 0xFF] ^ (c >> 8)
            table[k * 256 + n] = c
    return table


_TABLE = _crc_table()


def crc32(buf: Readable, pos: int, length: int) -> int:
    """CRC-32 of ``length`` bytes at ``pos`` with the sign bit cleared, as RocketMQ keeps it."""
    if cython.compiled:
        return _crc32_by_eight(_TABLE, buf, pos, length)
    return zlib.crc32(buf[pos : pos + length]) & 0x7FFFFFFF


def _crc32_by_eight(t: Integers, buf: Readable, pos: int, length: int) -> int:
    c = 0xFFFFFFFF
    end = pos + length
    while end - pos >= 8:
        c ^= (
            buf[pos]
            | (buf[pos + 1] << 8)
            | (buf[pos + 2] << 16)
            | (cython.cast(cython.uint, buf[pos + 3]) << 24)
        )
        c = (
            t[1792 + (c & 0xFF)]
            ^ t[1536 + ((c >> 8) & 0xFF)]
            ^ t[1280 + ((c >> 16) & 0xFF)]
            ^ t[1024 + (c >> 24)]
            ^ t[768 + buf[pos + 4]]
            ^ t[512 + buf[pos + 5]]
            ^ t[256 + buf[pos + 6]]
            ^ t[buf[pos + 7]]
        )
        pos += 8
    while pos < end:
        c = t[(c ^ buf[pos]) & 0xFF] ^ (c >> 8)
        pos += 1
    return ~c & 0x7FFFFFFF


def copy(out: Writable, at: int, source: Readable, pos: int, length: int) -> None:
    if cython.compiled:
        memcpy(cython.address(out[at]), cython.address(source[pos]), length)
    else:
        out[at : at + length] = source[pos : pos + length]


def put_i16(out: Writable, at: int, value: int) -> None:
    out[at] = (value >> 8) & 0xFF
    out[at + 1] = value & 0xFF


def put_i32(out: Writable, at: int, value: int) -> None:
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF


def put_i64(out: Writable, at: int, value: int) -> None:
    put_i32(out, at, value >> 32)
    put_i32(out, at + 4, value)


def get_i32(buf: Readable, pos: int) -> int:
    if cython.compiled:
        return cython.cast(
            cython.int,
            (cython.cast(cython.uint, buf[pos]) << 24)
            | (buf[pos + 1] << 16)
            | (buf[pos + 2] << 8)
            | buf[pos + 3],
        )
    return int.from_bytes(buf[pos : pos + 4], "big", signed=True)


def get_i64(buf: Readable, pos: int) -> int:
    if cython.compiled:
        return (cython.cast(cython.longlong, get_i32(buf, pos)) << 32) | cython.cast(
            cython.uint, get_i32(buf, pos + 4)
        )
    return int.from_bytes(buf[pos : pos + 8], "big", signed=True)


class Appender:
    """See the module. Offsets are bytes in the log (physical) or entries of a queue.

    Args:
        turn_bytes: size of the turn buffer; at least the largest record.
        tail_entries: index entries kept in memory for each queue.
        segment_bytes: size of a log file.
        store_host: this broker's address as 4 (IPv4) or 16 (IPv6) bytes and a 4 byte port.
    """

    def __init__(self, turn_bytes: int, tail_entries: int, segment_bytes: int, store_host: bytes) -> None:
        self.turn = bytearray(turn_bytes)
        self.turn_view = self.turn
        self.turn_room = turn_bytes
        self.turn_used = 0
        self.turn_base = 0
        self.turn_records = 0
        self.file_end = segment_bytes
        self.segment_bytes = segment_bytes
        self.tail_entries = tail_entries
        self.host = store_host
        self.host_view = store_host
        self.host_length = len(store_host)
        self.rows = 0
        self.q = array("q", bytes(8 * Q_WIDTH * 16))
        self.tails = array("q", bytes(8 * 3))
        self.tails_used = 0
        self.dirty = array("q", bytes(8 * 16))
        self.dirty_count = 0
        self.filters = array("q", bytes(8 * 64))
        self.now_ms = 0
        self.log_slots = 0
        self.index_map_slots = 0
        self.log_first = 0
        self.kept_index_maps: dict[int, memoryview] = {}
        self.kept_log_maps: dict[int, memoryview] = {}
        if not cython.compiled:
            self.index_maps: list[Any] = [None] * 16
            self.log_maps: list[Any] = []
        self._grow_index_maps(16)

    # -- rows: Python side, never on the path of a message ---------------------------------------------

    def add_row(self, next_offset: int, min_offset: int) -> int:
        """A new queue whose file holds the entries up to ``next_offset``; returns its row number."""
        row = self.rows
        if (row + 1) * Q_WIDTH > len(self.q):
            self.q = array("q", bytes(self.q) + bytes(8 * len(self.q)))
            self.dirty = array("q", bytes(self.dirty) + bytes(8 * len(self.dirty)))
            self._grow_index_maps(len(self.q) // Q_WIDTH)
        self.rows = row + 1
        base = row * Q_WIDTH
        for column in range(Q_WIDTH):
            self.q[base + column] = 0
        self.q[base + Q_TAIL] = -1
        self.reset_row(row, next_offset, min_offset)
        return row

    def reset_row(self, row: int, next_offset: int, min_offset: int) -> None:
        base = row * Q_WIDTH
        self.q[base + Q_NEXT] = next_offset
        self.q[base + Q_VISIBLE] = next_offset
        self.q[base + Q_TAIL_FIRST] = next_offset
        self.q[base + Q_SAVED] = next_offset
        self.q[base + Q_MIN] = min_offset
        self.q[base + Q_MAP_COUNT] = 0

    def get(self, row: int, column: int) -> int:
        return self.q[row * Q_WIDTH + column]

    def set(self, row: int, column: int, value: int) -> None:
        self.q[row * Q_WIDTH + column] = value

    def prepare_tail(self, row: int) -> None:
        """Give the queue its ring. Must be called before its first append."""
        if self.q[row * Q_WIDTH + Q_TAIL] >= 0:
            return
        size = 3 * self.tail_entries
        if self.tails_used + size > len(self.tails):
            self.tails = array("q", bytes(self.tails) + bytes(8 * max(size, len(self.tails))))
        self.q[row * Q_WIDTH + Q_TAIL] = self.tails_used
        self.tails_used += size

    def _grow_index_maps(self, count: int) -> None:
        if cython.compiled:
            self._realloc_index_maps(count)
        else:
            self.index_maps.extend([None] * (count - len(self.index_maps)))

    def _realloc_index_maps(self, count: int) -> None:
        fresh = cython.cast(bytes_pp, calloc(count, cython.sizeof(cython.p_char)))
        if fresh == cython.NULL:
            raise MemoryError("index maps")
        if self.index_maps != cython.NULL:
            memcpy(fresh, self.index_maps, self.index_map_slots * cython.sizeof(cython.p_char))
            free(self.index_maps)
        self.index_maps = fresh
        self.index_map_slots = count

    def __dealloc__(self) -> None:
        if cython.compiled:
            free(self.index_maps)
            free(self.log_maps)

    def set_index_map(self, row: int, view: memoryview, first_offset: int, count: int) -> None:
        """Let reads of the queue use ``view``: a consume queue file whose entry 0 has ``first_offset``."""
        self.kept_index_maps[row] = view
        if cython.compiled:
            self._point_index(row, view)
        else:
            self.index_maps[row] = view
        self.q[row * Q_WIDTH + Q_MAP_FIRST] = first_offset
        self.q[row * Q_WIDTH + Q_MAP_COUNT] = count

    def _point_index(self, row: int, view: Readable) -> None:
        self.index_maps[row] = cython.address(view[0])

    def drop_index_map(self, row: int) -> None:
        self.q[row * Q_WIDTH + Q_MAP_COUNT] = 0
        self.kept_index_maps.pop(row, None)

    def set_log_maps(self, first: int, views: list[memoryview]) -> None:
        """Let reads use the log files number ``first``, ``first`` + 1, ..., each of ``segment_bytes``."""
        self.kept_log_maps = dict(enumerate(views, first))
        self.log_first = first
        self.log_slots = len(views)
        if cython.compiled:
            self._point_log(views)
        else:
            self.log_maps = list(views)

    def _point_log(self, views: list[memoryview]) -> None:
        fresh = cython.cast(bytes_pp, calloc(len(views) + 1, cython.sizeof(cython.p_char)))
        if fresh == cython.NULL:
            raise MemoryError("log maps")
        free(self.log_maps)
        self.log_maps = fresh
        for i in range(len(views)):
            if views[i] is not None:
                self._point_one_log(i, views[i])

    def _point_one_log(self, i: int, view: Readable) -> None:
        self.log_maps[i] = cython.address(view[0])

    # -- the turn --------------------------------------------------------------------------------------

    def start_turn(self, base: int, file_end: int) -> None:
        """Forget the written records; the next one gets the physical offset ``base``."""
        self.turn_base = base
        self.file_end = file_end
        self.turn_used = 0
        self.turn_records = 0

    def publish(self) -> list[int]:
        """Make the turn's records visible; returns the rows that somebody watches."""
        arrived = []
        for i in range(self.dirty_count):
            row = self.dirty[i]
            base = row * Q_WIDTH
            self.q[base + Q_VISIBLE] = self.q[base + Q_NEXT]
            self.q[base + Q_DIRTY] = 0
            if self.q[base + Q_WATCHED]:
                arrived.append(row)
        self.dirty_count = 0
        return arrived

    def check_room(self, row: int, size_bytes: int, count: int) -> int:
        """0 when ``count`` records of ``size_bytes`` altogether can be appended now, else why not."""
        base = row * Q_WIDTH
        if self.turn_used + size_bytes > self.turn_room:
            return NO_ROOM
        if self.turn_base + self.turn_used + size_bytes + END_OF_FILE_RESERVE > self.file_end:
            return ROLL
        if (
            self.q[base + Q_TAIL] < 0
            or self.q[base + Q_NEXT] + count - self.q[base + Q_SAVED] > self.tail_entries
        ):
            return TAIL_FULL
        return 0

    def record_bytes(self, body_length: int, topic_length: int, props_length: int, born_length: int) -> int:
        """Size of the stored record."""
        size = RECORD_FIXED_BYTES + born_length + self.host_length + body_length + topic_length + props_length
        return size + 1 if topic_length > 127 else size

    def append(
        self,
        row: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: Readable,
        born_length: int,
        reconsume_times: int,
        prepared_offset: int,
        body: Readable,
        body_at: int,
        body_length: int,
        topic: Readable,
        topic_at: int,
        topic_length: int,
        props: Readable,
        props_at: int,
        props_length: int,
        tags_code: int,
    ) -> int:
        """Build one record in the turn buffer; its physical offset, or NO_ROOM, ROLL or TAIL_FULL."""
        size = self.record_bytes(body_length, topic_length, props_length, born_length)
        room = self.check_room(row, size, 1)
        if room != 0:
            return room
        if cython.compiled:
            out = cython.address(self.turn_view[0])
            host = cython.address(self.host_view[0])
        else:
            out = self.turn
            host = self.host
        at = self.turn_used
        physical = self.turn_base + at
        base = row * Q_WIDTH
        offset = self.q[base + Q_NEXT]
        if born_length > 8:
            sys_flag |= 0x10
        if self.host_length > 8:
            sys_flag |= 0x20
        put_i32(out, at, size)
        put_i32(out, at + 4, MAGIC_V2 if topic_length > 127 else MAGIC_V1)
        put_i32(out, at + 8, crc32(body, body_at, body_length))
        put_i32(out, at + 12, queue_id)
        put_i32(out, at + 16, flag)
        put_i64(out, at + 20, offset)
        put_i64(out, at + 28, physical)
        put_i32(out, at + 36, sys_flag)
        put_i64(out, at + 40, born_timestamp)
        at += 48
        copy(out, at, born, 0, born_length)
        at += born_length
        put_i64(out, at, self.now_ms)
        at += 8
        copy(out, at, host, 0, self.host_length)
        at += self.host_length
        put_i32(out, at, reconsume_times)
        put_i64(out, at + 4, prepared_offset)
        put_i32(out, at + 12, body_length)
        at += 16
        copy(out, at, body, body_at, body_length)
        at += body_length
        if topic_length > 127:
            put_i16(out, at, topic_length)
            at += 2
        else:
            out[at] = topic_length
            at += 1
        copy(out, at, topic, topic_at, topic_length)
        at += topic_length
        put_i16(out, at, props_length)
        copy(out, at + 2, props, props_at, props_length)
        self.turn_used += size
        self.turn_records += 1
        self._index(row, base, offset, physical, size, tags_code)
        return physical

    def _index(self, row: int, base: int, offset: int, physical: int, size: int, tags_code: int) -> None:
        entry = self.q[base + Q_TAIL] + (offset % self.tail_entries) * 3
        self.tails[entry] = physical
        self.tails[entry + 1] = size
        self.tails[entry + 2] = tags_code
        self.q[base + Q_NEXT] = offset + 1
        self.q[base + Q_LAST_STORED] = self.now_ms
        if self.q[base + Q_DIRTY] == 0:
            self.q[base + Q_DIRTY] = 1
            self.dirty[self.dirty_count] = row
            self.dirty_count += 1

    def export_index(self, row: int, first: int, last: int) -> bytearray:
        """Consume queue bytes of the offsets ``first`` to ``last`` - 1, which must be in the ring."""
        out = bytearray((last - first) * CQ_ENTRY_BYTES)
        tail = self.q[row * Q_WIDTH + Q_TAIL]
        for offset in range(first, last):
            entry = tail + (offset % self.tail_entries) * 3
            at = (offset - first) * CQ_ENTRY_BYTES
            if cython.compiled:
                self._export_entry(out, at, entry)
            else:
                put_i64(out, at, self.tails[entry])
                put_i32(out, at + 8, self.tails[entry + 1])
                put_i64(out, at + 12, self.tails[entry + 2])
        return out

    def _export_entry(self, out: Writable, at: int, entry: int) -> None:
        put_i64(cython.address(out[0]), at, self.tails[entry])
        put_i32(cython.address(out[0]), at + 8, self.tails[entry + 1])
        put_i64(cython.address(out[0]), at + 12, self.tails[entry + 2])

    # -- reads -----------------------------------------------------------------------------------------

    def find_entry(self, row: int, offset: int) -> int:
        """Load the index entry of ``offset``: READ_FOUND and ``entry_*`` filled, or READ_NEED_INDEX."""
        base = row * Q_WIDTH
        newest = self.q[base + Q_NEXT]
        if (
            self.q[base + Q_TAIL] >= 0
            and offset >= self.q[base + Q_TAIL_FIRST]
            and newest - offset <= self.tail_entries
        ):
            entry = self.q[base + Q_TAIL] + (offset % self.tail_entries) * 3
            self.entry_physical = self.tails[entry]
            self.entry_size = self.tails[entry + 1]
            self.entry_tags = self.tails[entry + 2]
            return READ_FOUND
        place = offset - self.q[base + Q_MAP_FIRST]
        if place < 0 or place >= self.q[base + Q_MAP_COUNT]:
            self.need = offset
            return READ_NEED_INDEX
        at = place * CQ_ENTRY_BYTES
        index = self.index_maps[row]
        self.entry_physical = get_i64(index, at)
        self.entry_size = get_i32(index, at + 8)
        self.entry_tags = get_i64(index, at + 12)
        return READ_FOUND

    def _matches(self, filter_at: int, filter_count: int) -> bool:
        if filter_count < 0:
            return True
        for i in range(filter_at, filter_at + filter_count):  # noqa: SIM110  # any() needs the GIL
            if self.filters[i] == self.entry_tags:
                return True
        return False

    def read(
        self,
        row: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        filter_at: int,
        filter_count: int,
        out: Writable,
        out_at: int,
        out_room: int,
    ) -> int:
        """Copy records of the queue from ``offset`` up to before ``last`` to ``out[out_at:]``.

        ``filter_count`` < 0 takes all, else only records whose tags code is in ``filters[filter_at:]``.
        Fills ``read_count``, ``read_bytes`` and ``read_next`` (the offset to go on with).
        """
        self.read_count = 0
        self.read_bytes = 0
        self.read_next = offset
        looked = 0
        while offset < last and looked < SCAN_LIMIT:
            status = self.find_entry(row, offset)
            if status != READ_FOUND:
                return status if self.read_count == 0 else READ_FOUND
            looked += 1
            if self._matches(filter_at, filter_count):
                size = self.entry_size
                if self.read_count > 0 and self.read_bytes + size > max_bytes:
                    break
                if self.read_bytes + size > out_room:
                    if self.read_count > 0:
                        break
                    return READ_NO_SPACE
                status = self._copy_record(out, out_at + self.read_bytes, self.entry_physical, size)
                if status != READ_FOUND:
                    return status if self.read_count == 0 else READ_FOUND
                self.read_bytes += size
                self.read_count += 1
            offset += 1
            self.read_next = offset
            if self.read_count >= max_count:
                break
        return READ_FOUND if self.read_count > 0 else READ_NO_MATCH

    def _copy_record(self, out: Writable, at: int, physical: int, size: int) -> int:
        slot = physical // self.segment_bytes - self.log_first
        within = physical % self.segment_bytes
        if physical < 0 or size < RECORD_FIXED_BYTES or within + size > self.segment_bytes:
            return READ_BROKEN
        if slot < 0 or slot >= self.log_slots:
            self.need = physical
            return READ_NEED_LOG
        log = self.log_maps[slot]
        if not log:
            self.need = physical
            return READ_NEED_LOG
        if get_i32(log, within) != size:
            return READ_BROKEN
        copy(out, at, log, within, size)
        return READ_FOUND

    # -- the same two for callers in Python ------------------------------------------------------------

    def append_message(
        self,
        row: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: bytes,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        topic: bytes,
        props: bytes,
        tags_code: int,
    ) -> int:
        """:meth:`append` for whole ``bytes`` objects."""
        if cython.compiled:
            return self._append_views(
                row, queue_id, flag, sys_flag, born_timestamp, born, reconsume_times, prepared_offset,
                body or b"\0", len(body), topic, props or b"\0", len(props), tags_code,
            )  # fmt: skip
        return self.append(
            row, queue_id, flag, sys_flag, born_timestamp, born, len(born), reconsume_times, prepared_offset,
            body, 0, len(body), topic, 0, len(topic), props, 0, len(props), tags_code,
        )  # fmt: skip

    def _append_views(
        self,
        row: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: Readable,
        reconsume_times: int,
        prepared_offset: int,
        body: Readable,
        body_length: int,
        topic: Readable,
        props: Readable,
        props_length: int,
        tags_code: int,
    ) -> int:
        return self.append(
            row, queue_id, flag, sys_flag, born_timestamp,
            cython.address(born[0]), len(born), reconsume_times, prepared_offset,
            cython.address(body[0]), 0, body_length,
            cython.address(topic[0]), 0, len(topic),
            cython.address(props[0]), 0, props_length, tags_code,
        )  # fmt: skip

    def read_messages(
        self,
        row: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        filter_count: int,
        out: bytearray,
    ) -> int:
        """:meth:`read` into the bytearray ``out``; the wanted tags codes stand in ``filters[0:]``."""
        if cython.compiled:
            return self._read_view(row, offset, last, max_count, max_bytes, filter_count, out)
        return self.read(row, offset, last, max_count, max_bytes, 0, filter_count, out, 0, len(out))

    def _read_view(
        self,
        row: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        filter_count: int,
        out: Writable,
    ) -> int:
        return self.read(
            row, offset, last, max_count, max_bytes, 0, filter_count, cython.address(out[0]), 0, len(out)
        )

    def set_filter(self, at: int, codes: Sequence[int]) -> None:
        """Write tags codes to ``filters[at:]``; the table grows as needed."""
        while at + len(codes) > len(self.filters):
            self.filters = array("q", bytes(self.filters) + bytes(8 * len(self.filters)))
        for i, code in enumerate(codes):
            self.filters[at + i] = code
