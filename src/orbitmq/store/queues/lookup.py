# cython: annotation_typing=False
"""Finds the messages of a queue through its index, and copies their records or shows them in the log's maps.

Typed in ``lookup.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Nothing here
does I/O: when a file is not mapped yet the lookup stops with the offset in ``need``; the caller maps the file
and calls again.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.message import record_layout
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout
from orbitmq.store.sql.matcher import Matcher

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable
    from orbitmq.store.log.appender import Appender

if not cython.compiled:
    from orbitmq.message.octets import copy, get_i32, get_i64

# C integers in the compiled module, so that no Python object is touched for a message.
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
READ_SCATTERED = layout.READ_SCATTERED
RECORD_FIXED_BYTES = layout.RECORD_FIXED_BYTES
CQ_ENTRY_BYTES = layout.CQ_ENTRY_BYTES
SCAN_LIMIT = layout.SCAN_LIMIT
RECORD_SCAN_LIMIT = layout.RECORD_SCAN_LIMIT
ALL_CODES = layout.ALL_CODES
BY_PROPERTIES = layout.BY_PROPERTIES
RECORD = layout.RECORD
MAX_SPANS = layout.MAX_SPANS
Q_ID = layout.Q_ID
QUEUE_ID_AT = record_layout.QUEUE_ID_AT
QUEUE_OFFSET_AT = record_layout.QUEUE_OFFSET_AT
PHYSICAL_OFFSET_AT = record_layout.PHYSICAL_OFFSET_AT
BLOCK = 32  # entries loaded at a time
AHEAD = 8  # records prefetched before they are read, and how many bytes of each
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
        self.log_start = 0
        self.log_size = 0  # the log file in use; 0: there is none
        self.entry_map_slots = 0
        self.span_count = 0
        self.queue_id = 0
        self.kept_entry_maps: dict[int, memoryview] = {}
        self.kept_log_maps: dict[int, memoryview] = {}
        if not cython.compiled:
            self.entry_maps: list[Any] = []
            self.log_maps: list[Any] = []
            self.places = [0] * BLOCK
            self.sizes = [0] * BLOCK
            self.tags = [0] * BLOCK
            self.span_starts = [0] * MAX_SPANS
            self.span_ends = [0] * MAX_SPANS

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
        self.log_size = 0
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
        status = self._load(slot, offset, 1)
        if status == READ_FOUND:
            self.entry_physical = self.places[0]
            self.entry_size = self.sizes[0]
            self.entry_tags = self.tags[0]
        return status

    def _load(self, slot: int, offset: int, most: int) -> int:
        """Load one to ``most`` index entries from ``offset`` on; READ_NEED_ENTRIES: none could be loaded."""
        base = slot * Q_WIDTH
        ring_at = self.a.q[base + Q_TAIL]
        ring = self.a.q[base + Q_RING]
        if most > BLOCK:
            most = BLOCK
        if (
            ring_at >= 0
            and offset >= self.a.q[base + Q_TAIL_FIRST]
            and self.a.q[base + Q_NEXT] - offset <= ring
        ):
            place = offset % ring
            for i in range(most):
                entry = ring_at + 3 * place
                self.places[i] = self.a.tails[entry]
                self.sizes[i] = self.a.tails[entry + 1]
                self.tags[i] = self.a.tails[entry + 2]
                place += 1
                if place == ring:
                    place = 0
        else:
            place = offset - self.a.q[base + Q_MAP_FIRST]
            mapped = self.a.q[base + Q_MAP_COUNT] - place
            if place < 0 or mapped <= 0:
                self.need = offset
                return READ_NEED_ENTRIES
            if most > mapped:
                most = mapped
            index = self.entry_maps[slot]
            at = place * CQ_ENTRY_BYTES
            for i in range(most):
                self.places[i] = get_i64(index, at)
                self.sizes[i] = get_i32(index, at + 8)
                self.tags[i] = get_i64(index, at + 12)
                at += CQ_ENTRY_BYTES
        self.loaded = most
        return READ_FOUND

    def _matches(self, tag: int, codes: Integers, codes_at: int, codes_count: int) -> bool:
        if codes_count < 0:
            return True
        low = codes_at
        high = codes_at + codes_count
        while low < high:
            middle = (low + high) // 2
            if codes[middle] < tag:
                low = middle + 1
            else:
                high = middle
        return low < codes_at + codes_count and codes[low] == tag

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
        all. Fills ``read_count``, ``read_bytes`` and ``read_next`` (the offset to continue at).
        """
        self.read_count = 0
        self.read_bytes = 0
        self.read_next = offset
        self.queue_id = self.a.q[slot * Q_WIDTH + Q_ID]
        most = RECORD_SCAN_LIMIT if codes_count == BY_PROPERTIES else SCAN_LIMIT
        if last > offset + most:
            last = offset + most
        while self.read_next < last and self.read_count < max_count:
            most = last - self.read_next
            if codes_count == ALL_CODES and most > max_count - self.read_count:
                most = max_count - self.read_count
            status = self._load(slot, self.read_next, most)
            if status == READ_FOUND:
                status = self._copy_loaded(
                    max_count, max_bytes, codes, codes_at, codes_count, out, out_at, out_room
                )
            if status != READ_FOUND:
                return status if self.read_count == 0 else READ_FOUND
        return READ_FOUND if self.read_count > 0 else READ_NO_MATCH

    def _copy_loaded(
        self,
        max_count: int,
        max_bytes: int,
        codes: Integers,
        codes_at: int,
        codes_count: int,
        out: Writable,
        out_at: int,
        out_room: int,
    ) -> int:
        """Copy the records of the loaded entries that pass, until there are enough of them.

        READ_NO_SPACE: the next one exceeds ``max_bytes`` or ``out_room``.
        """
        if cython.compiled:
            for i in range(min(AHEAD, self.loaded)):
                self._warm(i, codes, codes_at, codes_count)
        for i in range(self.loaded):
            if cython.compiled and i + AHEAD < self.loaded:
                self._warm(i + AHEAD, codes, codes_at, codes_count)
            if self._matches(self.tags[i], codes, codes_at, codes_count):
                size = self.sizes[i]
                self.entry_physical = self.places[i]
                self.entry_size = size
                status = self._look_into(self.places[i], size)
                if status != READ_FOUND:
                    return status
                if codes_count != BY_PROPERTIES or self._matches_properties(codes, codes_at):
                    end = self.read_bytes + size
                    if end > out_room or (self.read_count > 0 and end > max_bytes):
                        return READ_NO_SPACE
                    copy(out, out_at + self.read_bytes, self.log, self.within, size)
                    self.read_bytes = end
                    self.read_count += 1
            elif self.sizes[i] < RECORD_FIXED_BYTES:
                # An empty entry has no tags code either: it may belong to any message.
                return READ_BROKEN
            self.read_next += 1
            if self.read_count >= max_count:
                break
        return READ_FOUND

    def _warm(self, i: int, codes: Integers, codes_at: int, codes_count: int) -> None:
        """Prefetch a later record: records lie apart, and each would be waited for in turn."""
        if not self._matches(self.tags[i], codes, codes_at, codes_count) or not self._enter(self.places[i]):
            return
        within = self.places[i] - self.log_start
        end = within + min(self.sizes[i], WARM_BYTES)
        if end > self.segment_bytes:
            return
        while within < end:
            prefetch(cython.address(self.log[within]))
            within += CACHE_LINE_BYTES

    def _enter(self, physical: int) -> bool:
        """Use the log file with this place, in ``log`` and ``log_start``; ``False``: it is not mapped."""
        if 0 <= physical - self.log_start < self.log_size:
            return True
        file = physical // self.segment_bytes - self.log_first
        if physical < 0 or file < 0 or file >= self.log_map_count or not self.log_maps[file]:
            return False
        self.log = self.log_maps[file]
        self.log_start = (self.log_first + file) * self.segment_bytes
        self.log_size = self.segment_bytes
        return True

    def _look_into(self, physical: int, size: int) -> int:
        """Find the record of the offset ``read_next`` in the log: ``log`` and ``within``."""
        if not self._enter(physical):
            self.need = physical
            return READ_NEED_LOG
        self.within = physical - self.log_start
        if size < RECORD_FIXED_BYTES or self.within + size > self.segment_bytes:
            return READ_BROKEN
        if (
            get_i32(self.log, self.within) == size
            and get_i32(self.log, self.within + QUEUE_ID_AT) == self.queue_id
            and get_i64(self.log, self.within + QUEUE_OFFSET_AT) == self.read_next
            and get_i64(self.log, self.within + PHYSICAL_OFFSET_AT) == physical
        ):
            return READ_FOUND
        return READ_BROKEN

    def _matches_properties(self, codes: Integers, codes_at: int) -> bool:
        """Whether the record passes the program; bytes that are not a record do not pass."""
        found = self.record.read(self.log, self.within, self.segment_bytes, self.segment_bytes, -1, 0)
        return found == RECORD and self.matcher.matches(
            codes, codes_at, self.log, self.record.props_at, self.record.props_end
        )

    # -- reads that copy nothing -----------------------------------------------------------------------

    def find_spans(self, slot: int, offset: int, last: int, max_count: int, max_bytes: int) -> int:
        """Find the records that :meth:`read` would copy without a filter; :meth:`spans` gives their places.

        Records that follow each other in the log are one span. READ_SCATTERED: too many spans would be
        needed.
        """
        self.read_count = 0
        self.read_bytes = 0
        self.read_next = offset
        self.queue_id = self.a.q[slot * Q_WIDTH + Q_ID]
        self.span_count = 0
        most = min(max_count, SCAN_LIMIT)
        if last > offset + most:
            last = offset + most
        while self.read_next < last:
            status = self._load(slot, self.read_next, last - self.read_next)
            if status == READ_FOUND:
                status = self._join_loaded(max_bytes)
            if status != READ_FOUND:
                return status if self.read_count == 0 or status == READ_SCATTERED else READ_FOUND
        return READ_FOUND

    def _join_loaded(self, max_bytes: int) -> int:
        """Add the records of the loaded entries to the spans, until there are enough."""
        if cython.compiled:
            # Prefetch the records' sizes: they lie apart in the log, and would be waited for in turn.
            for i in range(self.loaded):
                if self._enter(self.places[i]):
                    prefetch(cython.address(self.log[self.places[i] - self.log_start]))
        for i in range(self.loaded):
            place = self.places[i]
            size = self.sizes[i]
            self.entry_physical = place
            self.entry_size = size
            status = self._look_into(place, size)
            if status != READ_FOUND:
                return status
            if self.read_count > 0 and self.read_bytes + size > max_bytes:
                return READ_NO_SPACE
            # A span stays within its file.
            if self.span_count > 0 and place == self.span_ends[self.span_count - 1] and self.within > 0:
                self.span_ends[self.span_count - 1] = place + size
            elif self.span_count == MAX_SPANS:
                return READ_SCATTERED
            else:
                self.span_starts[self.span_count] = place
                self.span_ends[self.span_count] = place + size
                self.span_count += 1
            self.read_bytes += size
            self.read_count += 1
            self.read_next += 1
        return READ_FOUND

    def spans(self) -> list[memoryview]:
        """The spans found last, in order. Do not keep them: a deleted file takes space while a view of it
        exists."""
        found = []
        for i in range(self.span_count):
            file = self.span_starts[i] // self.segment_bytes
            base = file * self.segment_bytes
            found.append(self.kept_log_maps[file][self.span_starts[i] - base : self.span_ends[i] - base])
        return found

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
