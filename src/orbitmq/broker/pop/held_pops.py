"""Pops that wait for messages (PopLongPollingService)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol, TypeAlias

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, OffsetsReset, RightsChanged, TopicChanged
from orbitmq.broker.messaging.waiting import HasDeadline, Held, Waiting
from orbitmq.runtime.seam import Clock

# Topic, group and queue id; an id below 0 means any queue.
Place: TypeAlias = tuple[str, str, int]


class RetryResult(Enum):
    """The result of another try of a waiting pop."""

    WAITS = auto()
    ANSWERED = auto()
    ANSWERED_AND_MORE = auto()  # and messages are left for the next pop


class PopWaiter(HasDeadline, Protocol):
    """A waiting request."""

    def retry(self) -> RetryResult:
        """Try again, and answer if there are messages."""
        ...


class HeldPops(Waiting[Place, PopWaiter]):
    """Waiting pops by topic, group and queue, in the order of arrival.

    Args:
        watch: makes the store report arrivals in a queue.
    """

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        clock: Clock,
        events: Events,
        watch: Callable[[str, int], None],
    ) -> None:
        super().__init__(name, clock)
        self._config = config
        self._watch = watch
        # By topic, the places to wake when its messages arrive, each with the queues that it waits for.
        self._topics: dict[str, dict[Place, frozenset[int]]] = {}
        self._topics_of: dict[Place, set[str]] = {}
        self._watched: set[tuple[str, int]] = set()
        events.on_messages_arrived(self.on_arrival)
        events.subscribe(OffsetsReset, lambda event: self.wake_topic(event.topic))
        events.subscribe(RightsChanged, lambda event: self.recheck_of(event.user))
        events.subscribe(TopicChanged, lambda event: self.wake_topic(event.topic))

    def waiting(self, place: Place) -> int:
        """How many requests wait at a place."""
        return len(self.at(place))

    # -- waiting ---------------------------------------------------------------------------------------

    def park(
        self, place: Place, waiter: PopWaiter, sources: Iterable[tuple[str, Iterable[int]]], wait_ms: int
    ) -> bool:
        """Let ``waiter`` wait; ``False`` when too many already do.

        Args:
            sources: the topics and queues whose messages ``waiter`` waits for.
            wait_ms: at most two minutes.
        """
        config = self._config
        if len(self) >= config.pop_polling_total or self.waiting(place) >= config.pop_polling_size:
            return False
        self.hold(place, waiter, wait_ms)
        for topic, queues in sources:
            known = self._topics.setdefault(topic, {})
            known[place] = frozenset(queues)
            self._topics_of.setdefault(place, set()).add(topic)
            self._watch_all(topic, known[place])
        return True

    def retry_at(self, place: Place, waiter: PopWaiter, time_ms: int) -> None:
        """Let a waiting pop try again at ``time_ms``, when a queue becomes free."""
        self.retry_in(place, waiter, time_ms - self._clock.now_ms())

    def _watch_all(self, topic: str, queues: Iterable[int]) -> None:
        for queue_id in queues:
            if (topic, queue_id) not in self._watched:
                self._watched.add((topic, queue_id))
                self._watch(topic, queue_id)

    def on_last_removed(self, key: Place) -> None:
        for topic in self._topics_of.pop(key, ()):
            del self._topics[topic][key]
            if not self._topics[topic]:
                del self._topics[topic]

    # -- waking ----------------------------------------------------------------------------------------

    def retry(self, held: Held[Place, PopWaiter]) -> None:
        if held.waiter.retry() is not RetryResult.WAITS:
            self.drop(held)

    def on_arrival(self, topic: str, queue_id: int, _max_offset: int) -> None:
        """Wake the pops that wait for a queue: it has new messages."""
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
        """Let the waiting requests of a place try again in turn, until one finds no message."""
        for held in self.at(place):
            if held.waiter.gone:
                self.drop(held)
                continue
            result = held.waiter.retry()
            if result is RetryResult.WAITS:
                return
            self.drop(held)
            if result is RetryResult.ANSWERED:
                return

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """Wake the pops of a group that wait for a queue, which is no longer blocked."""
        for place in list(self._topics.get(topic, ())):
            if place[1] == group and place[2] in (-1, queue_id):
                self.wake(place)

    def wake_topic(self, topic: str) -> None:
        """Wake all pops that wait for a topic: the topic changed, or a group was moved."""
        self._watched = {watched for watched in self._watched if watched[0] != topic}
        for place in list(self._topics.get(topic, ())):
            self.wake(place)
        for queues in list(self._topics.get(topic, {}).values()):
            self._watch_all(topic, queues)

    def release(self, topic: str, group: str) -> None:
        """Answer all pops of a group that wait for a topic, because the group begins to pull it."""
        for place in [place for place in self.keys() if place[:2] == (topic, group)]:
            for held in self.at(place):
                self.expire(held)
