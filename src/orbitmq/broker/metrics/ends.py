"""The ends of topics' queues and the messages that topics got, read once in a scrape for all reading groups.

Numbers computed from the ends of a topic are computed again only after the topic got messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.message_types import MESSAGE_TYPES, NORMAL
from orbitmq.runtime.histogram import Histogram
from orbitmq.store import MessageStore
from orbitmq.store.queues import layout
from orbitmq.wire.bodies.topic import TopicConfig


class TypeCounts(NamedTuple):
    """The messages of one type that a topic got since the start.

    Attributes:
        labels: the topic, the message type, and whether the topic is a system topic.
        sizes: the sizes of their records in bytes.
    """

    labels: tuple[str, str, str]
    messages: int
    sizes: Histogram


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """The ends of a topic's queues, and the messages that it got.

    Attributes:
        all: the ends of the queues that are read or written.
        readable: the ends of the queues that are read.
        messages: the sum of ``all``: how many messages the topic ever got.
        taken: its messages since the start: normal messages, and those of each other type that it got.
    """

    all: Sequence[int]
    readable: Sequence[int]
    messages: int
    taken: Sequence[TypeCounts]


NOTHING = TopicTotals((), (), 0, ())


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
        """Begin a scrape: read all ends anew, and forget topics that the last scrape did not read."""
        self._before, self._now = self._now, {}
        self.changed = set()

    def of(self, topic: str) -> TopicTotals:
        """A topic's ends in this scrape; :data:`NOTHING` for a topic that does not exist."""
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
        is_system = str(self._topics.is_system(topic)).lower()
        taken = _taken(topic, is_system, self._store.topic_counts(topic))
        return TopicTotals(ends, ends[:readable], sum(ends), taken)


def _taken(topic: str, is_system: str, counts: Sequence[int]) -> Sequence[TypeCounts]:
    """The messages that a topic got, from the counts of its types one behind the other; empty: none."""
    found = []
    for number, name in enumerate(MESSAGE_TYPES):
        begin = number * layout.TYPE_WIDTH
        sizes = Histogram(layout.SIZE_BOUNDS)
        if counts:
            sizes.counts = list(counts[begin : begin + layout.TYPE_BYTES])
            sizes.total = counts[begin + layout.TYPE_BYTES]
        messages = sum(sizes.counts)
        if messages or number == NORMAL:
            found.append(TypeCounts((topic, name, is_system), messages, sizes))
    return found
