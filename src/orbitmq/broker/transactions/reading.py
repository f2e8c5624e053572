"""Reading the half queue and the op queue: which half messages nobody has ended, as the log has it."""

from __future__ import annotations

from bisect import bisect_right

from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.half_table import HalfTable, MarkProgress
from orbitmq.message import reserved
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record, iter_records
from orbitmq.store import GetStatus, MessageStore

HALF = reserved.TRANS_HALF_TOPIC
OP = reserved.TRANS_OP_TOPIC
GROUP = reserved.TRANS_GROUP


class HalfQueue:
    """The queues of half messages and of their marks, and how far group CID_RMQ_SYS_TRANS has got in them."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._offsets = offsets

    @property
    def end(self) -> int:
        """The offset behind the newest half message."""
        return self._store.max_offset(HALF, 0)

    def load(self) -> tuple[HalfTable, MarkProgress]:
        """Take up the known progress, and the marks behind it."""
        half = self._progress(HALF)
        op = self._first_mark(half, self._progress(OP))
        table, marks = HalfTable(half), MarkProgress(op)
        while True:
            found = self._store.get(OP, 0, op, 1024, max_bytes=1 << 20)
            if found.status is not GetStatus.FOUND:
                return table, marks
            for record in iter_records(found.body):
                offsets = forms.marked_offsets(record.body)
                for offset in offsets:
                    if offset >= half:
                        table.finish(offset)
                marks.note(record.queue_offset, max(offsets, default=-1))
            op = found.next_offset

    def _progress(self, topic: str) -> int:
        low, high = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        known = self._offsets.query(GROUP, topic, 0)
        # A log that lost its end in a crash gives the same offsets once more.
        return min(max(low, known if known is not None else low), high)

    def _first_mark(self, half: int, known: int) -> int:
        """Where marks of half messages from ``half`` on can be, not behind the progress that is known.

        Both offsets are committed one after the other, and a slave that acted may have told an older one of
        one of them. A mark lies behind the half message that it ends.
        """
        entry = self._store.entry(HALF, 0, half)
        if entry is None:
            return known

        def place(op: int) -> int:
            mark = self._store.entry(OP, 0, op)
            return 0 if mark is None else mark[0]

        marks = range(self._store.min_offset(OP, 0), known)
        return marks.start + bisect_right(marks, entry[0], key=place)

    def half(self, offset: int) -> Record | None:
        """The half message at an offset, ``None``: its file is gone."""
        found = self._store.get(HALF, 0, offset, 1)
        return decode_record(found.body) if found.status is GetStatus.FOUND else None

    def origin(self, offset: int) -> int:
        """The offset of the half message for which the one at an offset stands, mostly its own."""
        record = self.half(offset)
        return offset if record is None else forms.origin(offset, decode_properties(record.properties))

    def cut(self) -> None:
        """The log is shorter now: a progress behind the end would pass over what comes there."""
        for topic in (HALF, OP):
            end = self._store.max_offset(topic, 0)
            if (self._offsets.query(GROUP, topic, 0) or 0) > end:
                self._offsets.commit(GROUP, topic, 0, end)

    def commit(self, topic: str, offset: int) -> None:
        """Commit a progress that moved; a broker without transactions shows no group that makes them."""
        if offset != (self._offsets.query(GROUP, topic, 0) or 0):
            self._offsets.commit(GROUP, topic, 0, offset)
