"""The files of the commit log: their names, maps, and the one being written."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable

from orbitmq.message.numbers import is_digits
from orbitmq.runtime import Files, Runtime, Segment
from orbitmq.store.errors import StoreError

# Blocks are allocated this far ahead of the writer, so that a full disk is noticed before a write needs it.
ALLOCATE_AHEAD_BYTES = 16 << 20
_ZERO_CHECK_BYTES = 1 << 20
# The fixed part of a record, which holds its store time.
TOUCHED_BYTES = 128
# The advice when a file of the log is missing or damaged.
WAY_OUT = (
    "bring the file back, or empty the store's folder and let this broker join as a slave of another broker "
    "of its name (docs/operations.md, Damaged files)"
)


def file_name(offset: int) -> str:
    """The name of a log or queue file: its first offset in 20 digits."""
    return f"{offset:020d}"


def is_file_name(name: str) -> bool:
    return len(name) == 20 and is_digits(name)


class LogFiles:
    """Consecutive files of one size. Offsets are bytes since the beginning of the log."""

    def __init__(self, runtime: Runtime, folder: str, file_bytes: int) -> None:
        self._files = runtime.files
        self.folder = folder
        self.file_bytes = file_bytes
        self._segments: dict[int, Segment] = {}
        self.first = 0
        self.count = 0

    def load(self) -> None:
        """Open the existing files.

        Raises:
            StoreError: a file has another size, or one is missing between others.
        """
        names = [name for name in self._files.list_dir(self.folder) if is_file_name(name)]
        starts = [int(name) for name in names]
        self._check_none_missing(starts)
        for place, start in enumerate(starts):
            path = f"{self.folder}/{names[place]}"
            if start % self.file_bytes or start != starts[0] + place * self.file_bytes:
                raise StoreError(
                    f"{path} does not follow the file before it at {self.file_bytes} bytes a file: "
                    "set mappedFileSizeCommitLog to the size the folder was written with"
                )
            size = self._files.size_bytes(path)
            # A crash right after the creation of the last file leaves it empty.
            if size != self.file_bytes and (size or place != len(starts) - 1):
                raise StoreError(
                    f"{path} has {size} bytes, expected {self.file_bytes}: "
                    "set mappedFileSizeCommitLog to the size the folder was written with; if that is its "
                    f"size, the file is damaged: {WAY_OUT}"
                )
            self._segments[start] = self._files.open_segment(path, self.file_bytes)
        self.first = starts[0] if starts else 0
        self.count = len(starts)

    def _check_none_missing(self, starts: list[int]) -> None:
        """Refuse a gap between the files, and name the missing one."""
        sizes = {self._files.size_bytes(f"{self.folder}/{file_name(start)}") for start in starts[:-1]}
        if any(start % self.file_bytes for start in starts) or sizes - {self.file_bytes}:
            return  # the files have another size
        for before, start in itertools.pairwise(starts):
            if start != before + self.file_bytes:
                missing = f"{self.folder}/{file_name(before + self.file_bytes)}"
                raise StoreError(f"{missing} is missing, the log goes on at {start}: {WAY_OUT}")

    @property
    def end(self) -> int:
        """The offset behind the last file."""
        return self.first + self.count * self.file_bytes

    def starts(self) -> list[int]:
        return [self.first + place * self.file_bytes for place in range(self.count)]

    def start_of(self, offset: int) -> int:
        return offset - offset % self.file_bytes

    def segment(self, offset: int) -> Segment | None:
        """The file that holds ``offset``."""
        return self._segments.get(self.start_of(offset))

    def add(self) -> Segment:
        """Create the next file."""
        start = self.end
        segment = self._files.open_segment(f"{self.folder}/{file_name(start)}", self.file_bytes, create=True)
        self._segments[start] = segment
        self.count += 1
        return segment

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin with the file that holds ``offset``."""
        if self.count:
            raise StoreError(f"{self.folder} already holds log files")
        self.first = self.start_of(offset)

    def remove_first(self) -> str:
        """Delete the oldest file; returns its path."""
        return self._remove(self.first, advance=True)

    def remove_last(self) -> str:
        """Delete the newest file; returns its path."""
        return self._remove(self.end - self.file_bytes, advance=False)

    def _remove(self, start: int, *, advance: bool) -> str:
        segment = self._segments[start]
        # The file is deleted first: if the disk refuses, the table is still right.
        self._files.remove(segment.path)
        del self._segments[start]
        segment.close()
        self.count -= 1
        if advance:
            self.first += self.file_bytes
        return segment.path

    def views(self) -> list[memoryview]:
        return [self._segments[start].view() for start in self.starts()]

    def between(self, start: int, end: int) -> list[Segment]:
        """The files that hold any byte of ``start`` to ``end`` - 1."""
        found = []
        at = self.start_of(start)
        while at < end:
            segment = self._segments.get(at)
            if segment is not None:
                found.append(segment)
            at += self.file_bytes
        return found

    def parts_at(self, places: Iterable[int]) -> list[tuple[str, int]]:
        """The file of each place, and the place's position in it; places without a file are left out."""
        found = []
        for place in places:
            segment = self.segment(place)
            if segment is not None:
                found.append((segment.path, place - self.start_of(place)))
        return found

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self.count = 0


def place_in(segment: Segment, offset: int) -> int:
    """The position of a log offset in a log file; 0 if the offset lies before the file."""
    return max(0, offset - int(segment.path.rpartition("/")[2]))


def touch(files: Files, parts: Iterable[tuple[str, int]]) -> None:
    """Ask the system to read these parts of files into memory."""
    for path, at in parts:
        with contextlib.suppress(OSError):  # the file was deleted meanwhile
            files.read_parts(path, [at], TOUCHED_BYTES)


def sync_all(segments: list[Segment]) -> None:
    """Bring the files to the device, one after the other."""
    for segment in segments:
        segment.sync()


def wipe(log: LogFiles, start: int, end: int) -> int:
    """Write zeros over the bytes from ``start`` to ``end`` of one log file; returns how many.

    The caller brings them to the device.
    """
    segment = log.segment(start)
    if segment is None:
        return 0
    view = segment.view()
    base = log.start_of(start)
    at = start - base
    stop = min(segment.data_end(at), end - base)
    wiped = 0
    while at < stop:
        piece = view[at : min(at + _ZERO_CHECK_BYTES, stop)]
        if piece.tobytes().strip(b"\0"):
            segment.pwrite(bytes(len(piece)), at)
            wiped += len(piece)
        at += len(piece)
    return wiped
