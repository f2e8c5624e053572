"""Pops that wait for messages (PopLongPollingService)."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol, TypeAlias

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, OffsetsReset, TopicChanged
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

# Time limits are looked at so often while anybody waits.
TICK_MS = 100
MAX_WAIT_MS = 120_000
SLACK = 64

# Topic, group and queue id; below 0: any queue.
Place: TypeAlias = tuple[str, str, int]


class Looked(Enum):
    """What came of a look of a waiting pop."""

    WAITS = auto()
    ANSWERED = auto()
    ANSWERED_AND_MORE = auto()  # messages are left for the next one


class Waiter(Protocol):
    """A request that waits."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def look(self) -> Looked:
        """Try again, and answer if there is something."""
        ...

    def expire(self) -> None:
        """Answer that nothing came."""
        ...


class HeldPops(Component):
    """Waiting pops, first come, first served, by topic, group and queue.

    Args:
        watch: asks the store to report arrivals in a queue.
    """

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        clock: Clock,
        events: Events,
        watch: Callable[[str, int], None],
    ) -> None:
        self.name = name
        self._config = config
        self._clock = clock
        self._watch = watch
        self._places: dict[Place, dict[Waiter, int]] = {}
        # Which places look when messages come into a topic, and which queues of it they watch.
        self._topics: dict[str, dict[Place, frozenset[int]]] = {}
        self._topics_of: dict[Place, set[str]] = {}
        self._watched: set[tuple[str, int]] = set()
        # (time in ms, order, place, waiter): when a waiter expires, or looks again by itself.
        self._times: list[tuple[int, int, Place, Waiter]] = []
        self._entered = 0
        self._waiting = 0
        self._any = asyncio.Event()
        events.on_messages_arrived(self.on_arrival)
        events.subscribe(OffsetsReset, lambda event: self.wake_topic(event.topic))
        events.subscribe(TopicChanged, lambda event: self.wake_topic(event.topic))

    def __len__(self) -> int:
        return self._waiting

    def waiting(self, place: Place) -> int:
        """How many wait there."""
        return len(self._places.get(place, ()))

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._spawn(self._run(), "time limits")

    async def _run(self) -> None:
        while True:
            await self._any.wait()
            await self._clock.sleep(TICK_MS / 1000)
            try:
                self.tick()
            except Exception:
                log.exception("a pop whose time was over got no answer")
            if not self._times:
                self._any.clear()

    async def stop(self) -> None:
        """Answer every pop now."""
        await self.end_work()
        for topic, group, _ in list(self._places):
            self.release(topic, group)

    # -- waiting ---------------------------------------------------------------------------------------

    def park(
        self, place: Place, waiter: Waiter, sources: Iterable[tuple[str, Iterable[int]]], wait_ms: int
    ) -> bool:
        """Let ``waiter`` wait; ``False`` when too many do already.

        Args:
            sources: the topics and queues whose arrivals it waits for.
            wait_ms: at most two minutes.
        """
        if (
            self._waiting >= self._config.pop_polling_total
            or self.waiting(place) >= self._config.pop_polling_size
        ):
            return False
        expires = self._clock.now_ms() + min(wait_ms, MAX_WAIT_MS)
        self._places.setdefault(place, {})[waiter] = expires
        self._waiting += 1
        self._at(expires, place, waiter)
        for topic, queues in sources:
            known = self._topics.setdefault(topic, {})
            known[place] = frozenset(queues)
            self._topics_of.setdefault(place, set()).add(topic)
            self._watch_all(topic, known[place])
        return True

    def look_at(self, place: Place, waiter: Waiter, time_ms: int) -> None:
        """Let a waiter look again at a time: a queue is free then."""
        self._at(time_ms, place, waiter)

    def _at(self, time_ms: int, place: Place, waiter: Waiter) -> None:
        self._entered += 1
        if len(self._times) > 2 * self._waiting + SLACK:
            # Pops that were answered have left their deadlines in the heap: drop them.
            self._times = [entry for entry in self._times if entry[3] in self._places.get(entry[2], ())]
            heapq.heapify(self._times)
        heapq.heappush(self._times, (time_ms, self._entered, place, waiter))
        self._any.set()

    def _watch_all(self, topic: str, queues: Iterable[int]) -> None:
        for queue_id in queues:
            if (topic, queue_id) not in self._watched:
                self._watched.add((topic, queue_id))
                self._watch(topic, queue_id)

    def waiters(self, place: Place) -> list[Waiter]:
        """Who waits there."""
        return list(self._places.get(place, ()))

    def leave(self, place: Place, waiter: Waiter) -> None:
        """A waiter waits no more, and is not answered."""
        self._leave(place, waiter)

    def _leave(self, place: Place, waiter: Waiter) -> None:
        waiters = self._places.get(place)
        if waiters is None or waiters.pop(waiter, None) is None:
            return
        self._waiting -= 1
        if not waiters:
            del self._places[place]
            for topic in self._topics_of.pop(place, ()):
                del self._topics[topic][place]
                if not self._topics[topic]:
                    del self._topics[topic]

    # -- waking ----------------------------------------------------------------------------------------

    def on_arrival(self, topic: str, queue_id: int, _max_offset: int) -> None:
        """Messages of a queue can be read now."""
        self._watched.discard((topic, queue_id))
        places = self._topics.get(topic)
        if places is None:
            return
        for place, queues in list(places.items()):
            if queue_id in queues:
                self.wake(place)
        places = self._topics.get(topic)
        if places is not None and any(queue_id in queues for queues in places.values()):
            self._watch_all(topic, (queue_id,))

    def wake(self, place: Place) -> None:
        """Let those who wait here look, until one finds nothing or nothing is left."""
        for waiter in list(self._places.get(place, ())):
            if waiter.gone:
                self._leave(place, waiter)
                continue
            looked = waiter.look()
            if looked is Looked.WAITS:
                return
            self._leave(place, waiter)
            if looked is Looked.ANSWERED:
                return

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """A queue deals messages out again to this group."""
        for place in list(self._topics.get(topic, ())):
            if place[1] == group and place[2] in (-1, queue_id):
                self.wake(place)

    def wake_topic(self, topic: str) -> None:
        """Let everyone look who waits for this topic: it changed, or a group was moved."""
        self._watched = {watched for watched in self._watched if watched[0] != topic}
        for place in list(self._topics.get(topic, ())):
            self.wake(place)
        for queues in list(self._topics.get(topic, {}).values()):
            self._watch_all(topic, queues)

    def release(self, topic: str, group: str) -> None:
        """Answer everyone of a group who waits for this topic: it is to be pulled from now on."""
        for place in [place for place in self._places if place[:2] == (topic, group)]:
            for waiter in list(self._places[place]):
                self._leave(place, waiter)
                if not waiter.gone:
                    waiter.expire()

    def tick(self) -> None:
        """Answer those whose time is over, and let those look whose time has come."""
        now = self._clock.now_ms()
        while self._times and self._times[0][0] <= now:
            _, _, place, waiter = heapq.heappop(self._times)
            expires = self._places.get(place, {}).get(waiter)
            if expires is None:
                continue
            if waiter.gone:
                self._leave(place, waiter)
            elif expires > now:
                if waiter.look() is not Looked.WAITS:
                    self._leave(place, waiter)
            else:
                self._leave(place, waiter)
                waiter.expire()
