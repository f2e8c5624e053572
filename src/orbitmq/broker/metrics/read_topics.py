"""Which groups read which topics: by their members' subscriptions, or else by their offsets.

A group that pops reads two topics: the topic itself, and the retry topic through which failed messages are
delivered again. RocketMQ shows both under the topic's name, with different values of the label ``is_retry``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence, Set
from itertools import chain
from operator import is_not
from typing import Final, NamedTuple

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.requests import Sources
from orbitmq.message.reserved import RETRY_PREFIX, is_system_group
from orbitmq.monitoring.exposition import LabelRows
from orbitmq.runtime.tasks import in_batches
from orbitmq.wire.bodies.client import ConsumeType

# Pairs of a group and a topic whose series are written in one turn of the event loop: about a millisecond
# when all have changed, a tenth of it when none has.
PER_BATCH: Final = 100
GROUPS_PER_TURN: Final = 500


class Row(NamedTuple):
    """The labels of a group's figures, as texts."""

    consumer_group: str
    topic: str
    is_retry: str
    is_system: str


class ReadTopic(NamedTuple):
    """A group and a topic that it reads.

    Attributes:
        source: the topic whose queues the group reads; empty: the retry topic does not exist yet.
        key: ``source@group``.
    """

    row: Row
    source: str
    key: str

    @property
    def is_retry(self) -> bool:
        return self.row.is_retry == "true"

    @property
    def pair(self) -> tuple[str, str]:
        """The source and the group."""
        return self.source, self.row.consumer_group


class ReadBatch:
    """Pairs of a group and a topic, and the progress of each as the last scrape found it, at the same index.

    Attributes:
        keys, sources, pairs: those of all the :class:`ReadTopic` in the batch.
        retries: the retry topics among the sources.
        known: whether the numbers below were true at the last scrape.
        lag: messages that the group has not consumed.
        in_flight: those of the messages in ``lag`` that the group has read.
        lagging_ms: when the oldest message that is not consumed was stored; 0: there is none.
        ready_ms: when the oldest message that is not read was stored; 0: there is none.
        queue_lag, queue_lagging_ms: the same of each queue, when the scrape shows queues.
    """

    def __init__(self, topics: Sequence[ReadTopic]) -> None:
        self.topics = topics
        self.labels = LabelRows(Row._fields, [each.row for each in topics])
        self.keys = {each.key for each in topics}
        self.sources = {each.source for each in topics}
        self.pairs = {each.pair for each in topics}
        self.retries = [source for source in self.sources if source.startswith(RETRY_PREFIX)]
        self.known = False
        self.lag = [0] * len(topics)
        self.in_flight = [0] * len(topics)
        self.lagging_ms = [0] * len(topics)
        self.ready_ms = [0] * len(topics)
        self.queue_lag: list[Sequence[int]] = [()] * len(topics)
        self.queue_lagging_ms: list[Sequence[int]] = [()] * len(topics)
        self._queue_labels: tuple[Sequence[int], LabelRows] | None = None

    def queue_labels(self) -> LabelRows:
        """The labels of all queues of :attr:`queue_lag`."""
        queues = [len(lags) for lags in self.queue_lag]
        if self._queue_labels is None or self._queue_labels[0] != queues:
            rows = [
                (each.row.consumer_group, each.row.topic, str(queue))
                for each, count in zip(self.topics, queues, strict=True)
                for queue in range(count)
            ]
            self._queue_labels = queues, LabelRows(("consumer_group", "topic", "queue_id"), rows)
        return self._queue_labels[1]


class _Known(NamedTuple):
    """The topics of a group, and the subscriptions and versions of tables from which they were found."""

    subscribed: Set[str]
    by: tuple[object, ...]
    found: list[ReadTopic]


class ReadTopics:
    """Finds the topics that each group reads."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
    ) -> None:
        self._config = config
        self._sources = Sources(config, topics)
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._known: dict[str, _Known] = {}
        self._batches: list[ReadBatch] = []

    async def batches(self) -> Sequence[ReadBatch]:
        """The topics of all groups in batches. A batch with the same topics is the same object as before."""
        groups = [config.group_name for config in self._groups]
        known: dict[str, _Known] = {}
        for number, group in enumerate(groups, start=1):
            known[group] = self._of(group)
            if known[group] is not self._known.get(group) or number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        if len(known) != len(self._known) or any(map(is_not, known.values(), self._known.values())):
            before, self._batches = self._batches, []
            found = chain.from_iterable([each.found for each in known.values()])
            async for topics in in_batches(found, PER_BATCH):
                number = len(self._batches)
                same = number < len(before) and before[number].topics == topics
                self._batches.append(before[number] if same else ReadBatch(topics))
        self._known = known
        return self._batches

    def _of(self, group: str) -> _Known:
        state = self._clients.consumers(group)
        subscribed: Set[str] = set() if state is None else state.subscriptions.keys()
        pops = state is not None and state.consume_type is ConsumeType.CONSUME_POP
        config = self._config
        by = (
            pops, config.enable_retry_topic_v2, config.pop_retry_topic_v1, self._topics.version,
            self._offsets.pairs_version,
        )  # fmt: skip
        known = self._known.get(group)
        if known is not None and known.by == by and known.subscribed == subscribed:
            return known
        topics = subscribed or self._offsets.topics_of(group)
        found = list(self._read_by(group, topics, pops=pops))
        if known is not None and known.found == found:
            found = known.found
        return _Known(set(subscribed), by, found)

    def _read_by(self, group: str, topics: Set[str], *, pops: bool) -> Iterator[ReadTopic]:
        for topic in sorted(topics):
            if not topic.startswith(RETRY_PREFIX) and topic in self._topics:
                is_system = str(self._topics.is_system(topic) or is_system_group(group)).lower()
                yield _read_topic(Row(group, topic, "false", is_system), topic)
                retry = self._retry_topic(group, topic)
                if pops or retry:
                    yield _read_topic(Row(group, topic, "true", is_system), retry)

    def _retry_topic(self, group: str, topic: str) -> str:
        """The retry topic of the group's pops of this topic; empty: there is none."""
        found = next(self._sources.retry_topics(topic, group), None)
        if found is None:
            return ""
        name = found.topic_name
        # Another group's own retry topic may have the same name: group a_b, or group a with topic b.
        own = name.removeprefix(RETRY_PREFIX) in self._groups
        return "" if own and self._offsets.kept_queues(f"{name}{SEPARATOR}{group}") is None else name


def _read_topic(row: Row, source: str) -> ReadTopic:
    return ReadTopic(row, source, f"{source}{SEPARATOR}{row.consumer_group}")
