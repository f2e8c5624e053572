"""Chooses the queue for the next message of one topic.

The chooser reads a route without changing it. If the route has a writable queue, it returns one of the
route's queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.client.core.routing import TopicRoute
from orbitmq.client.producer.faults import FaultTable
from orbitmq.errors import ValidationError
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.tags import java_hash

if TYPE_CHECKING:
    import random

log = logging.getLogger("orbitmq.client")

Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


class QueueChooser:
    """Round robin from a random start, minus the brokers to avoid (TI rows, FT-13 to FT-27).

    Args:
        random_source: source of the random start.
        faults: the fault table to obey, None when latency fault tolerance is off (FT-01).
    """

    __slots__ = ("_faults", "_index", "_random")

    def __init__(self, random_source: random.Random, faults: FaultTable | None = None) -> None:
        self._random = random_source
        self._faults = faults
        self._index = random_source.getrandbits(31)

    def choose(
        self, route: TopicRoute, tried: Sequence[str] = (), now_ms: float = 0.0
    ) -> MessageQueue | None:
        """The queue for the next attempt, None if the route has no writable queue.

        Args:
            tried: the brokers of this message's earlier attempts, in their order.
            now_ms: the time on the fault table's clock; unused without a fault table.
        """
        queues = route.publish
        if not queues:
            return None
        faults = self._faults
        if faults is None:
            if not tried:
                self._index = index = self._index + 1
                return queues[index % len(queues)]
            return self._other(queues, tried)
        if tried and faults.profile.uses_reachable:
            self._index = self._random.getrandbits(31)
        try:
            return self._choose_with_faults(faults, route, tried, now_ms)
        except Exception:
            # A worse queue is better than a failed send (FT-25).
            log.exception("choosing by the fault table failed, the next queue in turn is taken")
            return self._other(queues, tried)

    def _other(self, queues: tuple[MessageQueue, ...], tried: Sequence[str]) -> MessageQueue:
        """Plain round robin: a broker not tried yet, else another broker than the last one, else any."""
        chosen = None
        if tried:
            chosen = self._scan(queues, lambda name: name not in tried)
            if chosen is None and len(tried) > 1:
                last = tried[-1]
                chosen = self._scan(queues, lambda name: name != last)
        if chosen is None:
            self._index += 1
            chosen = queues[self._index % len(queues)]
        return chosen

    def _scan(self, queues: tuple[MessageQueue, ...], usable: Callable[[str], bool]) -> MessageQueue | None:
        size = len(queues)
        start = self._index + 1
        for position in range(start, start + size):
            queue = queues[position % size]
            if usable(queue.broker_name):
                # The next call continues after this queue, so that skipped brokers do not skew the spread.
                self._index = position
                return queue
        return None

    def _choose_with_faults(
        self, faults: FaultTable, route: TopicRoute, tried: Sequence[str], now_ms: float
    ) -> MessageQueue:
        queues = route.publish
        if tried and faults.profile.retry_prefers_last:
            last = tried[-1]
            chosen = self._scan(queues, lambda name: name == last and faults.is_available(name, now_ms))
            return chosen or self._better_half(faults, route, now_ms) or self._other(queues, ())
        chosen = self._scan(queues, lambda name: name not in tried and faults.is_available(name, now_ms))
        if chosen is None and faults.profile.uses_reachable:
            chosen = self._scan(queues, lambda name: name not in tried and faults.is_reachable(name))
        elif chosen is None:
            chosen = self._scan(queues, lambda name: faults.is_available(name, now_ms))
            chosen = chosen or self._better_half(faults, route, now_ms)
        return chosen or self._other(queues, tried)

    def _better_half(self, faults: FaultTable, route: TopicRoute, now_ms: float) -> MessageQueue | None:
        """A queue of a broker in the better half, for the case that all brokers are to be avoided (FT-22 to
        FT-24).
        """
        broker_name = faults.pick_one_at_least(now_ms)
        if broker_name is None:
            return None
        if route.write_queues.get(broker_name, 0) <= 0:
            faults.remove(broker_name)
            return None
        own = [queue for queue in route.publish if queue.broker_name == broker_name]
        self._index += 1
        return own[self._index % len(own)]


def by_hash(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """Selector: the same key goes to the same queue while the route is unchanged
    (SelectMessageQueueByHash).
    """
    return queues[queue_index(key, len(queues))]


def by_random(random_source: random.Random) -> Selector:
    """Selector: any queue (SelectMessageQueueByRandom)."""

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        return random_source.choice(queues)

    return select


def queue_of(topic: str, queue: object) -> MessageQueue:
    """Check the queue that a user chose for a message of this topic.

    Raises:
        ValidationError: the object is no queue, or a queue of another topic.
    """
    if not isinstance(queue, MessageQueue) or queue.topic != topic:
        raise ValidationError(f"{queue!r} is not a queue of topic {topic!r}")
    return queue


def queue_index(key: object, size: int) -> int:
    """Java's ``abs(hashCode % size)``: Java and Python producers send the same key to the same queue.

    An ``int`` of 32 bits hashes to itself, like Java's ``Integer``; any other key hashes like its text.
    """
    if isinstance(key, int) and not isinstance(key, bool) and -(2**31) <= key < 2**31:
        return abs(key) % size
    return abs(java_hash(str(key))) % size
