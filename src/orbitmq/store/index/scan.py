# cython: annotation_typing=False
"""The inner loop of the message index: from records of the log to slots and entries of an index file.

:class:`IndexBuilder` reads records where they lie and collects the additions to the file: new entries in one
buffer, slots in pages of 4 KiB. The caller writes both, the slots when the file is complete. It runs in a
worker thread; compiled, it holds neither the interpreter's lock nor a Python object while it works. Nothing
here does I/O.

Typed in ``scan.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.store.index import layout as index_layout
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import copy, fetch, find, get_i32, put_i32, put_i64
    from orbitmq.store.log.records import hash_on

RECORD = layout.RECORD
BLANK = layout.BLANK
ROLLBACK = 0xC

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_MAX_INT = 0x7FFFFFFF

HEADER_BYTES = index_layout.HEADER_BYTES
SLOT_BYTES = index_layout.SLOT_BYTES
ENTRY_BYTES = index_layout.ENTRY_BYTES
PAGE_BYTES = 4096
# The bytes of a record before its body; and how many records ahead are prefetched.
HEAD_BYTES = 92
AHEAD = 4
DONE = index_layout.DONE
MORE = index_layout.MORE
FULL = index_layout.FULL
BROKEN = index_layout.BROKEN
PAGE_LOADED = 1
PAGE_CHANGED = 2

# The most entries read in one search: a slot's chain can be as long as the file.
MAX_STEPS = 1_000_000


def get_int(buf: Readable, at: int, width: int) -> int:
    """The signed big-endian number of ``width`` bytes at ``at``."""
    if cython.compiled:
        value = buf[at]
        if value >= 128:
            value -= 256
        for i in range(1, width):
            value = value * 256 + buf[at + i]
        return value
    return int.from_bytes(buf[at : at + width], "big", signed=True)


def positive(h: int) -> int:
    """The absolute value of a signed 32 bit hash; 0 for -2**31, whose absolute value does not fit."""
    value = h
    if value >= _SIGN:
        value = _MASK - value + 1
    return 0 if value == _SIGN else value


def key_hash(key: bytes) -> int:
    """The hash under which ``topic#key`` is filed (IndexFile.indexKeyHashMethod)."""
    if cython.compiled:
        return positive(hash_on(0, cython.address(key[0]), 0, len(key)))
    return positive(hash_on(0, key, 0, len(key)))


def select(
    file: Readable, slot_count: int, entry: int, next_entry: int, h: int, begin: int, end: int, limit: int
) -> list[int]:
    """Log offsets of the newest ``limit`` entries with hash ``h``, newest first.

    Args:
        file: the whole index file.
        entry: number of the newest entry in the hash's slot.
        next_entry: number of the first entry that is not written.
        begin, end: bounds of the seconds since the file's first message; both inclusive.
    """
    if cython.compiled:
        return _select(cython.address(file[0]), slot_count, entry, next_entry, h, begin, end, limit)
    return _select(file, slot_count, entry, next_entry, h, begin, end, limit)


def _select(
    file: Readable, slot_count: int, entry: int, next_entry: int, h: int, begin: int, end: int, limit: int
) -> list[int]:
    found: list[int] = []
    entries_at = HEADER_BYTES + slot_count * SLOT_BYTES
    for _ in range(MAX_STEPS):
        if not 0 < entry < next_entry or len(found) >= limit:
            break
        at = entries_at + entry * ENTRY_BYTES
        seconds = get_int(file, at + 12, 4)
        if get_int(file, at, 4) == h and begin <= seconds <= end:
            found.append(get_int(file, at + 4, 8))
        # Chains lead to older entries only; anything else is damage.
        if seconds < begin or get_int(file, at + 16, 4) >= entry:
            break
        entry = get_int(file, at + 16, 4)
    return found


