"""Reads from the store: by queue offset, by time, by place in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orbitmq.store.filter import MessageFilter
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.records import RecordReader
from orbitmq.store.model import GetResult, GetStatus
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.lookup import Lookup
from orbitmq.store.queues.mending import Mended, Mending
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reput import TagsCodeOf

logger = logging.getLogger(__name__)

# The limit of damaged records that are logged, each once.
MAX_LOGGED = 100


class Reader:
    """The reading half of a store. Runs on the event loop; reads only bytes written to the files."""

    def __init__(
        self,
        queues: Queues,
        log: LogFiles,
        appender: Appender,
        lookup: Lookup,
        codes: Mapping[str, TagsCodeOf],
        output_bytes: int,
    ) -> None:
        self._queues = queues
        self._log = log
        self._appender = appender
        self._lookup = lookup
        self._output = bytearray(output_bytes)
        self._record = RecordReader()
        self._mending = Mending(queues, log, appender, self._entry, codes)
        # The damage that was logged: slot and queue offset, or -1 and log offset.
        self._logged: set[tuple[int, int]] = set()

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter,
    ) -> GetResult:
        """See ``MessageStore.get``."""
        slot = self._queues.slot(topic, queue_id)
        if slot < 0:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0, 0, 0)
        low = self._appender.get(slot, table.Q_MIN)
        high = self._appender.get(slot, table.Q_VISIBLE)
        outside = _outside(offset, low, high)
        if outside is not None:
            return GetResult(outside[0], b"", 0, outside[1], low, high)
        lookup = self._lookup
        status = self._read(slot, offset, high, max_count, max_bytes, filter)
        if status not in (table.READ_FOUND, table.READ_NO_MATCH):
            broken = max(lookup.read_next, offset)
            mended = self._mend(slot, broken)
            if mended is Mended.GOES_ON:
                return GetResult(GetStatus.MESSAGE_WAS_REMOVING, b"", 0, broken, low, high)
            if mended is Mended.MENDED:
                status = self._read(slot, broken, high, max_count, max_bytes, filter)
        if status == table.READ_FOUND:
            body = bytes(memoryview(self._output)[: lookup.read_bytes])
            return GetResult(GetStatus.FOUND, body, lookup.read_count, lookup.read_next, low, high)
        if status == table.READ_NO_MATCH:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, b"", 0, lookup.read_next, low, high)
        # The file is gone (cleaning) or the entry names no record: continue after it.
        broken = max(lookup.read_next, offset)
        self._log_broken(slot, broken)
        following = broken + 1
        return GetResult(GetStatus.MESSAGE_WAS_REMOVING, b"", 0, following, low, high)

    def _mend(self, slot: int, offset: int) -> Mended:
        """Search for the message of an entry that leads to no record."""
        if 0 <= self._appender.get(slot, table.Q_MIN_PLACE) < self._log.first:
            return Mended.NOT_IN_LOG  # cleaning is about to shorten the queue
        try:
            return self._mending.go_on(slot, offset)
        except OSError as error:
            self._log_damaged(
                (slot, offset), f"{self._queues.entry_place(slot, offset)} cannot be written anew ({error})"
            )
            return Mended.GOES_ON

    def _log_broken(self, slot: int, offset: int) -> None:
        """Log that the record of a queue offset cannot be read, unless cleaning has removed it."""
        entry = self._entry(slot, offset)
        place = -1 if entry is None else entry[0]
        if 0 <= place < self._log.first:
            return
        segment = self._log.segment(place) if place >= 0 else None
        self._log_damaged(
            (slot, offset),
            f"{self._queues.entry_place(slot, offset)} says that the record is at {place} of the log, "
            + (f"where {segment.path} has another one" if segment is not None else "where no file is")
            + ", and the log has none for this entry: it is left out",
        )

    def _log_damaged(self, what: tuple[int, int], text: str) -> None:
        """Log damage once for each record, since every read finds it, and up to a limit: a whole file may be
        damaged."""
        if what in self._logged or len(self._logged) > MAX_LOGGED:
            return
        self._logged.add(what)
        if len(self._logged) > MAX_LOGGED:
            logger.error(
                "more than %d records are damaged: no more are logged until the next start", MAX_LOGGED
            )
            return
        logger.error("%s (docs/operations.md, Damaged files)", text)

    def _read(
        self, slot: int, offset: int, last: int, max_count: int, max_bytes: int, filter: MessageFilter
    ) -> int:
        """Read; map files and grow the output as the lookup needs it."""
        status = table.READ_BROKEN
        for _ in range(4):
            status = self._lookup.read_messages(
                slot, offset, last, max_count, max_bytes, filter.codes, filter.count, self._output
            )
            if status == table.READ_NEED_ENTRIES:
                # The earlier file was searched and is no longer mapped: start after it.
                offset = self._lookup.read_next
                if not self._queues.map_entries(slot, self._lookup.need):
                    return table.READ_BROKEN
            elif status == table.READ_NO_SPACE:
                self._output = bytearray(self._lookup.entry_size)
            else:
                return status
        # After this many files without a match, the next read continues at the next file.
        return table.READ_NO_MATCH if status == table.READ_NEED_ENTRIES else status

    def entry(self, slot: int, offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of a visible offset."""
        if not self._appender.get(slot, table.Q_MIN) <= offset < self._appender.get(slot, table.Q_VISIBLE):
            return None
        entry = self._entry(slot, offset)
        if (entry is None or entry[1] < table.RECORD_FIXED_BYTES) and (
            self._mend(slot, offset) is Mended.MENDED
        ):
            return self._entry(slot, offset)
        return entry

    def _entry(self, slot: int, offset: int) -> tuple[int, int, int] | None:
        lookup = self._lookup
        if lookup.find_entry(slot, offset) != table.READ_FOUND and (
            not self._queues.map_entries(slot, offset) or lookup.find_entry(slot, offset) != table.READ_FOUND
        ):
            return None
        return lookup.entry_physical, lookup.entry_size, lookup.entry_tags

    def store_time(self, slot: int, offset: int) -> int:
        """Store timestamp in ms of the message at ``offset``, -1 when there is no such message."""
        entry = self.entry(slot, offset)
        return -1 if entry is None else self.store_time_at(entry[0])

    def store_time_at(self, physical_offset: int) -> int:
        """Store timestamp in ms of the record at a place in the log, -1 when there is no record."""
        return -1 if self._find(physical_offset) is None else self._record.store_time

    def offset_by_time(self, slot: int, timestamp_ms: int, *, upper: bool) -> int:
        """The first offset stored at or after ``timestamp_ms``; with ``upper`` the last one at or before it.

        Past the newest message the lower bound is the max offset; before the oldest both are the min offset.
        """
        low = first = self._appender.get(slot, table.Q_MIN)
        high = last = self._appender.get(slot, table.Q_VISIBLE)
        while low < high:
            middle = (low + high) // 2
            stored = self.store_time(slot, middle)
            if stored < timestamp_ms or (upper and stored == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        if upper:
            return last if low == last and last > first else max(low - 1, first)
        return low

    def record_at(self, physical_offset: int, *, damaged: bool = False) -> bytes | None:
        """The record that begins exactly at this place; ``None``: none begins there.

        Args:
            damaged: also return a record whose body does not match its checksum. Such a record may be shown,
                but must not be stored again with a checksum that matches.
        """
        found = self._find(physical_offset)
        if found is None:
            return None
        view, at = found
        size = self._record.size
        if not damaged and self._record.read_at(view, at, physical_offset, True) == table.BAD_CRC:
            segment = self._log.segment(physical_offset)
            path = segment.path if segment is not None else self._log.folder
            self._log_damaged(
                (-1, physical_offset),
                f"{path}: the body of the record at {physical_offset} does not match its checksum: "
                "it is left out",
            )
            return None
        return bytes(view[at : at + size])

    def _find(self, physical_offset: int) -> tuple[memoryview, int] | None:
        """The log file with the record that begins exactly there, and its place; ``_record`` read it."""
        if not self._log.first <= physical_offset < self._appender.batch_base:
            return None
        segment = self._log.segment(physical_offset)
        if segment is None:
            return None
        view = segment.view()
        at = physical_offset - self._log.start_of(physical_offset)
        found = self._record.read_at(view, at, physical_offset, False)
        return (view, at) if found == table.RECORD else None


def _outside(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """The status and the corrected offset when no message is stored at ``offset``."""
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None
