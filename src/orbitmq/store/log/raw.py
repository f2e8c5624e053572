"""The log as bytes, for who copies it."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.runtime import Runtime
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout as table


class RawLog:
    """Reads what is written, whole records or not.

    Args:
        end: gives the end of what is written.
    """

    def __init__(self, runtime: Runtime, files: LogFiles, end: Callable[[], int]) -> None:
        self._runtime = runtime
        self._files = files
        self._end = end

    def data(self, offset: int, most: int) -> memoryview | None:
        """Written bytes from ``offset`` on: up to ``most``, all in one file, ending anywhere.

        ``None``: nothing is written there, or it is deleted.
        """
        size = min(most, self._end() - offset)
        segment = self._files.segment(offset)
        if size <= 0 or segment is None:
            return None
        at = offset - self._files.start_of(offset)
        return segment.view()[at : at + size]

    @property
    def last_file_start(self) -> int:
        """Where the newest file begins; a new one is needed when the log ends at a border."""
        return max(self._files.first, self._files.start_of(self._end()))

    def read_ahead(self, start: int, end: int) -> None:
        """Somebody is about to read this part; does not wait for the disk."""
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
