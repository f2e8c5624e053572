"""Reads the half queue and the op queue, to find the half messages that have not ended."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.half_table import Half, HalfTable, MarkProgress
from orbitmq.message import property_names, reserved
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record, iter_records
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import GetStatus, MessageStore

HALF = reserved.TRANS_HALF_TOPIC
OP = reserved.TRANS_OP_TOPIC
GROUP = reserved.TRANS_GROUP
# How many half messages or marks are read in one turn; a mark may end hundreds of messages.
MARKS_PER_TURN = 64
MARK_BYTES_PER_TURN = 1 << 16
ORIGINS_PER_TURN = 128
HALVES_PER_TURN = 128
# An entry without a record is skipped, or is being repaired: more messages follow it.
_GOES_ON = frozenset({GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING})


class HalfQueue:
    """The queues of half messages and of their marks, and the progress of group CID_RMQ_SYS_TRANS in both."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._offsets = offsets
        # Progress that waits for the device: up to where the log must be flushed, and the offsets of both
        # queues.
        self._settling: tuple[int, int, int] | None = None

    @property
    def end(self) -> int:
        """The offset behind the newest half message."""
        return self._store.max_offset(HALF, 0)

    async def load(self) -> tuple[HalfTable, MarkProgress]:
        """Load the committed progress, and the marks behind it."""
        self._settling = None
        half = self._progress(HALF)
        op = self._first_mark(half, self._progress(OP))
        table, marks = HalfTable(half), MarkProgress(op)
        while True:
            found = self._store.get(OP, 0, op, MARKS_PER_TURN, max_bytes=MARK_BYTES_PER_TURN)
            if found.status not in _GOES_ON:
                return table, marks
            for record in iter_records(found.body):
                offsets = forms.marked_offsets(record.body)
                for offset in offsets:
                    if offset >= half:
                        table.finish(offset)
                marks.note(record.queue_offset, max(offsets, default=-1))
            op = found.next_offset
            await asyncio.sleep(0)

    def _progress(self, topic: str) -> int:
        low, high = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        known = self._offsets.query(GROUP, topic, 0)
        # A log that lost its end in a crash assigns the same offsets again.
        return min(max(low, known if known is not None else low), high)

    def _first_mark(self, half: int, known: int) -> int:
        """The op offset of the first mark for half messages from ``half`` on; ``known`` at most.

        Both offsets are committed one after the other, so a slave that acted may have sent an older value of
        one of them. A mark lies behind the half message that it ends.
        """
        entry = self._store.entry(HALF, 0, half)
        return known if entry is None else self._mark_behind(entry[0], known)

    def _mark_behind(self, place: int, end: int) -> int:
        """The first offset of a mark that lies behind a place of the log, ``end`` at most."""

        def place_of(op: int) -> int:
            mark = self._store.entry(OP, 0, op)
            return 0 if mark is None else mark[0]

        marks = range(self._store.min_offset(OP, 0), end)
        return marks.start + bisect_right(marks, place, key=place_of)

    def half(self, offset: int) -> Record | None:
        """The half message at an offset; ``None``: its file is gone."""
        found = self._store.get(HALF, 0, offset, 1)
        while found.status is GetStatus.MESSAGE_WAS_REMOVING and found.next_offset == offset:
            found = self._store.get(HALF, 0, offset, 1)  # its entry is being repaired
        return decode_record(found.body) if found.status is GetStatus.FOUND else None

    def origin(self, offset: int) -> int:
        """The offset of the original of the half message at an offset; usually the same offset."""
        record = self.half(offset)
        return offset if record is None else forms.origin(offset, decode_properties(record.properties))

    async def origins(self, offsets: Iterable[int]) -> set[int]:
        """The offsets of the originals of half messages, see :meth:`origin`."""
        return {self.origin(offset) async for offset in in_slices(offsets, ORIGINS_PER_TURN)}

    def cut(self) -> None:
        """Set back a progress behind the end of a log that was cut: it would skip messages stored there."""
        for topic in (HALF, OP):
            end = self._store.max_offset(topic, 0)
            if (self._offsets.query(GROUP, topic, 0) or 0) > end:
                self._offsets.commit(GROUP, topic, 0, end)

    def reopen(self, log_end: int) -> None:
        """Reopen half messages that only marks behind ``log_end`` have ended: the log will be cut there.

        A broker whose log has a transaction's mark has its messages too. A broker that took over the progress
        but not the mark would never check the transaction.
        """
        known = self._offsets.query(GROUP, HALF, 0) or 0
        lowest, op = known, self._mark_behind(log_end - 1, self._store.max_offset(OP, 0))
        while (found := self._store.get(OP, 0, op, 1024, max_bytes=1 << 20)).status in _GOES_ON:
            for record in iter_records(found.body):
                lowest = min([lowest, *forms.marked_offsets(record.body)])
            op = found.next_offset
        if lowest < known:
            self._offsets.commit(GROUP, HALF, 0, lowest)

    def note(self, table: HalfTable, marks: MarkProgress, *, all_marked: bool = True) -> bool:
        """Commit the progress of both queues when all records that it relies on are on the device.

        Args:
            all_marked: whether every finished half message has its mark in the log.

        Returns:
            Whether a progress was committed: that of this call, or of an earlier one.
        """
        if self._settling is None and all_marked:
            half = table.progress
            self._settling = (self._store.end, half, marks.progress(half))
        if self._settling is None or self._store.flushed_offset < self._settling[0]:
            return False
        _, half, op = self._settling
        self._settling = None
        self._commit(HALF, half)
        self._commit(OP, op)
        return True

    def _commit(self, topic: str, offset: int) -> None:
        """Commit a progress that has changed: without transactions there are no offsets of the group."""
        if offset != (self._offsets.query(GROUP, topic, 0) or 0):
            self._offsets.commit(GROUP, topic, 0, offset)


