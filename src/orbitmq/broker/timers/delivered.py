"""Which timer messages were delivered without a progress that tells of it, read from the log."""

from __future__ import annotations

from collections import Counter

from orbitmq.broker.delay.delivered import TIMER, Identity, deliveries
from orbitmq.message import reserved
from orbitmq.runtime.seam import Threads
from orbitmq.store import MessageStore

TOPIC = reserved.TIMER_TOPIC
# More are not kept: they come again.
MAX_FOUND = 200_000


class DeliveredTimers:
    """Looks for deliveries of timer messages. Used before deliveries begin, never while they go on."""

    def __init__(self, threads: Threads, store: MessageStore) -> None:
        self._threads = threads
        self._store = store

    async def since(self, due_ms: int) -> Counter[Identity]:
        """The messages that were delivered at this time or later, and how often."""
        store = self._store
        found: Counter[Identity] = Counter()
        at, end = self._place_before(due_ms), store.max_commit_log_offset
        while at >= 0 and len(found) < MAX_FOUND and (piece := store.raw.piece(at, end)) is not None:
            several, at = await self._threads.run(deliveries, piece)
            found.update(each.identity for each in several if each.level == TIMER)
        return found

    def _place_before(self, time_ms: int) -> int:
        """A place of the log before all records that were stored at a time or later, -1: no timer was put."""
        store = self._store
        first = store.entry(TOPIC, 0, store.min_offset(TOPIC, 0))
        if first is None:
            return -1
        before = store.entry(TOPIC, 0, store.offset_by_time(TOPIC, 0, time_ms) - 1)
        return max(first[0], store.raw.file_before(time_ms), 0 if before is None else before[0])
