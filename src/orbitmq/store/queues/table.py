# cython: annotation_typing=False
"""The table of queues: each one's written, visible and saved end, and its newest entries in memory.

Queues are slots of one integer table, so that the compiled code needs no Python object while it works. The
newest index entries of a queue are kept in a ring. Nothing here does I/O.

Typed in ``table.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.store.queues import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Writable

if not cython.compiled:
    from orbitmq.message.octets import put_i32, put_i64

# C integers in the compiled module, so that no Python object is touched on the path of a message.
Q_NEXT = layout.Q_NEXT
Q_VISIBLE = layout.Q_VISIBLE
Q_MIN = layout.Q_MIN
Q_TAIL = layout.Q_TAIL
Q_TAIL_FIRST = layout.Q_TAIL_FIRST
Q_SAVED = layout.Q_SAVED
Q_DIRTY = layout.Q_DIRTY
Q_WATCHED = layout.Q_WATCHED
Q_MAP_COUNT = layout.Q_MAP_COUNT
Q_RING = layout.Q_RING
Q_UNSAVED = layout.Q_UNSAVED
Q_MIN_PLACE = layout.Q_MIN_PLACE
Q_COUNTED = layout.Q_COUNTED
Q_COUNTS = layout.Q_COUNTS
Q_WIDTH = layout.Q_WIDTH
CQ_ENTRY_BYTES = layout.CQ_ENTRY_BYTES
# A queue's ring begins small and grows: most queues get few messages.
FIRST_RING = 8
RING_GROWTH = 8
# If rings take more bytes than this, those whose entries are all in their files are released.
RINGS_BYTES = 64 << 20


def grown(table: Integers, size: int) -> Integers:
    """A copy of a table, extended with zeros to ``size`` numbers."""
    longer = array("q", bytes(8 * size))
    memoryview(longer).cast("B")[: 8 * len(table)] = memoryview(table).cast("B")
    return longer


class QueueTable:
    """See the module. Offsets are entries of a queue.

    Args:
        tail_entries: consume queue entries kept in memory for a busy queue.
    """

    def __init__(self, tail_entries: int) -> None:
        self.tail_entries = tail_entries
        self.slots = 0
        self.q = array("q", bytes(8 * Q_WIDTH * 16))
        self.tails = array("q", bytes(8 * 3))
        self.tails_used = 0
        self.rings_limit = RINGS_BYTES // 8
        self.free_rings: dict[int, list[int]] = {}
        self.dirty = array("q", bytes(8 * 16))
        self.dirty_count = 0
        self.unsaved = array("q", bytes(8 * 16))
        self.unsaved_count = 0
        self.grown: list[int] = []

    # -- slots: Python side, never on the path of a message ---------------------------------------------

    def add_slots(self, count: int) -> int:
        """``count`` new queues without messages; returns the first one's slot number."""
        first = self.slots
        if (first + count) * Q_WIDTH > len(self.q):
            room = max(2 * len(self.q) // Q_WIDTH, first + count)
            self.q = grown(self.q, room * Q_WIDTH)
            self.dirty = grown(self.dirty, room)
            self.unsaved = grown(self.unsaved, room)
        self.slots = first + count
        for slot in range(first, first + count):
            base = slot * Q_WIDTH
            self.q[base + Q_TAIL] = -1
            self.q[base + Q_MIN_PLACE] = -1
            self.q[base + Q_COUNTS] = -1
        return first

    def reset_slot(self, slot: int, next_offset: int, min_offset: int) -> None:
        """Set a queue to the entries of its file, from ``min_offset`` up to ``next_offset``; its ring is
        emptied."""
        base = slot * Q_WIDTH
        self._free_ring(slot)
        self.q[base + Q_NEXT] = next_offset
        self.q[base + Q_VISIBLE] = next_offset
        self.q[base + Q_TAIL_FIRST] = next_offset
        self.q[base + Q_SAVED] = next_offset
        self.q[base + Q_COUNTED] = next_offset
        self.q[base + Q_MIN] = min_offset
        self.q[base + Q_MIN_PLACE] = -1
        self.q[base + Q_MAP_COUNT] = 0

    def set_column(self, first: int, column: int, values: array[int]) -> None:
        """Set a column of the slots from ``first`` on."""
        base = first * Q_WIDTH + column
        for i in range(len(values)):
            self.q[base + i * Q_WIDTH] = values[i]

    def column(self, column: int) -> array[int]:
        """A column of all slots."""
        found = array("q", bytes(8 * self.slots))
        values = found
        for slot in range(self.slots):
            values[slot] = self.q[slot * Q_WIDTH + column]
        return found

    def slots_below(self, physical_offset: int) -> list[int]:
        """The queues that have, or may have, entries of records below ``physical_offset``."""
        found = []
        for slot in range(self.slots):
            base = slot * Q_WIDTH
            if self.q[base + Q_MIN] < self.q[base + Q_NEXT] and self.q[base + Q_MIN_PLACE] < physical_offset:
                found.append(slot)
        return found

    # -- entries: in a ring, then in the queue's file ----------------------------------------------------

    def add_entry(self, slot: int, physical: int, size: int, tags_code: int) -> None:
        """Give the queue its next entry; :meth:`check_room` has found room for it."""
        base = slot * Q_WIDTH
        offset = self.q[base + Q_NEXT]
        entry = self.q[base + Q_TAIL] + (offset % self.q[base + Q_RING]) * 3
        self.tails[entry] = physical
        self.tails[entry + 1] = size
        self.tails[entry + 2] = tags_code
        self.q[base + Q_NEXT] = offset + 1
        if self.q[base + Q_DIRTY] == 0:
            self.q[base + Q_DIRTY] = 1
            self.dirty[self.dirty_count] = slot
            self.dirty_count += 1
            if self.q[base + Q_MIN] == offset:
                self.q[base + Q_MIN_PLACE] = physical
            if self.q[base + Q_UNSAVED] == 0:
                self.q[base + Q_UNSAVED] = 1
                self.unsaved[self.unsaved_count] = slot
                self.unsaved_count += 1

    def prepare_tail(self, slot: int) -> bool:
        """Give the queue a ring, or a larger one; ``False`` when it has the largest."""
        base = slot * Q_WIDTH
        old = self.q[base + Q_RING]
        if old >= self.tail_entries:
            return False
        size = min(max(FIRST_RING, old * RING_GROWTH), self.tail_entries)
        place = self._take_ring(size)
        newest = self.q[base + Q_NEXT]
        first = max(self.q[base + Q_TAIL_FIRST], newest - old)
        for offset in range(first, newest):
            source = self.q[base + Q_TAIL] + (offset % old) * 3
            target = place + (offset % size) * 3
            self.tails[target] = self.tails[source]
            self.tails[target + 1] = self.tails[source + 1]
            self.tails[target + 2] = self.tails[source + 2]
        self._free_ring(slot)
        self.q[base + Q_TAIL] = place
        self.q[base + Q_RING] = size
        self.q[base + Q_TAIL_FIRST] = first
        return True

    def _take_ring(self, size: int) -> int:
        free = self.free_rings.get(size)
        if free:
            return free.pop()
        if self.tails_used + 3 * size > self.rings_limit:
            self._free_idle_rings()
            free = self.free_rings.get(size)
            if free:
                return free.pop()
            self.rings_limit *= 2
        if self.tails_used + 3 * size > len(self.tails):
            self.tails = grown(self.tails, max(2 * len(self.tails), self.tails_used + 3 * size))
        place = self.tails_used
        self.tails_used += 3 * size
        return place

    def _free_ring(self, slot: int) -> None:
        base = slot * Q_WIDTH
        if self.q[base + Q_RING] > 0:
            self.free_rings.setdefault(self.q[base + Q_RING], []).append(self.q[base + Q_TAIL])
        self.q[base + Q_TAIL] = -1
        self.q[base + Q_RING] = 0
        self.q[base + Q_TAIL_FIRST] = self.q[base + Q_NEXT]

    def _free_idle_rings(self) -> None:
        """Release the rings of queues whose entries are all in their files."""
        for slot in range(self.slots):
            base = slot * Q_WIDTH
            if self.q[base + Q_RING] > 0 and self.q[base + Q_SAVED] == self.q[base + Q_NEXT]:
                self._free_ring(slot)

    def take_unsaved(self) -> list[int]:
        """The queues with visible entries that are not in their files; each is returned once."""
        taken = []
        left = 0
        for i in range(self.unsaved_count):
            slot = self.unsaved[i]
            base = slot * Q_WIDTH
            if self.q[base + Q_SAVED] < self.q[base + Q_VISIBLE]:
                taken.append(slot)
            if self.q[base + Q_VISIBLE] < self.q[base + Q_NEXT]:
                self.unsaved[left] = slot
                left += 1
            else:
                self.q[base + Q_UNSAVED] = 0
        self.unsaved_count = left
        return taken

    def note_unsaved(self, slot: int) -> None:
        """Note that the queue's file lacks entries: :meth:`take_unsaved` returns the queue again."""
        base = slot * Q_WIDTH
        if self.q[base + Q_UNSAVED] == 0:
            self.q[base + Q_UNSAVED] = 1
            self.unsaved[self.unsaved_count] = slot
            self.unsaved_count += 1

    def export_entries(self, slot: int, first: int, last: int) -> bytearray:
        """Consume queue bytes of the offsets ``first`` to ``last`` - 1.

        Raises:
            ValueError: the ring does not have all of them.
        """
        base = slot * Q_WIDTH
        lowest = max(self.q[base + Q_TAIL_FIRST], self.q[base + Q_NEXT] - self.q[base + Q_RING])
        if first < last and (first < lowest or last > self.q[base + Q_NEXT]):
            raise ValueError(f"the ring of slot {slot} does not hold the entries {first} to {last}")
        out = bytearray(max(0, last - first) * CQ_ENTRY_BYTES)
        if last > first:
            self._export(out, slot, first, last)
        return out

    def _export(self, view: Writable, slot: int, first: int, last: int) -> None:
        out = cython.address(view[0]) if cython.compiled else view
        tail = self.q[slot * Q_WIDTH + Q_TAIL]
        ring = self.q[slot * Q_WIDTH + Q_RING]
        at = 0
        for offset in range(first, last):
            entry = tail + (offset % ring) * 3
            put_i64(out, at, self.tails[entry])
            put_i32(out, at + 8, self.tails[entry + 1])
            put_i64(out, at + 12, self.tails[entry + 2])
            at += CQ_ENTRY_BYTES

    # -- visible messages ------------------------------------------------------------------------------

    def publish(self) -> list[int]:
        """Make the batch's records visible; returns the slots that are watched."""
        arrived = []
        for i in range(self.dirty_count):
            slot = self.dirty[i]
            base = slot * Q_WIDTH
            if self.q[base + Q_COUNTED] == self.q[base + Q_VISIBLE]:
                self.grown.append(slot)
            self.q[base + Q_VISIBLE] = self.q[base + Q_NEXT]
            self.q[base + Q_DIRTY] = 0
            if self.q[base + Q_WATCHED]:
                arrived.append(slot)
        self.dirty_count = 0
        return arrived

    def count_from_here(self) -> None:
        """Do not count messages that are visible now as new."""
        for slot in range(self.slots):
            self.q[slot * Q_WIDTH + Q_COUNTED] = self.q[slot * Q_WIDTH + Q_VISIBLE]
        self.grown = []

    def take_grown(self) -> list[tuple[int, int]]:
        """(slot, messages) of the queues that got visible messages since the last call."""
        grown = []
        for slot in self.grown:
            base = slot * Q_WIDTH
            more = self.q[base + Q_VISIBLE] - self.q[base + Q_COUNTED]
            # A queue that was deleted meanwhile counts from 0.
            if more > 0:
                self.q[base + Q_COUNTED] = self.q[base + Q_VISIBLE]
                grown.append((slot, more))
        self.grown = []
        return grown