class HalfReader:
    """Reads the half queue from front to back into a table, each message with the time when it is due.

    Args:
        hold_ms: a message is due at the latest this long after it was stored; ``None``: no such limit.
        superseded: called with the offset of each half message whose copy is in the log, but not its mark.

    Attributes:
        table: the half messages whose transactions have not ended.
        marks: from where on the op queue is needed.
        elsewhere: the origins of half messages that another broker has. Their copies, which this broker may
            have put since, are due at once.
    """

    def __init__(
        self,
        queue: HalfQueue,
        config: BrokerConfig,
        hold_ms: int | None,
        superseded: Callable[[int], None],
    ) -> None:
        self._queue = queue
        self._config = config
        self._hold_ms = hold_ms
        self._superseded = superseded
        self.table, self.marks = HalfTable(0), MarkProgress(0)
        self.elsewhere: set[int] = set()

    async def read_new(self) -> None:
        """Read new half messages. Messages that are not stored any more count as ended."""
        steps = 0
        while self.table.next_offset < self._queue.end:
            if not self.table.skip():
                offset = self.table.next_offset
                record = self._queue.half(offset)
                if record is not None:
                    original = self.table.admit(self._half(offset, record))
                    if original is not None:
                        self._superseded(original)
            self.table.next_offset += 1
            steps += 1
            if steps % HALVES_PER_TURN == 0:
                await asyncio.sleep(0)

    def _half(self, offset: int, record: Record) -> Half:
        properties = decode_properties(record.properties)
        origin = forms.origin(offset, properties)
        due_ms = 0 if origin in self.elsewhere else self._due_ms(record, properties)
        unique_id = properties.get(property_names.UNIQ_KEY, "")
        topic = properties.get(property_names.REAL_TOPIC, "")
        return Half(offset, record.physical_offset, origin, unique_id, due_ms, topic)

    def _due_ms(self, record: Record, properties: Mapping[str, str]) -> int:
        if forms.checks_so_far(properties):
            return record.store_timestamp + self._config.transaction_check_interval_ms
        if not forms.has_immunity(properties):
            return record.store_timestamp + self._config.transaction_timeout_ms
        until = self.immune_until(record, properties)
        return until if self._hold_ms is None else min(until, record.store_timestamp + self._hold_ms)

    def immune_until(self, record: Record, properties: Mapping[str, str]) -> int:
        """Until when a half message is not checked, if its producer chose that time."""
        # The earlier of both times, since a producer's clock may be ahead of this broker's.
        begin = min(record.born_timestamp, record.store_timestamp)
        return begin + forms.immunity_ms(properties, self._config.transaction_timeout_ms)
