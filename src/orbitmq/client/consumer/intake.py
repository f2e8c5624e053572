"""The current filters and pauses of a consumer's topics, and the bytes of messages that the consumer
holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from orbitmq.client.consumer.process_queue import ProcessQueue, TotalSize
from orbitmq.client.core.broker_calls import Filter
from orbitmq.runtime.waiters import Waiters


class FetchControl:
    """The filters, the pauses and the byte count of all queues of one consumer, shared by its pull and pop
    loops.

    Args:
        filters: the filter of each topic, kept up to date with the subscriptions.

    Attributes:
        total: the bytes that all queues hold, without those of paused topics.
        pauses: called when topics are paused or resumed.
    """

    def __init__(self, filters: Mapping[str, Filter]) -> None:
        self._filters = filters
        self._paused: Collection[str] | None = ()
        self.total = TotalSize()
        self.pauses = Waiters()

    def topics(self) -> Iterable[str]:
        """The topics that are subscribed to."""
        return sorted(self._filters)

    def __contains__(self, topic: str) -> bool:
        return topic in self._filters

    def wanted(self, topic: str) -> Filter | None:
        """The filter of a topic, which may change; None while the topic is paused."""
        return None if self._is_paused(topic) else self._filters.get(topic) or Filter()

    def pause(self, topics: Collection[str] | None) -> None:
        """Pause these topics; None pauses all, ``()`` ends every pause."""
        self._paused = topics
        self.pauses.changed()

    def count(self, process_queues: Iterable[ProcessQueue], topic: str) -> None:
        """Count the bytes of these queues of a topic in the total, or if the topic is paused in a counter of
        their own.

        Bytes of a paused topic do not count in the limit of all queues, which they would block.
        """
        for process_queue in process_queues:
            process_queue.count_in(self.total_for(topic))

    def total_for(self, topic: str) -> TotalSize:
        """The counter for the bytes of a queue of this topic: the consumer's total, or while the topic is
        paused a separate one.
        """
        return TotalSize() if self._is_paused(topic) else self.total

    def _is_paused(self, topic: str) -> bool:
        return self._paused is None or topic in self._paused
