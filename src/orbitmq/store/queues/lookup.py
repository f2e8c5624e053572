# cython: annotation_typing=False
"""Finds the messages of a queue through its index and copies their records out of the log's maps.

Typed in ``lookup.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Nothing here
does I/O: what is not mapped yet is asked for (``need``), and the caller maps it and calls again.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout
from orbitmq.store.sql.matcher import Matcher

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable
    from orbitmq.store.log.appender import Appender

if not cython.compiled:
    from orbitmq.message.octets import copy, get_i32, get_i64

# C integers in the compiled module, so that no Python object is touched on the path of a message.
Q_NEXT = layout.Q_NEXT
Q_TAIL = layout.Q_TAIL
Q_TAIL_FIRST = layout.Q_TAIL_FIRST
Q_MAP_FIRST = layout.Q_MAP_FIRST
Q_MAP_COUNT = layout.Q_MAP_COUNT
Q_RING = layout.Q_RING
Q_WIDTH = layout.Q_WIDTH
READ_FOUND = layout.READ_FOUND
READ_NO_MATCH = layout.READ_NO_MATCH
READ_NEED_ENTRIES = layout.READ_NEED_ENTRIES
READ_NEED_LOG = layout.READ_NEED_LOG
READ_NO_SPACE = layout.READ_NO_SPACE
READ_BROKEN = layout.READ_BROKEN
RECORD_FIXED_BYTES = layout.RECORD_FIXED_BYTES
CQ_ENTRY_BYTES = layout.CQ_ENTRY_BYTES
SCAN_LIMIT = layout.SCAN_LIMIT
RECORD_SCAN_LIMIT = layout.RECORD_SCAN_LIMIT
BY_PROPERTIES = layout.BY_PROPERTIES
RECORD = layout.RECORD
WARM_LIMIT = 32  # records asked for ahead of a read, and how much of each
WARM_BYTES = 512
CACHE_LINE_BYTES = 64


class Lookup:
    """See the module.

    Args:
        appender: has the table of queues, and their newest index entries.
    """

    def __init__(self, appender: Appender) -> None:
        self.a = appender
        self.segment_bytes = appender.segment_bytes
        self.codes = array("q", bytes(8))
        self.record = RecordReader()
        self.matcher = Matcher()
        self.log_map_count = 0
        self.log_first = 0
        self.entry_map_slots = 0
        self.kept_entry_maps: dict[int, memoryview] = {}
        self.kept_log_maps: dict[int, memoryview] = {}
        if not cython.compiled:
            self.entry_maps: list[Any] = []
            self.log_maps: list[Any] = []

    # -- maps: Python side, never on the path of a message ---------------------------------------------

    def _grow_entry_maps(self, count: int) -> None:
        if cython.compiled:
            self._realloc_entry_maps(count)
        else:
            self.entry_maps.extend([None] * (count - len(self.entry_maps)))
            self.entry_map_slots = count

    def _realloc_entry_maps(self, count: int) -> None:
        fresh = cython.cast(bytes_pp, calloc(count, cython.sizeof(cython.p_char)))
        if fresh == cython.NULL:
            raise MemoryError("index maps")
        if self.entry_maps != cython.NULL:
            memcpy(fresh, self.entry_maps, self.entry_map_slots * cython.sizeof(cython.p_char))
            free(self.entry_maps)
        self.entry_maps = fresh
        self.entry_map_slots = count

    def __dealloc__(self) -> None:
        if cython.compiled:
            free(self.entry_maps)
            free(self.log_maps)

    def set_entry_map(self, slot: int, view: memoryview, first_offset: int, count: int) -> None:
        """Let reads of the queue use ``view``: a consume queue file whose entry 0 has ``first_offset``."""
        if not 0 <= slot < self.a.slots or not 0 <= count * CQ_ENTRY_BYTES <= len(view):
            raise ValueError(f"slot {slot}: a map of {len(view)} bytes does not hold {count} entries")
        if slot >= self.entry_map_slots:
            self._grow_entry_maps(max(16, 2 * slot + 2))
        self.kept_entry_maps[slot] = view
        if cython.compiled:
            self._point_entries(slot, view)
        else:
            self.entry_maps[slot] = view
        self.a.set(slot, Q_MAP_FIRST, first_offset)
        self.a.set(slot, Q_MAP_COUNT, count)

    def _point_entries(self, slot: int, view: Readable) -> None:
        self.entry_maps[slot] = cython.address(view[0])

    def drop_entry_map(self, slot: int) -> None:
        self.a.set(slot, Q_MAP_COUNT, 0)
        self.kept_entry_maps.pop(slot, None)

    def set_log_maps(self, first: int, views: list[memoryview]) -> None:
        """Let reads use the log files number ``first``, ``first`` + 1, ..., each of ``segment_bytes``."""
        for number, view in enumerate(views, first):
            if len(view) < self.segment_bytes:
                raise ValueError(f"log file number {number} has {len(view)} of {self.segment_bytes} bytes")
        self.kept_log_maps = dict(enumerate(views, first))
        self.log_first = first
        self.log_map_count = len(views)
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
            self._point_one_log(i, views[i])

    def _point_one_log(self, i: int, view: Readable) -> None:
        self.log_maps[i] = cython.address(view[0])

    # -- reads -----------------------------------------------------------------------------------------

    def find_entry(self, slot: int, offset: int) -> int:
        """Load the index entry of ``offset``: READ_FOUND and ``entry_*`` filled, or READ_NEED_ENTRIES."""
        base = slot * Q_WIDTH
        newest = self.a.q[base + Q_NEXT]
        if (
            self.a.q[base + Q_TAIL] >= 0
            and offset >= self.a.q[base + Q_TAIL_FIRST]
            and newest - offset <= self.a.q[base + Q_RING]
        ):
            entry = self.a.q[base + Q_TAIL] + (offset % self.a.q[base + Q_RING]) * 3
            self.entry_physical = self.a.tails[entry]
            self.entry_size = self.a.tails[entry + 1]
            self.entry_tags = self.a.tails[entry + 2]
            return READ_FOUND
        place = offset - self.a.q[base + Q_MAP_FIRST]
        if place < 0 or place >= self.a.q[base + Q_MAP_COUNT]:
            self.need = offset
            return READ_NEED_ENTRIES
        at = place * CQ_ENTRY_BYTES
        index = self.entry_maps[slot]
        self.entry_physical = get_i64(index, at)
        self.entry_size = get_i32(index, at + 8)
        self.entry_tags = get_i64(index, at + 12)
        return READ_FOUND

    def _matches(self, codes: Integers, codes_at: int, codes_count: int) -> bool:
        if codes_count < 0:
            return True
        low = codes_at
        high = codes_at + codes_count
        while low < high:
            middle = (low + high) // 2
            if codes[middle] < self.entry_tags:
                low = middle + 1
            else:
                high = middle
        return low < codes_at + codes_count and codes[low] == self.entry_tags

    def read(
        self,
        slot: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        codes: Integers,
        codes_at: int,
        codes_count: int,
        out: Writable,
        out_at: int,
        out_room: int,
    ) -> int:
        """Copy records of the queue from ``offset`` up to before ``last`` to ``out[out_at:]``.

        Takes only records whose tags code is among the ``codes_count`` numbers from ``codes[codes_at]`` on,
        which are sorted; with BY_PROPERTIES those that the program there matches; with another number below 0
        all. Fills ``read_count``, ``read_bytes`` and ``read_next`` (the offset to go on with).
        """
        self.read_count = 0
        self.read_bytes = 0
        self.read_next = offset
        looked = 0
        most = RECORD_SCAN_LIMIT if codes_count == BY_PROPERTIES else SCAN_LIMIT
        if cython.compiled:
            self._warm(slot, offset, last, max_count)
        while offset < last and looked < most:
            status = self.find_entry(slot, offset)
            if status != READ_FOUND:
                return status if self.read_count == 0 else READ_FOUND
            looked += 1
            wanted = self._matches(codes, codes_at, codes_count)
            if wanted and codes_count == BY_PROPERTIES:
                status = self._look_into(self.entry_physical, self.entry_size)
                if status != READ_FOUND:
                    return status if self.read_count == 0 else READ_FOUND
                wanted = self._matches_properties(codes, codes_at)
            if wanted:
                size = self.entry_size
                if self.read_count > 0 and self.read_bytes + size > max_bytes:
                    break
                if self.read_bytes + size > out_room:
                    if self.read_count > 0:
                        break
                    return READ_NO_SPACE
                if codes_count != BY_PROPERTIES:
                    status = self._look_into(self.entry_physical, size)
                    if status != READ_FOUND:
                        return status if self.read_count == 0 else READ_FOUND
                copy(out, out_at + self.read_bytes, self.log_maps[self.file], self.within, size)
                self.read_bytes += size
                self.read_count += 1
            offset += 1
            self.read_next = offset
            if self.read_count >= max_count:
                break
        return READ_FOUND if self.read_count > 0 else READ_NO_MATCH

    def _warm(self, slot: int, offset: int, last: int, max_count: int) -> None:
        """Ask the memory for the records to come: they lie apart, and each would be waited for in turn."""
        if max_count > WARM_LIMIT:
            max_count = WARM_LIMIT
        if last > offset + max_count:
            last = offset + max_count
        while offset < last and self.find_entry(slot, offset) == READ_FOUND:
            file = self.entry_physical // self.segment_bytes - self.log_first
            within = self.entry_physical % self.segment_bytes
            end = within + self.entry_size
            if file < 0 or file >= self.log_map_count or within < 0 or end > self.segment_bytes:
                return
            log = self.log_maps[file]
            if not log:
                return
            if end > within + WARM_BYTES:
                end = within + WARM_BYTES
            while within < end:
                prefetch(cython.address(log[within]))
                within += CACHE_LINE_BYTES
            offset += 1

    def _look_into(self, physical: int, size: int) -> int:
        """Find a record's file and its place there: ``file`` and ``within``."""
        file = physical // self.segment_bytes - self.log_first
        within = physical % self.segment_bytes
        if physical < 0 or size < RECORD_FIXED_BYTES or within + size > self.segment_bytes:
            return READ_BROKEN
        if file < 0 or file >= self.log_map_count or not self.log_maps[file]:
            self.need = physical
            return READ_NEED_LOG
        if get_i32(self.log_maps[file], within) != size:
            return READ_BROKEN
        self.file = file
        self.within = within
        return READ_FOUND

    def _matches_properties(self, codes: Integers, codes_at: int) -> bool:
        """Whether the program passes the record that was looked into; a record that is none does not pass."""
        log = self.log_maps[self.file]
        found = self.record.read(log, self.within, self.segment_bytes, self.segment_bytes, -1, 0)
        return found == RECORD and self.matcher.matches(
            codes, codes_at, log, self.record.props_at, self.record.props_end
        )

    # -- for callers in Python -------------------------------------------------------------------------

    def read_messages(
        self,
        slot: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        codes: array[int],
        codes_count: int,
        out: bytearray,
    ) -> int:
        """:meth:`read` into the bytearray ``out``, which is not empty; ``codes`` as in ``MessageFilter``."""
        self.codes = codes
        if cython.compiled:
            return self._read_view(slot, offset, last, max_count, max_bytes, codes_count, out)
        return self.read(slot, offset, last, max_count, max_bytes, codes, 0, codes_count, out, 0, len(out))

    def _read_view(
        self,
        slot: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        codes_count: int,
        out: Writable,
    ) -> int:
        return self.read(
            slot, offset, last, max_count, max_bytes, cython.address(self.codes[0]), 0, codes_count,
            cython.address(out[0]), 0, len(out),
        )  # fmt: skip
