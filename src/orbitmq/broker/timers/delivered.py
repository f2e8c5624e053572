"""Which timer messages were delivered without a progress that tells of it, read from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from orbitmq.broker.delay.delivered import ROLLED, TIMER, Delivery, Identity, deliveries
from orbitmq.message import reserved
from orbitmq.runtime.seam import Threads
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

TOPIC = reserved.TIMER_TOPIC
# More are not kept: they come again.
MAX_FOUND = 200_000
# How many found deliveries are looked at in one turn of the event loop.
DELIVERIES_PER_TURN = 1000


class Done:
    """What is found to be done, each once for one message that waits."""

    def __init__(self) -> None:
        self._delivered: Counter[Identity] = Counter()
        # With when each began to wait: the record that waits on is the same but for that.
        self._rolled: set[tuple[Identity, int]] = set()

    def __len__(self) -> int:
        # Asked before each delivery: never by counting.
        return len(self._delivered) + len(self._rolled)

    def add(self, found: Iterable[Delivery]) -> None:
        """Remember more."""
        for each in found:
            if each.level == TIMER:
                self._delivered[each.identity] += 1
            elif each.level == ROLLED:
                self._rolled.add((each.identity, each.enqueued_ms))

    def was_delivered(self, identity: Identity) -> bool:
        """Whether one that waits was delivered."""
        if not self._delivered[identity]:
            return False
        self._delivered[identity] -= 1
        return True

    def was_rolled(self, identity: Identity, stored_ms: int) -> bool:
        """Whether one that has waited since ``stored_ms`` was put into the timer topic once more."""
        return (identity, stored_ms) in self._rolled


class DeliveredTimers:
    """Looks for deliveries of timer messages. Used before deliveries begin, never while they go on."""

    def __init__(self, threads: Threads, store: MessageStore) -> None:
        self._threads = threads
        self._store = store

    async def since(self, due_ms: int, taken: int) -> Done:
        """What was done at this time or later, and with messages from an offset of the timer topic on.

        Those may be due long before: the progress of a master may be of a time when it led with an empty log,
        which has come back since.

        The log is flushed first: a message would be lost if its progress outlived the log record that proves
        its delivery. Records that the disk refuses for now are in no file that could be read.
        """
        store, done = self._store, Done()
        await store.written()
        await store.flush()
        at, end = self._place_before(due_ms), store.max_commit_log_offset
        if (unread := store.entry(TOPIC, 0, taken)) is not None:
            at = min(at, unread[0])
        while at >= 0 and len(done) < MAX_FOUND and (piece := store.raw.piece(at, end)) is not None:
            several, at = await self._threads.run(deliveries, piece)
            async for each in in_slices(several, DELIVERIES_PER_TURN):
                done.add([each])
        return done

    def _place_before(self, time_ms: int) -> int:
        """A place of the log before all records that were stored at a time or later, -1: no timer was put."""
        store = self._store
        first = store.entry(TOPIC, 0, store.min_offset(TOPIC, 0))
        if first is None:
            return -1
        before = store.entry(TOPIC, 0, store.offset_by_time(TOPIC, 0, time_ms) - 1)
        return max(first[0], store.raw.file_before(time_ms), 0 if before is None else before[0])
