"""Finds the true end of the log after a stop, and makes the consume queues agree with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orbitmq.errors import OrbitError
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import LogFiles, wipe
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reput import Reput, TagsCodeOf

logger = logging.getLogger(__name__)

# A start can be cancelled between two pieces of this size.
SLICE_BYTES = 16 << 20


class StartCancelledError(OrbitError):
    """The start was cancelled; the folder is as after a crash."""


class _GapError(Exception):
    """Entries before the starting point are missing: only a run over the whole log finds them."""


@dataclass(slots=True)
class Recovered:
    """The outcome of recovery, for the log line that an operator reads."""

    end_offset: int
    records: int
    cut_bytes: int
    last_timestamp: int
    rebuilt: bool


class Recovery:
    """One run over the log from a known record boundary to its end. The queues are right up to there.

    Args:
        check_crc: verify bodies too (after a crash).
        cancelled: called between pieces of the log; ``True``: raise :class:`StartCancelledError`.
        reading: called between pieces of the log with the percentage of it that has been read.
        rebuilding: called before the first queue is begun anew from the whole log.
    """

    def __init__(
        self,
        log: LogFiles,
        queues: Queues,
        appender: Appender,
        codes: Mapping[str, TagsCodeOf],
        *,
        check_crc: bool,
        cancelled: Callable[[], bool],
        reading: Callable[[int], object],
        rebuilding: Callable[[], None],
    ) -> None:
        self._log = log
        self._queues = queues
        self._appender = appender
        self._reput = Reput(queues, appender, codes, self._settle, self._found)
        self._check_crc = check_crc
        self._cancelled = cancelled
        self._reading = reading
        self._rebuilding = rebuilding
        self._rebuild = False

    def run(self, start: int, *, rebuild: bool = False) -> Recovered:
        """Scan from ``start``, bring queues up to the log, remove bytes behind its last whole record.

        Args:
            rebuild: whether to build all queues anew from the whole log.

        Raises:
            StartCancelledError: the start was cancelled.
            OSError: the disk refused.
        """
        try:
            if rebuild:
                raise _GapError
            end = self._scan(start, start)
        except _GapError:
            self._rebuild = True
            self._rebuilding()
            self._reput.dispatcher.clear()
            end = self._scan(self._log.first, start)
        self._appender.publish()
        cut = self._cut(end) if self._check_crc else 0
        counted = self._reput.dispatcher
        return Recovered(end, counted.records, cut, counted.stored, self._rebuild)

    def _found(self, slot: int, queue_offset: int) -> None:
        if self._rebuild:
            self._queues.restart(slot, queue_offset)

    def _scan(self, start: int, trusted: int) -> int:
        """Dispatch the records from ``start`` on; returns the end of the log.

        Damage below ``trusted`` does not end the log: the rest of that file is left out.
        """
        offset = start
        self._reput.dispatcher.begin()
        end = self._data_end()
        while (segment := self._log.segment(offset)) is not None:
            if self._cancelled():
                raise StartCancelledError
            self._reading(min(100, 100 * (offset - start) // max(1, end - start)))
            base = self._log.start_of(offset)
            size = self._log.file_bytes
            old = offset < trusted
            stop = min(offset - base + SLICE_BYTES, size, trusted - base if old else size)
            check = self._check_crc and not old
            status, at = self._reput.take(
                segment.view(), offset - base, stop, size, base, check_crc=check, find_holes=check
            )
            if status == table.SCAN_DONE:
                offset = base + at
            elif status == table.BLANK:
                offset = base + size
            elif base + at < trusted:
                logger.error(
                    "%s is damaged at %d: what follows in this file is left out of the consume queues",
                    segment.path, base + at,
                )  # fmt: skip
                offset = min(base + size, trusted)
            else:
                if status not in (table.CUT, table.BLANK) and segment.view()[at : at + 8].tobytes().strip(
                    b"\0"
                ):
                    logger.warning(
                        "%s has no whole record at %d: the log ends there", segment.path, base + at
                    )
                return base + at
        return offset

    def _data_end(self) -> int:
        """The end of the bytes ever written to the log's files, as far as the file system shows."""
        segment = self._log.segment(self._log.end - 1)
        if segment is None:
            return self._log.end
        return self._log.start_of(self._log.end - 1) + segment.data_end(0)

    def _settle(self, slot: int, offset: int, physical: int, size: int) -> bool:
        """Decide on a record whose queue offset is not the next one of its queue."""
        low, following = self._appender.get(slot, table.Q_MIN), self._appender.get(slot, table.Q_NEXT)
        if offset > following:
            if not self._rebuild:
                raise _GapError
            self._queues.restart(slot, offset)
            return True
        entry = self._queues.entry
        # The queue has this record's entry already. But if the queue began anew after the positions were
        # saved, the entry at their end is from before, with a lower place in the log.
        if (
            low <= offset
            and entry(slot, offset)[:2] == (physical, size)
            and entry(slot, following - 1)[0] >= physical
        ):
            return False
        if offset == 0:
            # The topic was deleted and made again.
            self._queues.restart(slot, 0)
            return True
        if offset < low or self._rebuild:
            return False
        self._queues.truncate(slot, offset)
        return True

    def _cut(self, end: int) -> int:
        """Remove everything behind ``end``, durably, so that it can never be read as messages again."""
        cut = 0
        while self._log.count and self._log.end - self._log.file_bytes > end:
            cut += self._log.file_bytes
            self._log.remove_last()
        segment = self._log.segment(end)
        if segment is None:
            return cut
        cut += wipe(self._log, end, self._log.start_of(end) + self._log.file_bytes)
        segment.sync()
        return cut
