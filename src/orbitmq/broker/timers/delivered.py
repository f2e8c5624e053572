"""Finds in the log deliveries of timer messages that the saved progress lacks."""

from __future__ import annotations

from orbitmq.broker.delay.delivered import ROLLED, TIMER, deliveries_between
from orbitmq.message import reserved
from orbitmq.runtime.seam import Threads
from orbitmq.store import MessageStore

TOPIC = reserved.TIMER_TOPIC
# The most places kept; messages found beyond that are delivered again.
MAX_FOUND = 200_000


class DeliveredTimers:
    """Looks for deliveries of timer messages. Used before deliveries begin, never during them."""

    def __init__(self, threads: Threads, store: MessageStore, broker_name: str) -> None:
        self._threads = threads
        self._store = store
        self._broker_name = broker_name

    async def since(self, due_ms: int, taken: int) -> set[int]:
        """The places of messages whose deliveries or copies were stored at ``due_ms`` or later.

        The search begins at message ``taken`` of the timer topic, if that lies before the records of that
        time. The message may be much older: a master's progress may come from a time when it led with an
        empty log, which was restored later.

        The log is flushed first: a message would be lost if its progress outlived the log record that proves
        its delivery. The search does not see records that the disk has refused so far.
        """
        store, done = self._store, set[int]()
        await store.written()
        await store.flush()
        at, end = self._place_before(due_ms), store.max_commit_log_offset
        if (unread := store.entry(TOPIC, 0, taken)) is not None:
            at = min(at, unread[0])
        if at < 0:
            return done
        async for found in deliveries_between(self._threads, store, self._broker_name, at, end):
            done.update(
                each.place for each in found if each.level in (TIMER, ROLLED) and each.place is not None
            )
            if len(done) >= MAX_FOUND:
                break
        return done

    def _place_before(self, time_ms: int) -> int:
        """A place of the log before all records stored at a time or later; -1: no timer was ever stored."""
        store = self._store
        first = store.entry(TOPIC, 0, store.min_offset(TOPIC, 0))
        if first is None:
            return -1
        before = store.entry(TOPIC, 0, store.offset_by_time(TOPIC, 0, time_ms) - 1)
        return max(first[0], store.raw.file_before(time_ms), 0 if before is None else before[0])
