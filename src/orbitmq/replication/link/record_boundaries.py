"""Finds where records of this broker's log begin, reading as little of it as possible."""

from __future__ import annotations

from struct import pack

from orbitmq.message.record_layout import BLANK_BYTES, MAGIC_AT, MAGIC_BLANK, MAGIC_V1
from orbitmq.replication.link.agreement import Span
from orbitmq.runtime.seam import Runtime
from orbitmq.store.log.records import RecordReader
from orbitmq.store.ports import CopiedLog, LogPiece
from orbitmq.store.queues import layout as table

# How far to search backwards for the start of a record: twice the largest message.
MAX_SCAN_BYTES = 8 << 20
SCAN_BYTES = 64 * 1024
# The first bytes of the magic numbers of both versions of a record.
_RECORD_MARK = pack(">i", MAGIC_V1)[:3]
_BLANK_MARK = pack(">i", MAGIC_BLANK)


class RecordBoundaries:
    """Reads heads of records, many of them in a thread. Implements ``agreement.Records``."""

    def __init__(self, runtime: Runtime, store: CopiedLog) -> None:
        self._runtime = runtime
        self._store = store

    def _piece(self, start: int, end: int) -> LogPiece | None:
        return self._store.raw.piece(start, end)

    def first(self, file_start: int) -> Span | None:
        """The record that begins a log file; ``None``: none can be read there."""
        return self._one(file_start, table.RECORD)

    def blank(self, at: int) -> Span | None:
        """The blank that begins at a place; ``None``: no blank begins there."""
        return self._one(at, table.BLANK)

    def _one(self, at: int, kind: int) -> Span | None:
        piece = self._piece(at, at + BLANK_BYTES)
        reader = RecordReader()
        if piece is None or reader.read_at(piece.view, at - piece.base, at, False) != kind:
            return None
        return Span(at, at + reader.size)

    async def last(self, end: int) -> Span | None:
        """The last record of a log that ends at ``end``; ``None``: a short search does not find it."""
        file_bytes = self._store.config.commit_log_file_bytes
        piece = self._piece((end - 1) // file_bytes * file_bytes, end)
        if piece is None or piece.end != end:
            return None
        return await self._runtime.threads.run(last_record, piece)

    async def between(self, start: int, end: int, most: int) -> list[Span]:
        """Records of one file that begin behind the record at ``start`` and below ``end``, ascending.

        Up to ``most`` of them, spread evenly; all when there are no more. The records are read one after the
        other, which takes half a second for a million (1 GiB of 1 KiB each) and the time that the disk needs.
        """
        piece = self._piece(start, end)
        return [] if piece is None else await self._runtime.threads.run(some_records, piece, most)


def some_records(piece: LogPiece, most: int) -> list[Span]:
    """Up to ``most`` of the records that begin in the piece, except its first one.

    The same number of records is skipped between any two in the answer, whatever their sizes: with equal
    distances in bytes, many small records before a large one would all remain to be compared.
    """
    reader, view, base = RecordReader(), piece.view, piece.base
    found: list[Span] = []
    at, number, every = piece.start, 0, 1
    while at < piece.end and reader.read_at(view, at - base, at, False) == table.RECORD:
        following = at + reader.size
        if number % every == 0 and at > piece.start:
            found.append(Span(at, following))
            if len(found) > most:
                del found[::2]
                every *= 2
        at = following
        number += 1
    return found


def last_record(piece: LogPiece) -> Span | None:
    """The last record of the piece: behind it the piece ends, or has only the blank of its file.

    Records have no pointer back. So a record's magic number is searched backwards; a record begins there if
    its physical offset is this place and its lengths lead to the end. A sender that knows at which byte its
    message will be stored could write such a record into the body. So this search only decides that nothing
    must be cut; the place of a cut is found from the file's first record on (:func:`some_records`).
    """
    view, base = piece.view, piece.base
    end = piece.end - base
    if piece.end == piece.file_end:
        blank = _ending_at(view, base, end, _BLANK_MARK, table.BLANK)
        end = end if blank is None else blank.begin - base
    return _ending_at(view, base, end, _RECORD_MARK, table.RECORD)


def _ending_at(view: memoryview, base: int, end: int, mark: bytes, kind: int) -> Span | None:
    """The record or blank of a file that ends at ``end``, the shortest if there are several."""
    reader, high = RecordReader(), end
    lowest = max(0, end - MAX_SCAN_BYTES)
    while high > lowest:
        low = max(lowest, high - SCAN_BYTES)
        data = view[low : min(end, high + len(mark) - 1)].tobytes()
        found = data.rfind(mark)
        while found >= 0:
            at = low + found - MAGIC_AT
            if at >= 0 and reader.read_at(view, at, base + at, False) == kind and at + reader.size == end:
                return Span(base + at, base + end)
            found = data.rfind(mark, 0, found + len(mark) - 1)
        high = low
    return None
