"""The timer log on disk: a unit of 52 bytes for each message, in the order of the timer topic (TimerLog).

It is derived from the commit log: units missing or torn after a crash are made again from the timer topic.
Only ``config/timercheck`` waits until the log is on the device, because a Java broker makes no unit again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from orbitmq.broker.timers.units import BLANK, BLANK_MAGIC, UNIT, UNIT_BYTES, Unit
from orbitmq.message.numbers import is_digits
from orbitmq.runtime.seam import Files, Segment, Threads

log = logging.getLogger(__name__)

_FILE_DIGITS = 20
# Behind the newest unit there is always room for a unit of zeros: the end of the valid units.
_END = bytes(UNIT_BYTES)
SCAN_UNITS = 4096
# The fields of a unit, see :class:`Unit`.
Fields: TypeAlias = tuple[Any, ...]


def _valid(units: list[Fields], newest: int, log_end: int) -> tuple[int, int, int]:
    """How many units from the first one on are valid, the place of the last valid one's message, and the
    latest slot time of these units."""
    latest_ms = 0
    for number, (size, _, magic, written_ms, delay_ms, physical, _, _, _) in enumerate(units):
        if size != UNIT_BYTES or not 0 < magic <= 15 or not newest < physical < log_end:
            return number, newest, latest_ms
        newest = physical
        if written_ms + delay_ms > latest_ms:
            latest_ms = written_ms + delay_ms
    return len(units), newest, latest_ms


class TimerLog:
    """Files of one size below ``timerlog``. A position is an offset over all files.

    Attributes:
        end: where the next unit goes.
        synced: everything below this position is on the device.
    """

    def __init__(self, files: Files, folder: str, file_bytes: int, threads: Threads | None = None) -> None:
        self._files = files
        self._threads = threads
        self._folder = folder
        self._file_bytes = file_bytes
        self._segments: dict[int, Segment] = {}
        # By the first position of a file: the latest slot time of its units.
        self._latest_ms: dict[int, int] = {}
        # Bytes that are not in the files yet, in pieces, each within one file.
        self._unwritten: list[tuple[int, bytearray]] = []
        self._written = 0
        self._syncing = False
        self._paused = False
        self.synced = 0
        self.end = 0

    # -- life ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Look at the files; files that do not fit together are removed."""
        starts = self._starts()
        for at, start in enumerate(starts):
            follows = start % self._file_bytes == 0 and start == starts[0] + at * self._file_bytes
            if not follows or self._files.size_bytes(self._path(start)) != self._file_bytes:
                log.warning("%s is torn: timers are read from the timer topic", self._path(start))
                self._remove(starts[at:])
                break
            self._segments[start] = self._files.open_segment(self._path(start), self._file_bytes)
        self.end = self._written = self.synced = min(self._segments, default=0)

    def close(self) -> None:
        """Release the files."""
        if not self._paused:
            for segment in self._segments.values():
                segment.close()
        self._paused = False
        self._segments.clear()
        self._latest_ms.clear()
        self._unwritten.clear()

    def pause(self) -> None:
        """Release the files but remember them; :meth:`resume` opens them again.

        Raises:
            OSError: the disk refused bytes that were not written yet.
        """
        self.write()
        for segment in self._segments.values():
            segment.close()
        self._paused = True

    def resume(self) -> None:
        """Open the files again that :meth:`pause` released.

        Raises:
            OSError: the disk refused.
        """
        for start in self._segments if self._paused else ():
            self._segments[start] = self._files.open_segment(self._path(start), self._file_bytes)
        self._paused = False

    def clear(self) -> None:
        """Remove all units, also of files that were not opened yet."""
        self.close()
        self._remove(self._starts())
        self.end = self._written = self.synced = 0

    def _starts(self) -> list[int]:
        names = self._files.list_dir(self._folder)
        return sorted(int(name) for name in names if len(name) == _FILE_DIGITS and is_digits(name))

    def _remove(self, starts: list[int]) -> None:
        for start in starts:
            self._files.remove(self._path(start))

    def _path(self, start: int) -> str:
        return f"{self._folder}/{start:0{_FILE_DIGITS}d}"

    @property
    def empty(self) -> bool:
        return not self._segments

    # -- reading ---------------------------------------------------------------------------------------

    def scan(self, log_end: int) -> Iterator[tuple[int, list[Fields]]]:
        """All valid units, many at a time, each time with the position of the first one.

        New units go behind the last one. Units come as tuples, not as objects: there may be millions.

        Args:
            log_end: the end of the commit log: a unit of a later message is not valid.
        """
        newest = -1
        step = SCAN_UNITS * UNIT_BYTES
        for start in sorted(self._segments):
            view = self._segments[start].view()
            usable = self._file_bytes - self._file_bytes % UNIT_BYTES
            at, ended = 0, False
            while at < usable and not ended:
                units = list(UNIT.iter_unpack(view[at : min(usable, at + step)]))
                valid, newest, latest_ms = _valid(units, newest, log_end)
                ended = valid < len(units)
                if valid:
                    self._note(start, latest_ms)
                    yield start + at, units[:valid] if ended else units
                at += valid * UNIT_BYTES
            full = at + UNIT_BYTES + BLANK.size > self._file_bytes or self._is_blank(view, at)
            self.end = self._written = start + (self._file_bytes if full else at)
            if not full:
                break
        self._cut()

    def _is_blank(self, view: memoryview, at: int) -> bool:
        return at + BLANK.size <= self._file_bytes and BLANK.unpack_from(view, at)[2] == BLANK_MAGIC

    def _cut(self) -> None:
        """Remove the files behind the end."""
        late = [start for start in self._segments if start > self.end]
        for start in late:
            self._segments.pop(start).close()
            self._latest_ms.pop(start, None)
        self._remove(late)

    def read(self, position: int) -> Unit | None:
        """The unit at a position; ``None`` when there is no unit."""
        if position >= self._written:
            for start, piece in self._unwritten:
                if start <= position < start + len(piece):
                    return Unit(*UNIT.unpack_from(piece, position - start))
            return None
        start = position - position % self._file_bytes
        segment = self._segments.get(start)
        if segment is None or position < 0 or position - start + UNIT_BYTES > self._file_bytes:
            return None
        unit = Unit(*UNIT.unpack_from(segment.view(), position - start))
        return unit if unit.valid else None

    # -- writing ---------------------------------------------------------------------------------------

    def append(self, unit: bytes, out_ms: int) -> int:
        """Put a unit at the end; returns its position. :meth:`write` brings it to the file."""
        room = self._file_bytes - self.end % self._file_bytes
        if room < UNIT_BYTES + BLANK.size:
            self._put(BLANK.pack(room, 0, BLANK_MAGIC))
            self.end += room - BLANK.size
        position = self.end
        self._note(position - position % self._file_bytes, out_ms)
        self._put(unit)
        return position

    def _put(self, data: bytes) -> None:
        if self._unwritten and self._unwritten[-1][0] + len(self._unwritten[-1][1]) == self.end:
            _, piece = self._unwritten[-1]
            if self.end % self._file_bytes:
                piece += data
                self.end += len(data)
                return
        self._unwritten.append((self.end, bytearray(data)))
        self.end += len(data)

    def _note(self, start: int, out_ms: int) -> None:
        if out_ms > self._latest_ms.get(start, -1):
            self._latest_ms[start] = out_ms

    def write(self) -> None:
        """Write the units that were appended.

        Raises:
            OSError: the disk refused; the next call tries again.
        """
        while self._unwritten:
            position, piece = self._unwritten[0]
            start = position - position % self._file_bytes
            segment = self._segments.get(start)
            if segment is None:
                segment = self._segments[start] = self._files.open_segment(
                    self._path(start), self._file_bytes, create=True
                )
            at = position - start
            # The end is marked with the same write: old bytes may lie behind.
            segment.pwrite(bytes(piece) + _END[: self._file_bytes - at - len(piece)], at)
            self._unwritten.pop(0)
            self._written = position + len(piece)

    def bring_to_device(self, done: Callable[[bool], object]) -> None:
        """Sync the written units in a thread, then call ``done`` with whether it worked.

        Nothing happens while an earlier call is at work.
        """
        if self._threads is None or self._syncing:
            return
        first, written = self.synced - self.synced % self._file_bytes, self._written
        segments = [segment for start, segment in self._segments.items() if start >= first]

        def synced(error: BaseException | None) -> None:
            self._syncing = False
            if error is None:
                self.synced = max(self.synced, written)
            else:
                log.error("the timer log is not on the device: %s", error)
            done(error is None)

        self._syncing = True
        self._threads.sync(segments, synced)

    def rewrite(self, position: int, unit: Unit) -> None:
        """Change a unit that was written.

        Raises:
            OSError: the disk refused.
        """
        start = position - position % self._file_bytes
        self._segments[start].pwrite(UNIT.pack(*unit), position - start)

    def sync(self) -> None:
        """Bring the files to the device; called in a thread.

        Raises:
            OSError: the disk refused.
        """
        written = self._written
        for segment in self._segments.values():
            segment.sync()
        self.synced = written

    def drop_before(self, passed_ms: int, before: int = sys.maxsize) -> None:
        """Remove the oldest files whose slots have all passed.

        Args:
            before: only files whose messages all lie before this place of the commit log are removed.
        """
        for start, following in pairwise(sorted(self._segments)):
            newer = self.read(following)
            if self._latest_ms.get(start, 0) >= passed_ms or newer is None or newer.physical > before:
                break
            self._segments.pop(start).close()
            self._latest_ms.pop(start, None)
            self._remove([start])
