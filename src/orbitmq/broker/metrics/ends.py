"""Where the queues of topics end, read once in a scrape for all groups that read the topic.

What was computed from the ends of a topic need not be computed again as long as nothing was put into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.topic import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """The ends of a topic's queues, and the messages and bytes before them.

    Attributes:
        all: the ends of the queues that are read or written.
        readable: the ends of those that are read.
        messages: the sum of ``all``: the messages that the topic ever got.
        bytes_in: bytes of the records that it got since the start.
    """

    all: Sequence[int]
    readable: Sequence[int]
    messages: int
    bytes_in: int


NOTHING = TopicTotals((), (), 0, 0)


class TopicEnds:
    """Reads the ends of queues from the store.

    Attributes:
        changed: the topics that got messages or another number of queues since the last scrape.
    """

    def __init__(self, store: MessageStore, topics: TopicConfigs) -> None:
        self._store = store
        self._topics = topics
        self._before: dict[str, TopicTotals] = {}
        self._now: dict[str, TopicTotals] = {}
        self.changed: set[str] = set()

    def begin(self) -> None:
        """Begin a scrape: read all ends anew, and forget topics that the last scrape did not ask for."""
        self._before, self._now = self._now, {}
        self.changed = set()

    def of(self, topic: str) -> TopicTotals:
        """The ends as of this scrape; :data:`NOTHING` for a topic that does not exist."""
        found = self._now.get(topic)
        if found is None:
            config = self._topics.get(topic)
            found = self._now[topic] = NOTHING if config is None else self._read(config)
        return found

    def _read(self, config: TopicConfig) -> TopicTotals:
        topic, readable = config.topic_name, config.read_queue_nums
        queues = max(readable, config.write_queue_nums)
        ends = self._store.max_offsets(topic, queues)
        before = self._before.get(topic)
        if before is not None and before.all == ends and len(before.readable) == readable:
            return before
        self.changed.add(topic)
        return TopicTotals(ends, ends[:readable], sum(ends), self._store.topic_bytes_in(topic, queues))
