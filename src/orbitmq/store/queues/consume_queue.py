"""One consume queue: 20 bytes for each message of a queue, in files of 300,000 entries.

An entry is the record's physical offset (8), its size (4) and its tags code (8). Queues are derived from the
log: what is missing or too much here is put right by recovery.
"""

from __future__ import annotations

import struct

from orbitmq.runtime import Runtime, Segment
from orbitmq.store.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from orbitmq.store.errors import StoreError
from orbitmq.store.log.files import file_name, is_file_name

_ENTRY = struct.Struct(">qiq")
# Stands for an offset that this broker never had (the queue did not begin at 0 here).
_SKIPPED = _ENTRY.pack(0, 0x7FFFFFFF, 0)
_SKIPPED_SIZE = 0x7FFFFFFF


class ConsumeQueue:
    """The files of one queue. Offsets count messages."""

    def __init__(self, runtime: Runtime, folder: str, file_bytes: int) -> None:
        self._files = runtime.files
        self.folder = folder
        self.entries_per_file = file_bytes // ENTRY_BYTES
        self.file_bytes = self.entries_per_file * ENTRY_BYTES
        self._segments: dict[int, Segment] = {}
        self._unsynced: set[int] = set()
        self._syncing: set[int] = set()
        self.min_offset = 0
        self.next_offset = 0

    def load(self) -> None:
        """Open the files and find the first and the last entry.

        Raises:
            StoreError: a file of another size.
        """
        names = [name for name in self._files.list_dir(self.folder) if is_file_name(name)]
        for name in names:
            number, rest = divmod(int(name), self.file_bytes)
            path = f"{self.folder}/{name}"
            size = self._files.size_bytes(path)
            # A crash right behind the creation leaves an empty file.
            if rest or size not in (0, self.file_bytes):
                raise StoreError(
                    f"{path} has {size} bytes, expected {self.file_bytes}: "
                    "set mappedFileSizeConsumeQueue to the size the folder was written with"
                )
            self._segments[number] = self._files.open_segment(path, self.file_bytes)
        if not names:
            return
        first, last = min(self._segments), max(self._segments)
        self.min_offset = first * self.entries_per_file
        filled = self._filled(last)
        while filled == 0 and last > first:
            last -= 1
            filled = self._filled(last)
        self.next_offset = last * self.entries_per_file + filled
        while self.min_offset < self.next_offset and self.entry(self.min_offset)[1] == _SKIPPED_SIZE:
            self.min_offset = self._first_real(self.min_offset)

    def _first_real(self, low: int) -> int:
        """Skipped entries stand in one run at the beginning of the first file."""
        high = self.next_offset
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] == _SKIPPED_SIZE:
                low = middle + 1
            else:
                high = middle
        return low

    def _filled(self, number: int) -> int:
        """How many entries of the file are written: entries have a size, and fill a file from its start."""
        view = self._segments[number].view()
        low, high = 0, self.entries_per_file
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(view, middle * ENTRY_BYTES)[1] > 0:
                low = middle + 1
            else:
                high = middle
        return low

    def entry(self, offset: int) -> tuple[int, int, int]:
        """(physical offset, size, tags code) of ``offset``, which must be below ``next_offset``."""
        number, place = divmod(offset, self.entries_per_file)
        entry: tuple[int, int, int] = _ENTRY.unpack_from(self._segments[number].view(), place * ENTRY_BYTES)
        return entry

    def file_view(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The map of the file that holds ``offset``, its first offset, and how many entries it holds now."""
        number = offset // self.entries_per_file
        segment = self._segments.get(number)
        if segment is None:
            return None
        first = number * self.entries_per_file
        return segment.view(), first, min(self.entries_per_file, self.next_offset - first)

    def write(self, offset: int, entries: bytes | bytearray | memoryview) -> None:
        """Write whole entries at ``offset``, which is ``next_offset`` or below."""
        view = memoryview(entries)
        while len(view):
            number, place = divmod(offset, self.entries_per_file)
            room = (self.entries_per_file - place) * ENTRY_BYTES
            piece = view[:room]
            self._segment(number).pwrite(piece, place * ENTRY_BYTES)
            self._unsynced.add(number)
            offset += len(piece) // ENTRY_BYTES
            view = view[len(piece) :]
        self.next_offset = max(self.next_offset, offset)

    def begin_at(self, offset: int) -> None:
        """Let an empty queue begin at ``offset``: earlier places of its first file are marked as skipped."""
        self.truncate(0)
        number, place = divmod(offset, self.entries_per_file)
        if place:
            self._segment(number).pwrite(_SKIPPED * place, 0)
            self._unsynced.add(number)
        self.min_offset = self.next_offset = offset

    def _segment(self, number: int) -> Segment:
        segment = self._segments.get(number)
        if segment is None:
            path = f"{self.folder}/{file_name(number * self.file_bytes)}"
            segment = self._files.open_segment(path, self.file_bytes, create=True)
            self._segments[number] = segment
        return segment

    def truncate(self, next_offset: int) -> None:
        """Forget the entries from ``next_offset`` on."""
        if next_offset >= self.next_offset and next_offset > 0:
            return
        number, place = divmod(next_offset, self.entries_per_file)
        for other in sorted(self._segments):
            if other > number or (other == number and place == 0):
                self._drop(other)
        segment = self._segments.get(number)
        if segment is not None:
            stale = min(self.next_offset - next_offset, self.entries_per_file - place)
            segment.pwrite(bytes(stale * ENTRY_BYTES), place * ENTRY_BYTES)
            self._unsynced.add(number)
        self.next_offset = next_offset
        self.min_offset = min(self.min_offset, next_offset)

    def keep_below(self, physical_offset: int) -> None:
        """After a crash: keep the entries of records below ``physical_offset``, which are on the device.

        What stands behind them may be anything: some entries got written, some did not.
        """
        if not self._segments:
            return
        low = self.min_offset
        high = (max(self._segments) + 1) * self.entries_per_file
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self._any_entry(middle)
            if size > 0 and physical < physical_offset:
                low = middle + 1
            else:
                high = middle
        number, place = divmod(low, self.entries_per_file)
        for other in [other for other in self._segments if other > number]:
            self._drop(other)
        segment = self._segments.get(number)
        if segment is not None:
            stale = segment.view()[place * ENTRY_BYTES :].tobytes().rstrip(b"\0")
            if stale:
                segment.pwrite(bytes(len(stale)), place * ENTRY_BYTES)
                self._unsynced.add(number)
        self.next_offset = low
        self.min_offset = min(self.min_offset, low)

    def _any_entry(self, offset: int) -> tuple[int, int, int]:
        """As :meth:`entry`; zeros where there is no file."""
        if offset // self.entries_per_file not in self._segments:
            return 0, 0, 0
        return self.entry(offset)

    def _drop(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._unsynced.discard(number)
        self._syncing.discard(number)
        segment.close()
        self._files.remove(segment.path)

    def drop_below(self, physical_offset: int) -> None:
        """Move the beginning up to the first entry whose record is at or behind ``physical_offset``."""
        low, high = self.min_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self.entry(middle)
            if physical < physical_offset or size == _SKIPPED_SIZE:
                low = middle + 1
            else:
                high = middle
        self.min_offset = low
        keep = low // self.entries_per_file
        last = max(self._segments, default=0)
        for number in sorted(self._segments):
            if number < keep and number < last:
                self._drop(number)

    def end_of_records_below(self, physical_offset: int) -> int:
        """The queue offset behind the last entry whose record begins below ``physical_offset``."""
        low, high = self.min_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def begin_sync(self) -> list[Segment]:
        """The files with writes that are not on the device; sync them, then call :meth:`end_sync`.

        A pass that was broken off counts for nothing: its files are in the next one again.
        """
        self._syncing |= self._unsynced
        self._unsynced.clear()
        return [self._segments[number] for number in sorted(self._syncing)]

    def end_sync(self) -> None:
        self._syncing.clear()

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
