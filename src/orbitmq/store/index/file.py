"""One file of the message index, as RocketMQ lays it out (IndexFile, IndexHeader).

A header of 40 bytes, then a table of slots (the number of the newest entry with that hash), then entries of
20 bytes: hash of ``topic#key``, log offset, seconds since the file's first message, number of the previous
entry of the slot. Entry 0 is never used. The file is sparse: unwritten parts take no space.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orbitmq.message.numbers import is_digits
from orbitmq.runtime import Segment
from orbitmq.store.index.layout import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from orbitmq.store.index.scan import IndexBuilder, key_hash, select

_HEADER = struct.Struct(">qqqqii")
_INT = struct.Struct(">i")
NAME_DIGITS = 17


def file_bytes(slots: int, entries: int) -> int:
    """The size of a file with this many slots and entries."""
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


def is_index_name(name: str) -> bool:
    """Whether a name is that of an index file: ``yyyyMMddHHmmssSSS``, the local time at which it was made."""
    return len(name) == NAME_DIGITS and is_digits(name)


@dataclass(slots=True)
class IndexFile:
    """The header of one file, and the mapped file. Times are ms, offsets are those of the log's records.

    ``next_entry`` is the number of the first unwritten entry; on disk a new file has 0 in place of 1.
    """

    segment: Segment
    begin_time: int = 0
    end_time: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_entry: int = 1

    @classmethod
    def read(cls, segment: Segment) -> IndexFile:
        """The file with its decoded header."""
        file = cls(segment, *_HEADER.unpack_from(segment.view()))
        file.next_entry = max(1, file.next_entry)
        return file

    @property
    def empty(self) -> bool:
        return self.next_entry <= 1

    def builder(self, slots: int, entries: int, buffer_entries: int) -> IndexBuilder:
        """The builder that continues writing this file."""
        builder = IndexBuilder(slots, entries, buffer_entries)
        builder.begin_time, builder.end_time = self.begin_time, self.end_time
        builder.begin_offset, builder.end_offset = self.begin_offset, self.end_offset
        builder.used_slots, builder.next_entry = self.used_slots, self.next_entry
        builder.first_entry = self.next_entry
        return builder

    def write_entries(self, builder: IndexBuilder) -> None:
        """Write the entries that the builder has collected since the last call."""
        count = builder.next_entry - builder.first_entry
        if not count:
            return
        entries_at = HEADER_BYTES + builder.slot_count * SLOT_BYTES
        entries = memoryview(builder.entries)[: count * ENTRY_BYTES]
        self.segment.pwrite(entries, entries_at + builder.first_entry * ENTRY_BYTES)
        builder.first_entry = builder.next_entry
        self.begin_time, self.end_time = builder.begin_time, builder.end_time
        self.begin_offset, self.end_offset = builder.begin_offset, builder.end_offset
        self.used_slots, self.next_entry = builder.used_slots, builder.next_entry

    def complete(self, builder: IndexBuilder) -> None:
        """Write slots and header, and return when the file is on the device.

        Slots are spread over the file and change with every message, so they are written once. A crash before
        that loses nothing: an unfinished file is rebuilt anyway.
        """
        for at, piece in builder.take_changed_slots():
            self.segment.pwrite(piece, HEADER_BYTES + at)
        self.segment.pwrite(
            _HEADER.pack(
                self.begin_time,
                self.end_time,
                self.begin_offset,
                self.end_offset,
                self.used_slots,
                self.next_entry,
            ),
            0,
        )
        self.segment.sync()

    def find(
        self, builder: IndexBuilder | None, slots: int, key: bytes, begin_ms: int, end_ms: int, limit: int
    ) -> list[int]:
        """Log offsets of the newest entries of ``key`` with a time (whole seconds) in the range, newest
        first.

        Args:
            builder: the builder of the file if the file is unfinished, else ``None``.
        """
        if self.empty or end_ms < self.begin_time or begin_ms > self.end_time:
            return []
        first = max(0, (begin_ms - self.begin_time) // 1000)
        last = min((end_ms - self.begin_time) // 1000, 0x7FFFFFFF)
        view = self.segment.view()
        h = key_hash(key)
        if builder is not None:
            entry = builder.newest_of(h, view)
        else:
            entry = _INT.unpack_from(view, HEADER_BYTES + h % slots * SLOT_BYTES)[0]
        return select(view, slots, entry, self.next_entry, h, first, last, limit)


def record_size(view: memoryview, at: int) -> int:
    """The size of the record that begins at ``at``."""
    return int(_INT.unpack_from(view, at)[0])
