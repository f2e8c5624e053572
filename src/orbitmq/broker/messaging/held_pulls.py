"""Pulls that wait for messages (PullRequestHoldService)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orbitmq.broker.component import Component
from orbitmq.broker.events import Events, OffsetsReset
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

# Waiters are kept in slots of this length by the time they run out, so that answering one costs no search.
SLOT_MS = 100
MAX_WAIT_MS = 120_000


class Waiter(Protocol):
    """A pull that waits. ``offset`` is the first queue offset it has not seen."""

    offset: int

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        ...

    def wake(self) -> bool:
        """Look again; ``True`` when the pull is answered, ``False`` when it waits on; ``offset`` may grow."""
        ...

    def expire(self) -> None:
        """Answer that nothing came."""
        ...


@dataclass(slots=True, eq=False)
class _Parked:
    waiter: Waiter
    key: tuple[str, int]
    slot: int


class LongPolling(Component):
    """Waiting pulls by topic and queue.

    :meth:`on_arrival` is called after a write batch for queues with waiters; those whose time is over
    are answered several times a second.

    Args:
        watch: asks the store to report arrivals in a queue.
        limit: most pulls that may wait at a time.
    """

    name = "held pulls"

    def __init__(
        self, clock: Clock, events: Events, watch: Callable[[str, int], None], *, limit: int = 100_000
    ) -> None:
        self._clock = clock
        self._watch = watch
        self.limit = limit
        self._queues: dict[tuple[str, int], dict[_Parked, None]] = {}
        # Queue ids in which pulls wait, by topic: a changed topic wakes its own pulls only.
        self._by_topic: dict[str, dict[int, None]] = {}
        self._slots: dict[int, dict[_Parked, None]] = {}
        self._waiting = 0
        # Set while pulls wait: without them nothing has to be looked at ten times a second.
        self._any = asyncio.Event()
        events.on_messages_arrived(self.on_arrival)
        events.subscribe(OffsetsReset, lambda event: self.wake_topic(event.topic))

    async def start(self) -> None:
        self._spawn(self._run(), "time limits")

    async def _run(self) -> None:
        while True:
            await self._any.wait()
            await self._clock.sleep(SLOT_MS / 1000)
            try:
                self.tick()
            except Exception:
                log.exception("a pull whose time was over got no answer")
            if not self._waiting:
                self._any.clear()

    async def stop(self) -> None:
        """Answer every pull now."""
        await self.end_work()
        self.expire_all()

    def __len__(self) -> int:
        return self._waiting

    def waiting(self, topic: str, queue_id: int) -> int:
        """How many pulls wait for this queue."""
        return len(self._queues.get((topic, queue_id), ()))

    def park(self, topic: str, queue_id: int, waiter: Waiter, timeout_ms: int) -> bool:
        """Let ``waiter`` wait ``timeout_ms`` (at most two minutes); ``False`` when too many wait already."""
        if self._waiting >= self.limit:
            return False
        deadline = self._clock.now_ms() + min(max(0, timeout_ms), MAX_WAIT_MS)
        parked = _Parked(waiter, (topic, queue_id), deadline // SLOT_MS + 1)
        self._queues.setdefault(parked.key, {})[parked] = None
        self._by_topic.setdefault(topic, {})[queue_id] = None
        self._slots.setdefault(parked.slot, {})[parked] = None
        self._waiting += 1
        self._any.set()
        self._watch(topic, queue_id)
        return True

    def on_arrival(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Messages below ``max_offset`` can be read now."""
        key = (topic, queue_id)
        for parked in list(self._queues.get(key, ())):
            waiter = parked.waiter
            if waiter.gone or (waiter.offset < max_offset and waiter.wake()):
                self._leave(parked)
        if key in self._queues:
            self._watch(topic, queue_id)

    def wake_topic(self, topic: str) -> None:
        """Let every pull of the topic look again: the topic changed or is gone."""
        for queue_id in list(self._by_topic.get(topic, ())):
            self.on_arrival(topic, queue_id, 1 << 62)

    def tick(self) -> None:
        """Answer the pulls whose time is over."""
        now = self._clock.now_ms() // SLOT_MS
        for slot in [slot for slot in self._slots if slot <= now]:
            self._expire(list(self._slots[slot]))

    def expire_all(self) -> None:
        """Answer every pull now: the broker stops."""
        for slot in list(self._slots):
            self._expire(list(self._slots[slot]))

    def _expire(self, parked: list[_Parked]) -> None:
        for entry in parked:
            self._leave(entry)
            if not entry.waiter.gone:
                entry.waiter.expire()

    def _leave(self, parked: _Parked) -> None:
        self._waiting -= 1
        queue = self._queues[parked.key]
        del queue[parked]
        if not queue:
            del self._queues[parked.key]
            topic, queue_id = parked.key
            queues = self._by_topic[topic]
            del queues[queue_id]
            if not queues:
                del self._by_topic[topic]
        slot = self._slots[parked.slot]
        del slot[parked]
        if not slot:
            del self._slots[parked.slot]
