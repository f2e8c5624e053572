# cython: annotation_typing=False
"""The inner loop of the message index: from records of the log to slots and entries of an index file.

:class:`IndexBuilder` reads records where they lie and collects what the file gets: new entries in one
buffer, slots in pages of 4 KiB. The caller writes both, the slots when the file is complete. It runs in a
worker thread; compiled, it holds neither the interpreter's lock nor a Python object while it works. Nothing
here does I/O.

Typed in ``index_scan.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.store.index import layout as index_layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
BORN_V6 = 0x10
STORE_V6 = 0x20
ROLLBACK = 0xC

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_MAX_INT = 0x7FFFFFFF

HEADER_BYTES = index_layout.HEADER_BYTES
SLOT_BYTES = index_layout.SLOT_BYTES
ENTRY_BYTES = index_layout.ENTRY_BYTES
PAGE_BYTES = 4096
DONE = index_layout.DONE
MORE = index_layout.MORE
FULL = index_layout.FULL
BROKEN = index_layout.BROKEN
PAGE_LOADED = 1
PAGE_CHANGED = 2

# Entries looked at in one search: a slot's chain can be as long as the file.
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


def hash_on(h: int, buf: Readable, at: int, end: int) -> int:
    """Java's ``String.hashCode`` of UTF-8 text, going on from ``h``; what is not UTF-8 counts as U+FFFD."""
    while at < end:
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
                # Java counts the two halves of the pair.
                h = (h * 31 + 0xD800 + ((c - 0x10000) >> 10)) & _MASK
                c = 0xDC00 + (c & 0x3FF)
            else:
                c = 0xFFFD
        h = (h * 31 + c) & _MASK
    return h


def positive(h: int) -> int:
    """The absolute value of a signed 32 bit hash; the one without an absolute value counts as 0."""
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
    """What the newest index file holds, and what it gets next.

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
        self.begin_time = 0
        self.end_time = 0
        self.begin_offset = 0
        self.end_offset = 0
        self.used_slots = 0
        self.next_entry = 1
        self.first_entry = 1
        self.position = 0

    def scan(self, log: Readable, start: int, end: int, file: Readable) -> int:
        """Take up the records from ``start`` to ``end`` of a log file; ``position`` is where it stopped.

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
            if room - at < 8:
                status = BROKEN
                break
            size = get_int(log, at, 4)
            magic = get_int(log, at + 4, 4)
            if magic == MAGIC_BLANK:
                at = room
                break
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < 91 or at + size > room:
                status = BROKEN
                break
            status = self._record(log, at, size, magic == MAGIC_V2, file)
            if status != DONE:
                break
            at += size
        self.position = at
        return status

    def _record(self, log: Readable, at: int, size: int, wide: int, file: Readable) -> int:
        flags = get_int(log, at + 36, 4)
        pos = at + 48 + (20 if flags & BORN_V6 else 8)
        stored = get_int(log, pos, 8)
        pos += 8 + (20 if flags & STORE_V6 else 8) + 12
        stop = at + size
        if pos + 7 > stop:
            return BROKEN
        length = get_int(log, pos, 4)
        pos += 4
        if length < 0 or length > stop - pos - 4:
            return BROKEN
        pos += length
        length = get_int(log, pos, 2) if wide else log[pos]
        pos += 2 if wide else 1
        if length < 0 or length > stop - pos - 2:
            return BROKEN
        self.topic_at = pos
        self.topic_end = pos + length
        if flags & ROLLBACK == ROLLBACK:
            return DONE
        self._find_keys(log, pos + length + 2, stop)
        wanted = self._each_key(log, 0, 0, file, 0)
        if wanted == 0:
            return DONE
        # A record's keys stay together, unless no file could hold them.
        if self.next_entry + wanted > self.entry_limit and self.next_entry > 1:
            return FULL
        if self.next_entry - self.first_entry + wanted > self.entries_room:
            return MORE
        self._each_key(log, get_int(log, at + 28, 8), stored, file, 1)
        return DONE

    def _find_keys(self, log: Readable, pos: int, end: int) -> None:
        """Where the values of UNIQ_KEY and KEYS stand in the properties; the last one of a name counts."""
        self.id_at = self.id_end = self.keys_at = self.keys_end = 0
        while pos < end:
            stop = pos
            name_end = -1
            while stop < end and log[stop] != 2:
                if log[stop] == 1 and name_end < 0:
                    name_end = stop
                stop += 1
            if name_end > 0:
                # "KEYS" and "UNIQ_KEY": length and first letter decide first.
                if name_end - pos == 4 and log[pos] == 75:
                    if log[pos + 1] == 69 and log[pos + 2] == 89 and log[pos + 3] == 83:
                        self.keys_at = name_end + 1
                        self.keys_end = stop
                elif (
                    name_end - pos == 8
                    and log[pos] == 85
                    and log[pos + 1] == 78
                    and log[pos + 2] == 73
                    and log[pos + 3] == 81
                    and log[pos + 4] == 95
                    and log[pos + 5] == 75
                    and log[pos + 6] == 69
                    and log[pos + 7] == 89
                ):
                    self.id_at = name_end + 1
                    self.id_end = stop
            pos = stop + 1

    def _each_key(self, log: Readable, physical: int, stored: int, file: Readable, put: int) -> int:
        """Count the keys of the record at hand; with ``put`` take them up."""
        topic = hash_on(0, log, self.topic_at, self.topic_end)
        topic = (topic * 31 + 35) & _MASK  # '#'
        count = 0
        if self.id_end > self.id_at:
            count = 1
            if put:
                self._put(hash_on(topic, log, self.id_at, self.id_end), physical, stored, file)
        pos = self.keys_at
        while pos < self.keys_end:
            start = pos
            while pos < self.keys_end and log[pos] != 32:
                pos += 1
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
        slots = self.slots_view
        previous = (slots[at] << 24) | (slots[at + 1] << 16) | (slots[at + 2] << 8) | slots[at + 3]
        # As in RocketMQ, a number that cannot be an entry's counts as an empty slot.
        if previous <= 0 or previous >= self.next_entry:
            previous = 0
            self.used_slots += 1
        if self.next_entry == 1:
            self.begin_offset = physical
            self.begin_time = stored
        self._write_entry(key, physical, (stored - self.begin_time) // 1000, previous)
        for i in range(4):
            slots[at + i] = (self.next_entry >> (24 - 8 * i)) & 0xFF
        self.next_entry += 1
        self.end_offset = physical
        self.end_time = stored

    def _write_entry(self, key: int, physical: int, seconds: int, previous: int) -> None:
        out = self.entries_view
        at = (self.next_entry - self.first_entry) * ENTRY_BYTES
        seconds = max(0, min(seconds, _MAX_INT))
        for i in range(4):
            out[at + i] = (key >> (24 - 8 * i)) & 0xFF
            out[at + 12 + i] = (seconds >> (24 - 8 * i)) & 0xFF
            out[at + 16 + i] = (previous >> (24 - 8 * i)) & 0xFF
        for i in range(8):
            out[at + 4 + i] = (physical >> (56 - 8 * i)) & 0xFF

    def _load_page(self, page: int, file: Readable) -> None:
        at = page * PAGE_BYTES
        stop = min(at + PAGE_BYTES, self.slot_count * SLOT_BYTES)
        while at < stop:
            self.slots_view[at] = file[HEADER_BYTES + at]
            at += 1

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