class IndexBuilder:
    """The content of the newest index file, and the additions to it.

    Args:
        slot_count: slots of the file.
        entry_limit: entries of the file; number 0 is never used.
        buffer_entries: most entries collected before they must be written.
    """

    def __init__(self, slot_count: int, entry_limit: int, buffer_entries: int) -> None:
        self.slot_count = slot_count
        self.entry_limit = entry_limit
        self.slots = bytearray(slot_count * SLOT_BYTES)
        self.slots_view = self.slots
        self.pages = bytearray(-(-slot_count * SLOT_BYTES // PAGE_BYTES))
        self.pages_view = self.pages
        self.entries = bytearray(buffer_entries * ENTRY_BYTES)
        self.entries_view = self.entries
        self.entries_room = buffer_entries
        self.reader = RecordReader()
        self.begin_time = 0
        self.end_time = 0
        self.begin_offset = 0
        self.end_offset = 0
        self.used_slots = 0
        self.next_entry = 1
        self.first_entry = 1
        self.position = 0

    def scan(self, log: Readable, start: int, end: int, file: Readable) -> int:
        """Add the records from ``start`` to ``end`` of a log file; ``position`` is where it stopped.

        Args:
            log: the log file.
            file: the index file as it is.
        """
        room = len(log)
        if cython.compiled:
            with cython.nogil:
                return self._scan(cython.address(log[0]), room, start, end, cython.address(file[0]))
        return self._scan(log, room, start, end, file)

    def _scan(self, log: Readable, room: int, start: int, end: int, file: Readable) -> int:
        at = start
        status = DONE
        while at < end:
            found = self.reader.read(log, at, room, room, -1, 0)
            if found == BLANK:
                at = room
                break
            if found != RECORD:
                status = BROKEN
                break
            self._fetch_ahead(log, at, room)
            status = self._record(log, file)
            if status != DONE:
                break
            at += self.reader.size
        self.position = at
        return status

    def _fetch_ahead(self, log: Readable, at: int, room: int) -> None:
        """Prefetch head and tail of a later record, assuming that all are as large as this one."""
        size = self.reader.size
        ahead = at + AHEAD * size
        if ahead + size <= room:
            fetch(log, ahead, HEAD_BYTES)
            fetch(log, ahead + self.reader.body_end - at, at + size - self.reader.body_end)

    def _record(self, log: Readable, file: Readable) -> int:
        """Add the keys of the record that the reader has found."""
        if self.reader.sys_flag & ROLLBACK == ROLLBACK:
            return DONE
        self.reader.find_properties(log)
        wanted = self._each_key(log, 0, 0, file, 0)
        if wanted == 0:
            return DONE
        # A record's keys stay together, unless no file could hold them.
        if self.next_entry + wanted > self.entry_limit and self.next_entry > 1:
            return FULL
        if self.next_entry - self.first_entry + wanted > self.entries_room:
            return MORE
        self._each_key(log, self.reader.physical, self.reader.store_time, file, 1)
        return DONE

    def _each_key(self, log: Readable, physical: int, stored: int, file: Readable, put: int) -> int:
        """Count the keys of the present record; with ``put`` add them."""
        topic = hash_on(0, log, self.reader.topic_at, self.reader.topic_end)
        topic = (topic * 31 + 35) & _MASK  # '#'
        count = 0
        if self.reader.id_end > self.reader.id_at:
            count = 1
            if put:
                self._put(hash_on(topic, log, self.reader.id_at, self.reader.id_end), physical, stored, file)
        pos = self.reader.keys_at
        end = self.reader.keys_end
        while pos < end:
            start = pos
            pos = find(log, 32, pos, end)
            if pos > start:
                count += 1
                if put:
                    self._put(hash_on(topic, log, start, pos), physical, stored, file)
            pos += 1
        return count

    def _put(self, h: int, physical: int, stored: int, file: Readable) -> None:
        if self.next_entry >= self.entry_limit:
            return
        key = positive(h)
        at = (key % self.slot_count) * SLOT_BYTES
        page = at // PAGE_BYTES
        if not self.pages_view[page]:
            self._load_page(page, file)
        self.pages_view[page] = PAGE_CHANGED
        slots = cython.address(self.slots_view[0]) if cython.compiled else self.slots
        previous = get_i32(slots, at)
        # As in RocketMQ, a number that cannot be an entry's counts as an empty slot.
        if previous <= 0 or previous >= self.next_entry:
            previous = 0
            self.used_slots += 1
        if self.next_entry == 1:
            self.begin_offset = physical
            self.begin_time = stored
        self._write_entry(key, physical, (stored - self.begin_time) // 1000, previous)
        put_i32(slots, at, self.next_entry)
        self.next_entry += 1
        self.end_offset = physical
        self.end_time = stored

    def _write_entry(self, key: int, physical: int, seconds: int, previous: int) -> None:
        out = cython.address(self.entries_view[0]) if cython.compiled else self.entries
        at = (self.next_entry - self.first_entry) * ENTRY_BYTES
        put_i32(out, at, key)
        put_i64(out, at + 4, physical)
        put_i32(out, at + 12, max(0, min(seconds, _MAX_INT)))
        put_i32(out, at + 16, previous)

    def _load_page(self, page: int, file: Readable) -> None:
        at = page * PAGE_BYTES
        slots = cython.address(self.slots_view[0]) if cython.compiled else self.slots
        copy(slots, at, file, HEADER_BYTES + at, min(PAGE_BYTES, self.slot_count * SLOT_BYTES - at))

    def newest_of(self, h: int, file: Readable) -> int:
        """Number of the newest entry in the slot of hash ``h``, 0 for none."""
        at = (h % self.slot_count) * SLOT_BYTES
        if self.pages[at // PAGE_BYTES]:
            return int.from_bytes(self.slots[at : at + SLOT_BYTES], "big", signed=True)
        return int.from_bytes(file[HEADER_BYTES + at : HEADER_BYTES + at + SLOT_BYTES], "big", signed=True)

    def take_changed_slots(self) -> list[tuple[int, bytes]]:
        """The pages of the slot table that changed since the last call, with their place in the table."""
        changed: list[tuple[int, bytes]] = []
        page = self.pages.find(PAGE_CHANGED)
        while page >= 0:
            self.pages[page] = PAGE_LOADED
            at = page * PAGE_BYTES
            changed.append((at, bytes(self.slots[at : at + PAGE_BYTES])))
            page = self.pages.find(PAGE_CHANGED, page + 1)
        return changed
