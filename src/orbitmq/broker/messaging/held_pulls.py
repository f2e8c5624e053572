"""Pulls that wait for messages (PullRequestHoldService)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orbitmq.broker.events import Events, OffsetsReset, RightsChanged
from orbitmq.broker.messaging.waiting import HasDeadline, Waiting
from orbitmq.runtime.seam import Clock


class PullWaiter(HasDeadline, Protocol):
    """A pull that waits. ``offset`` is the first queue offset that it has not read."""

    offset: int

    def wake(self) -> bool:
        """Read again; ``True``: the pull is answered, ``False``: it keeps waiting; ``offset`` may grow."""
        ...


class LongPolling(Waiting[tuple[str, int], PullWaiter]):
    """Waiting pulls by topic and queue.

    :meth:`on_arrival` is called after a write batch for queues with waiters.

    Args:
        watch: makes the store report arrivals in a queue.
        limit: how many pulls may wait at a time.
    """

    def __init__(
        self, clock: Clock, events: Events, watch: Callable[[str, int], None], *, limit: int = 100_000
    ) -> None:
        super().__init__("held pulls", clock)
        self._watch = watch
        self.limit = limit
        # Queue ids in which pulls wait, by topic: a changed topic wakes only its own pulls.
        self._by_topic: dict[str, dict[int, None]] = {}
        events.on_messages_arrived(self.on_arrival)
        events.subscribe(OffsetsReset, lambda event: self.wake_topic(event.topic))
        events.subscribe(RightsChanged, lambda event: self.recheck_of(event.user))

    def waiting(self, topic: str, queue_id: int) -> int:
        """How many pulls wait for this queue."""
        return len(self.at((topic, queue_id)))

    def park(self, topic: str, queue_id: int, waiter: PullWaiter, timeout_ms: int) -> bool:
        """Let ``waiter`` wait ``timeout_ms`` (at most two minutes); ``False`` when too many wait already."""
        if len(self) >= self.limit:
            return False
        self.hold((topic, queue_id), waiter, timeout_ms)
        self._by_topic.setdefault(topic, {})[queue_id] = None
        self._watch(topic, queue_id)
        return True

    def on_last_removed(self, key: tuple[str, int]) -> None:
        topic, queue_id = key
        queues = self._by_topic[topic]
        del queues[queue_id]
        if not queues:
            del self._by_topic[topic]

    def on_arrival(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Wake the pulls of a queue whose messages below ``max_offset`` can be read."""
        key = (topic, queue_id)
        for held in self.at(key):
            waiter = held.waiter
            if waiter.gone or (waiter.offset < max_offset and waiter.wake()):
                self.drop(held)
        if self.at(key):
            self._watch(topic, queue_id)

    def wake_topic(self, topic: str) -> None:
        """Wake every pull of a topic that changed or was deleted."""
        for queue_id in list(self._by_topic.get(topic, ())):
            self.on_arrival(topic, queue_id, 1 << 62)
