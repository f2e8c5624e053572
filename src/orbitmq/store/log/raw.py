# cython: annotation_typing=False
"""Reads the log as bytes, to copy or search it."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.runtime import Runtime
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.records import RecordReader
from orbitmq.store.ports import FilePart, LogPiece
from orbitmq.store.queues import layout as table


def first_record_time(files: LogFiles, start: int) -> int | None:
    """The store time of the record that begins a log file, ms; ``None`` without such a record."""
    segment = files.segment(start)
    if segment is None:
        return None
    reader = RecordReader()
    return reader.store_time if reader.read_at(segment.view(), 0, start, False) == table.RECORD else None


class RawLog:
    """Reads written bytes, whole records or not.

    Args:
        end: gives the end of the written log.
        in_memory: gives the bytes from an offset to the end while they are in memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: LogFiles,
        end: Callable[[], int],
        in_memory: Callable[[int], memoryview | None],
    ) -> None:
        self._runtime = runtime
        self._files = files
        self._end = end
        self._in_memory = in_memory

    def data(self, offset: int, most: int) -> memoryview | None:
        """Written bytes from ``offset`` on: up to ``most``, all in one file, ending anywhere.

        ``None``: no bytes are written there, or they are deleted.
        """
        part = self.part(offset, most)
        return part.segment.view()[part.start : part.end] if part is not None else None

    def part(self, offset: int, most: int) -> FilePart | None:
        """The bytes that :meth:`data` returns, as a part of their file."""
        size = min(most, self._end() - offset)
        segment = self._files.segment(offset)
        if size <= 0 or segment is None:
            return None
        at = offset - self._files.start_of(offset)
        memory = self._in_memory(offset)
        if memory is not None and len(memory) != size:
            memory = None
        return FilePart(segment, at, min(at + size, self._files.file_bytes), memory)

    def piece(self, start: int, end: int) -> LogPiece | None:
        """The written log from ``start``, where a record begins, to ``end`` or to the end of its file.

        ``None``: no bytes are stored there.
        """
        segment = self._files.segment(start)
        end = min(end, self._end())
        if segment is None or not self._files.first <= start < end:
            return None
        base = self._files.start_of(start)
        return LogPiece(start, min(end, base + self._files.file_bytes), segment.view(), base)

    def file_before(self, timestamp_ms: int) -> int:
        """The first offset of the last log file that begins with a record stored before that time.

        All records stored at that time or later lie behind it. The log's first offset when there is no
        such file.
        """
        for start in reversed(self._files.starts()):
            stored = first_record_time(self._files, start)
            if stored is not None and stored < timestamp_ms:
                return start
        return self._files.first

    @property
    def last_file_start(self) -> int:
        """Where the newest file begins; the end of the log if that is the border of a file, where the next
        one begins."""
        return max(self._files.first, self._files.start_of(self._end()))

    def read_ahead(self, start: int, end: int) -> None:
        """Prefetch this part, which is about to be read; does not wait for the disk."""
        segment = self._files.segment(start)
        if segment is not None:
            begin = start - self._files.start_of(start)
            segment.read_ahead(begin, min(segment.size_bytes, begin + end - start))

    async def record_starts(self, start: int, end: int) -> list[int]:
        """Where the records (and blanks) begin that hold ``start`` or a later byte below ``end``, ascending.

        Reads in a thread, from the beginning of ``start``'s file.
        """
        return await self._runtime.threads.run(self._record_starts, start, min(end, self._end()))

    def _record_starts(self, start: int, end: int) -> list[int]:
        reader = RecordReader()
        starts: list[int] = []
        at = self._files.start_of(start)
        while at < end and (segment := self._files.segment(at)) is not None:
            base, view = self._files.start_of(at), segment.view()
            while at < min(end, base + len(view)):
                if reader.read_at(view, at - base, at, False) not in (table.RECORD, table.BLANK):
                    return starts
                if at + reader.size > start:
                    starts.append(at)
                at += reader.size
        return starts
