# cython: annotation_typing=False
"""Makes consume queue entries from records of the log (RocketMQ: reput, dispatch).

:class:`Dispatcher` walks a piece of the log by the record reader's rules and gives each record's queue its
next entry in the appender's table, as an append does. When it needs a Python object (a queue missing in its
table, a full ring, a gap) it returns a reason; the caller acts and scans on. Recovery and a slave's appends
use it.

Typed in ``dispatch.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Nothing here
does I/O.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable
    from orbitmq.store.log.appender import Appender

if not cython.compiled:
    from orbitmq.message.octets import same

Q_NEXT = layout.Q_NEXT
Q_TAIL = layout.Q_TAIL
Q_SAVED = layout.Q_SAVED
Q_RING = layout.Q_RING
Q_WIDTH = layout.Q_WIDTH
RECORD = layout.RECORD
BAD_HOLE = layout.BAD_HOLE
SCAN_DONE = layout.SCAN_DONE
SCAN_NEW_QUEUE = layout.SCAN_NEW_QUEUE
SCAN_TAIL_FULL = layout.SCAN_TAIL_FULL
SCAN_NEEDS_CODE = layout.SCAN_NEEDS_CODE
SCAN_AHEAD = layout.SCAN_AHEAD
SCAN_BEHIND = layout.SCAN_BEHIND
TRANSACTION_MASK = layout.TRANSACTION_MASK
PREPARED = layout.PREPARED
ROLLED_BACK = layout.ROLLED_BACK

# A row of the table of queues: hash, place and length of the topic's name, queue id, slot, needs a code.
R_HASH = 0
R_NAME_AT = 1
R_NAME_LENGTH = 2
R_QUEUE_ID = 3
R_SLOT = 4
R_NEEDS_CODE = 5
R_WIDTH = 6
# FNV-1a, cut to 63 bits so that a hash is never negative.
FNV_START = 0x4BF29CE484222325
FNV_PRIME = 0x100000001B3
HASH_MASK = 0x7FFFFFFFFFFFFFFF


class Dispatcher:
    """See the module.

    Attributes:
        position: place of the record that a scan stopped at.
        slot: the slot of that record's queue, if the queue is in the table.
        records: how many records were taken since :meth:`begin`; ``stored``: store time of the last one, ms.
        reader: has the parts of the record at ``position``.
    """

    def __init__(self, appender: Appender) -> None:
        self.a = appender
        self.reader = RecordReader()
        self.position = 0
        self.slot = 0
        self.records = 0
        self.stored = 0
        self.code = 0
        self.code_known = 0
        self.clear()

    def clear(self) -> None:
        """Forget all queues: a scan stops with SCAN_NEW_QUEUE at the next record of each."""
        self.names = bytearray(1)
        self.names_view = self.names
        self.names_used = 0
        self.rows_used = 0
        self._make_tables(63)

    def begin(self) -> None:
        """Count records from here on."""
        self.records = 0
        self.stored = 0

    # -- the table of queues: Python side --------------------------------------------------------------

    def add(self, topic: bytes, queue_id: int, slot: int, *, needs_code: bool) -> None:
        """Assign the records of this queue to ``slot``; with a negative slot they are skipped."""
        if self.rows_used > self.places_mask // 2:
            self._grow()
        length = len(topic)
        if self.names_used + length > len(self.names):
            longer = bytearray(2 * len(self.names) + length)
            longer[: self.names_used] = self.names[: self.names_used]
            self.names = longer
            self.names_view = longer
        self.names[self.names_used : self.names_used + length] = topic
        base = self.rows_used * R_WIDTH
        self.rows[base + R_HASH] = self._hash_of(topic, queue_id)
        self.rows[base + R_NAME_AT] = self.names_used
        self.rows[base + R_NAME_LENGTH] = length
        self.rows[base + R_QUEUE_ID] = queue_id
        self.rows[base + R_SLOT] = slot
        self.rows[base + R_NEEDS_CODE] = needs_code
        self.names_used += length
        self.rows_used += 1
        self._place_row(self.rows_used)

    def _make_tables(self, places_mask: int) -> None:
        """Make tables with ``places_mask`` + 1 places, and rows for half of them."""
        self.places_mask = places_mask
        self.places = array("q", bytes(8 * (places_mask + 1)))
        self.rows = array("q", bytes(8 * R_WIDTH * (places_mask // 2 + 1)))

    def _grow(self) -> None:
        old = self.rows
        self._make_tables(4 * self.places_mask + 3)
        memoryview(self.rows).cast("B")[: 8 * len(old)] = memoryview(old).cast("B")
        for number in range(1, self.rows_used + 1):
            self._place_row(number)

    def _place_row(self, number: int) -> None:
        at = self.rows[(number - 1) * R_WIDTH + R_HASH] & self.places_mask
        while self.places[at] != 0:
            at = (at + 1) & self.places_mask
        self.places[at] = number

    def _hash_of(self, topic: Readable, queue_id: int) -> int:
        if cython.compiled:
            return self._hash(cython.address(topic[0]), 0, len(topic), queue_id)
        return self._hash(topic, 0, len(topic), queue_id)

    def _hash(self, buf: Readable, at: int, end: int, queue_id: int) -> int:
        h = FNV_START ^ queue_id
        while at < end:
            h = ((h ^ buf[at]) * FNV_PRIME) & HASH_MASK
            at += 1
        return (h ^ (h >> 29)) & HASH_MASK

    def _find(self, log: Readable) -> int:
        """Row number of the present record's queue, -1 when it is not in the table."""
        at = self.reader.topic_at
        length = self.reader.topic_end - at
        h = self._hash(log, at, self.reader.topic_end, self.reader.queue_id)
        place = h & self.places_mask
        while self.places[place] != 0:
            base = (self.places[place] - 1) * R_WIDTH
            if (
                self.rows[base + R_HASH] == h
                and self.rows[base + R_QUEUE_ID] == self.reader.queue_id
                and self.rows[base + R_NAME_LENGTH] == length
                and self._same_name(log, at, self.rows[base + R_NAME_AT], length)
            ):
                return base
            place = (place + 1) & self.places_mask
        return -1

    def _same_name(self, log: Readable, at: int, name_at: int, length: int) -> bool:
        if cython.compiled:
            return same(cython.address(self.names_view[0]), name_at, log, at, length)
        return same(self.names, name_at, log, at, length)

    # -- scanning --------------------------------------------------------------------------------------

    def give_code(self, code: int) -> None:
        """Set the number for the record at which a scan stopped with SCAN_NEEDS_CODE; scan that record
        again."""
        self.code = code
        self.code_known = 1

    def scan(
        self, log: Readable, start: int, stop: int, have: int, base: int, check_crc: bool, find_holes: bool
    ) -> int:
        """Take the records that begin from ``start`` to before ``stop``; ``position`` is where it ended.

        Args:
            log: a whole log file, whose first byte has the log offset ``base``.
            have: the end of the written bytes.
            find_holes: whether to look for holes, which a power loss may have left in the log.
        """
        limit = len(log)
        if cython.compiled:
            with cython.nogil:
                return self._scan(
                    cython.address(log[0]), start, stop, have, limit, base, check_crc, find_holes
                )
        return self._scan(log, start, stop, have, limit, base, check_crc, find_holes)

    def _scan(
        self,
        log: Readable,
        start: int,
        stop: int,
        have: int,
        limit: int,
        base: int,
        check_crc: int,
        find_holes: int,
    ) -> int:
        at = start
        status = SCAN_DONE
        while at < stop:
            status = self.reader.read(log, at, have, limit, base + at, check_crc)
            if status == RECORD:
                status = BAD_HOLE if find_holes and self.reader.has_hole(log) else self._take(log)
            if status != SCAN_DONE:
                break
            self.records += 1
            self.stored = self.reader.store_time
            at += self.reader.size
        self.position = at
        return status

    def _take(self, log: Readable) -> int:
        kind = self.reader.sys_flag & TRANSACTION_MASK
        if kind == PREPARED or kind == ROLLED_BACK:  # noqa: SIM109
            return SCAN_DONE
        row = self._find(log)
        if row < 0:
            return SCAN_NEW_QUEUE
        slot = self.rows[row + R_SLOT]
        if slot < 0:
            return SCAN_DONE
        self.slot = slot
        queue = slot * Q_WIDTH
        ahead = self.reader.queue_offset - self.a.q[queue + Q_NEXT]
        if ahead != 0:
            return SCAN_AHEAD if ahead > 0 else SCAN_BEHIND
        if (
            self.a.q[queue + Q_TAIL] < 0
            or self.a.q[queue + Q_NEXT] - self.a.q[queue + Q_SAVED] >= self.a.q[queue + Q_RING]
        ):
            return SCAN_TAIL_FULL
        if self.rows[row + R_NEEDS_CODE] == 0:
            self.reader.find_properties(log)
            self.code = self.reader.tags_code(log)
        elif self.code_known == 0:
            return SCAN_NEEDS_CODE
        self.code_known = 0
        self.a.add_entry(slot, self.reader.physical, self.reader.size, self.code)
        return SCAN_DONE

    def skip(self) -> int:
        """Skip the record at ``position`` without an entry; returns the place behind it."""
        self.records += 1
        self.stored = self.reader.store_time
        self.code_known = 0
        return self.position + self.reader.size
