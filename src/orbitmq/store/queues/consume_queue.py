"""The files of one consume queue: 20 bytes for each message of a queue, in files of 300,000 entries.

An entry is the record's physical offset (8), its size (4) and its tags code (8). Queues are derived from the
log: recovery adds missing entries and removes entries without records. How far a queue reaches is kept in the
appender's table; a :class:`ConsumeQueue` exists while its files are in use.
"""

from __future__ import annotations

import struct

from orbitmq.runtime import Runtime, Segment
from orbitmq.store.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from orbitmq.store.errors import StoreError
from orbitmq.store.log.files import file_name, is_file_name

_ENTRY = struct.Struct(">qiq")
# The entry of an offset that this broker never had (the queue did not begin at 0 here).
_SKIPPED = _ENTRY.pack(0, 0x7FFFFFFF, 0)
_SKIPPED_SIZE = 0x7FFFFFFF
# The most files of one queue that are open at a time.
MAX_OPEN_FILES = 4

Entry = tuple[int, int, int]


class ConsumeQueue:
    """Offsets count messages, files are counted from 0. Writing returns the numbers of the changed files."""

    def __init__(self, runtime: Runtime, folder: str, file_bytes: int) -> None:
        self._files = runtime.files
        self.folder = folder
        self.entries_per_file = file_bytes // ENTRY_BYTES
        self.file_bytes = self.entries_per_file * ENTRY_BYTES
        self._open: dict[int, Segment] = {}
        # The numbers of the files on disk.
        self._numbers = self._listed()
        self.created = False

    def _listed(self) -> set[int]:
        numbers = set()
        for name in self._files.list_dir(self.folder):
            if is_file_name(name):
                number, rest = divmod(int(name), self.file_bytes)
                size = self._files.size_bytes(f"{self.folder}/{name}")
                # A crash right after the creation leaves an empty file.
                if rest or size not in (0, self.file_bytes):
                    raise StoreError(
                        f"{self.folder}/{name} has {size} bytes, expected {self.file_bytes}: "
                        "set mappedFileSizeConsumeQueue to the size the folder was written with; if that is "
                        "its size, the file is damaged: delete the folder consumequeue, a start makes it anew"
                    )
                numbers.add(number)
        return numbers

    def path_of(self, number: int) -> str:
        return f"{self.folder}/{file_name(number * self.file_bytes)}"

    def _segment(self, number: int, *, create: bool = False) -> Segment | None:
        segment = self._open.get(number)
        if segment is None and (create or number in self._numbers):
            while len(self._open) >= MAX_OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            new = number not in self._numbers
            segment = self._files.open_segment(
                self.path_of(number), self.file_bytes, create=new, durable=False
            )
            self._open[number] = segment
            self._numbers.add(number)
            self.created |= new
        return segment

    # -- the entries -----------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        """The first offset with an entry and the one behind the last, according to the files."""
        if not self._numbers:
            return 0, 0
        first, last = min(self._numbers), max(self._numbers)
        filled = self._filled(last)
        while filled == 0 and last > first:
            last -= 1
            filled = self._filled(last)
        low, end = first * self.entries_per_file, last * self.entries_per_file + filled
        return self.first_real(low, end), end

    def _filled(self, number: int) -> int:
        """How many entries of the file are written: entries have a size, and fill a file from its start."""
        segment = self._segment(number)
        if segment is None:
            return 0
        view = segment.view()
        low, high = 0, self.entries_per_file
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(view, middle * ENTRY_BYTES)[1] > 0:
                low = middle + 1
            else:
                high = middle
        return low

    def first_real(self, low: int, high: int) -> int:
        """The first offset that is not skipped: skipped entries form one run at the beginning."""
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] == _SKIPPED_SIZE:
                low = middle + 1
            else:
                high = middle
        return low

    def entry(self, offset: int) -> Entry:
        """(physical offset, size, tags code) of ``offset``; zeros if there is no file."""
        number, place = divmod(offset, self.entries_per_file)
        segment = self._segment(number)
        if segment is None:
            return 0, 0, 0
        entry: Entry = _ENTRY.unpack_from(segment.view(), place * ENTRY_BYTES)
        return entry

    def file_view(self, offset: int, next_offset: int) -> tuple[memoryview, int, int] | None:
        """The map of the file that holds ``offset``, its first offset, and how many entries it holds now."""
        number = offset // self.entries_per_file
        segment = self._segment(number)
        if segment is None:
            return None
        first = number * self.entries_per_file
        return segment.view(), first, min(self.entries_per_file, next_offset - first)

    def end_below(self, physical_offset: int, low: int, high: int) -> int:
        """The first offset from ``low`` to ``high`` whose record is at or behind ``physical_offset``.

        Offsets without an entry count as behind it: after a crash some entries are written and some are not.
        """
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self.entry(middle)
            if size > 0 and (physical < physical_offset or size == _SKIPPED_SIZE):
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def first_of_files(self) -> int:
        """The first offset of the oldest file."""
        return min(self._numbers) * self.entries_per_file if self._numbers else 0

    @property
    def end_of_files(self) -> int:
        """The offset behind the last one that the files have room for."""
        return (max(self._numbers) + 1) * self.entries_per_file if self._numbers else 0

    # -- changes ---------------------------------------------------------------------------------------

    def write(self, offset: int, entries: bytes | bytearray | memoryview) -> set[int]:
        """Write whole entries at ``offset``."""
        changed = set()
        view = memoryview(entries)
        while len(view):
            number, place = divmod(offset, self.entries_per_file)
            room = (self.entries_per_file - place) * ENTRY_BYTES
            piece = view[:room]
            segment = self._segment(number, create=True)
            if segment is not None:
                segment.pwrite(piece, place * ENTRY_BYTES)
            changed.add(number)
            offset += len(piece) // ENTRY_BYTES
            view = view[len(piece) :]
        return changed

    def begin_at(self, offset: int) -> set[int]:
        """Remove all entries; earlier entries in the file of ``offset`` are marked as skipped.

        Afterwards there is a file, unless ``offset`` is 0: it shows where the queue continues.
        """
        for number in sorted(self._numbers):
            self._remove(number)
        number, place = divmod(offset, self.entries_per_file)
        if place:
            return self.write(offset - place, _SKIPPED * place)
        return {number} if number and self._segment(number, create=True) is not None else set()

    def cut(self, next_offset: int) -> set[int]:
        """Remove the entries from ``next_offset`` on, if there are any."""
        number, place = divmod(next_offset, self.entries_per_file)
        # Without an earlier file, only an empty one shows where the queue continues.
        keeps_empty = 0 < number == min(self._numbers, default=0)
        for other in sorted(self._numbers):
            if other > number or (other == number and place == 0 and not keeps_empty):
                self._remove(other)
        segment = self._segment(number)
        if segment is None:
            return set()
        at = place * ENTRY_BYTES
        stale = segment.view()[at : segment.data_end(at)].tobytes().rstrip(b"\0")
        if not stale:
            return set()
        segment.pwrite(bytes(len(stale)), at)
        return {number}

    def remove_files_below(self, offset: int) -> None:
        """Remove the files that only have entries below ``offset``; the newest file stays."""
        keep = min(offset // self.entries_per_file, max(self._numbers, default=0))
        for number in sorted(self._numbers):
            if number < keep:
                self._remove(number)

    def _remove(self, number: int) -> None:
        segment = self._open.pop(number, None)
        if segment is not None:
            segment.close()
        self._files.remove(self.path_of(number))
        self._numbers.discard(number)

    def close(self) -> None:
        for segment in self._open.values():
            segment.close()
        self._open.clear()
