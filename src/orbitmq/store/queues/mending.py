"""Repairs, from the log, consume queue entries that do not lead to a message of their queue.

A start looks at the first and the last entry of each file. An entry between them may still be empty or wrong,
if a disk or a copy lost a part of the file. Its message is in the log, between those of its neighbours in the
queue, so that part of the log is searched when the entry is read. The part may be long: each call searches a
piece of it, and the reader tries again.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.message import property_names
from orbitmq.message.properties import decode_properties
from orbitmq.message.tags import tags_code
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reput import TagsCodeOf
from orbitmq.wording import counted

logger = logging.getLogger(__name__)

# The most records and bytes that one call searches, which takes some milliseconds.
PIECE_RECORDS = 2048
PIECE_BYTES = 8 << 20
# How many searches under way, and searched parts of queues, are kept: the oldest are forgotten, and searched
# again if they are read.
MOST_SEARCHES = 64
MOST_SEARCHED = 1024

_ENTRY = struct.Struct(">qiq")


class Mended(Enum):
    """The result of a search for the message of an entry."""

    MENDED = "the entry is right now"
    GOES_ON = "not all of the log's part was searched yet"
    NOT_IN_LOG = "the log has no such message, or it is damaged there"


@dataclass(slots=True)
class _Search:
    """The entries between two correct ones of a queue, and the part of the log that has their messages.

    Attributes:
        low, high: queue offsets of the correct entries, or where the queue begins and ends.
        at, end: the part of the log still to be searched.
        written: entries repaired.
    """

    slot: int
    low: int
    high: int
    at: int
    end: int
    written: int = 0

    def has(self, slot: int, offset: int) -> bool:
        return slot == self.slot and self.low < offset < self.high


class Mending:
    """See the module.

    Args:
        entry_of: (place in the log, size, tags code) of a slot's queue offset.
        codes: topics that keep a number of their own in place of the tags code.
    """

    def __init__(
        self,
        queues: Queues,
        log: LogFiles,
        appender: Appender,
        entry_of: Callable[[int, int], tuple[int, int, int] | None],
        codes: Mapping[str, TagsCodeOf],
    ) -> None:
        self._queues = queues
        self._log = log
        self._appender = appender
        self._entry_of = entry_of
        self._codes = codes
        self._record = RecordReader()
        self._searches: list[_Search] = []
        self._searched: list[_Search] = []
        self._cuts = queues.cuts

    def go_on(self, slot: int, offset: int) -> Mended:
        """Search the next piece of the log for the message of this queue offset.

        Raises:
            OSError: the entry was found, and the disk refused it.
        """
        if self._cuts != self._queues.cuts:
            # The queue may have assigned its offsets anew.
            self._cuts = self._queues.cuts
            self._searches.clear()
            self._searched.clear()
        get = self._appender.get
        if not get(slot, table.Q_MIN) <= offset < get(slot, table.Q_SAVED):
            return Mended.NOT_IN_LOG
        if any(each.has(slot, offset) for each in self._searched):
            return Mended.NOT_IN_LOG
        search = next((each for each in self._searches if each.has(slot, offset)), None)
        if search is None:
            search = self._begun(slot, offset)
            self._searches = [*self._searches[1 - MOST_SEARCHES :], search]
        if not self._search(search):
            return Mended.GOES_ON
        self._searches.remove(search)
        self._searched = [*self._searched[1 - MOST_SEARCHED :], search]
        if search.written:
            logger.warning(
                "%s: %s of the queue from offset %d on, empty or wrong, made anew from the log",
                self._queues.entry_place(slot, search.low + 1),
                counted(search.written, "entry"),
                search.low + 1,
            )
        return Mended.MENDED if self._place(slot, offset) is not None else Mended.NOT_IN_LOG

    def _begun(self, slot: int, offset: int) -> _Search:
        """Begin a search: find the next correct entries on both sides of a wrong one, doubling the
        distance."""
        low, high = self._appender.get(slot, table.Q_MIN), self._appender.get(slot, table.Q_SAVED)
        search = _Search(slot, low - 1, high, self._log.first, self._appender.batch_base)
        step = 1
        while (before := offset - step) >= low:
            if (place := self._place(slot, before)) is not None:
                search.low, search.at = before, place
                break
            step *= 2
        step = 1
        while (behind := offset + step) < high:
            if (place := self._place(slot, behind)) is not None:
                search.high, search.end = behind, place
                break
            step *= 2
        return search

    def _place(self, slot: int, offset: int) -> int | None:
        """The log offset of an entry's message; ``None``: the entry does not lead to it."""
        entry = self._entry_of(slot, offset)
        if entry is None or not self._log.first <= entry[0] < self._appender.batch_base:
            return None
        place, size, _ = entry
        segment = self._log.segment(place)
        if segment is None or not self._is_record(segment.view(), place):
            return None
        record = self._record
        is_its = record.size == size and record.queue_offset == offset
        return place if is_its and self._is_of(slot, segment.view()) else None

    def _is_record(self, view: memoryview, place: int) -> bool:
        at = place - self._log.start_of(place)
        return self._record.read_at(view, at, place, False) == table.RECORD

    def _is_of(self, slot: int, view: memoryview) -> bool:
        """Whether the last record read is a message of the slot's queue."""
        record = self._record
        known, queue_id = self._queues.of_slot(slot)
        return (
            record.queue_id == queue_id
            and record.sys_flag & table.TRANSACTION_MASK not in (table.PREPARED, table.ROLLED_BACK)
            and view[record.topic_at : record.topic_end] == known.name
        )

    def _search(self, search: _Search) -> bool:
        """Search the next piece; returns whether it was the last."""
        start = search.at = max(search.at, self._log.first)
        for _ in range(PIECE_RECORDS):
            if search.at >= search.end:
                return True
            if search.at - start >= PIECE_BYTES:
                return False
            segment = self._log.segment(search.at)
            if segment is None or not self._is_record(segment.view(), search.at):
                # The rest of the file is blank, or its records cannot be separated.
                search.at = self._log.start_of(search.at) + self._log.file_bytes
                continue
            size = self._record.size
            if search.low < self._record.queue_offset < search.high:
                self._take(search, segment.view())
            search.at += size
        return search.at >= search.end

    def _take(self, search: _Search, view: memoryview) -> None:
        """Write the entry of the last record read, if that entry is searched for and missing."""
        record = self._record
        if not self._is_of(search.slot, view):
            return
        entry = self._entry_of(search.slot, record.queue_offset)
        if entry is not None and entry[:2] == (record.physical, record.size):
            return
        topic = self._queues.of_slot(search.slot)[0].topic
        properties = bytes(view[record.props_at : record.props_end])
        if topic in self._codes:
            code = self._codes[topic](properties, record.store_time)
        else:
            code = tags_code(decode_properties(properties).get(property_names.TAGS))
        self._queues.mend(search.slot, record.queue_offset, _ENTRY.pack(record.physical, record.size, code))
        search.written += 1
