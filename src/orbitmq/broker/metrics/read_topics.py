"""Which groups read which topics: as their members subscribe, else as their offsets say.

A group that pops reads two topics at a time: the topic itself, and the retry topic that its messages come
again in. RocketMQ shows both under the topic's name and tells them apart by the label ``is_retry``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.metrics.ends import TopicTotals
from orbitmq.broker.pop.requests import Sources
from orbitmq.message.reserved import RETRY_PREFIX, is_system_group
from orbitmq.wire.bodies.client import ConsumeType
from orbitmq.wire.bodies.topic import DataVersion


class Row(NamedTuple):
    """The labels of a group's figures, as texts."""

    consumer_group: str
    topic: str
    is_retry: str
    is_system: str


class ReadTopic:
    """A group and a topic that it reads, with its progress there as the last scrape found it.

    Attributes:
        source: the topic whose queues the group reads; empty: the retry topic is not there yet.
        key: ``source@group``.
        seen: what the numbers below were computed from; None: they have to be computed.
        lag, in_flight: messages that the group has not done, and those of them that it has got.
        lagging_ms, ready_ms: when the oldest message that it has not done, or not got, was stored; 0: none.
        queue_lag, queue_lagging_ms: the same of each queue, when they are asked for.
    """

    __slots__ = (
        "in_flight",
        "key",
        "lag",
        "lagging_ms",
        "queue_lag",
        "queue_lagging_ms",
        "queue_rows",
        "ready_ms",
        "row",
        "seen",
        "source",
    )

    def __init__(self, row: Row, source: str) -> None:
        self.row = row
        self.source = source
        self.key = f"{source}{SEPARATOR}{row.consumer_group}"
        self.seen: Seen | None = None
        self.lag = 0
        self.in_flight = 0
        self.lagging_ms = 0
        self.ready_ms = 0
        self.queue_lag: list[int] = []
        self.queue_lagging_ms: list[int] = []
        self.queue_rows: list[tuple[str, str, str]] = []


class Seen(NamedTuple):
    """What a group's progress in a topic was computed from.

    Attributes:
        kept, pulled: its offsets by queue, copied.
        holds: the same object as long as the log begins at the same place.
        moving: pops dealt messages out or a reset was pending, so that it has to be computed again.
    """

    ends: TopicTotals
    kept: Mapping[int, int] | None
    pulled: Mapping[int, int] | None
    holds: object
    moving: bool


class _Known(NamedTuple):
    """The topics of a group, and what they were found by."""

    topics: Set[str]
    version: DataVersion
    how: tuple[bool, bool, bool]
    found: list[ReadTopic]


class ReadTopics:
    """Finds each group with each of its topics; the same objects as long as nothing has changed."""

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

    def all(self) -> Iterator[ReadTopic]:
        """The topics of all groups; the tables may change meanwhile."""
        found: dict[str, _Known] = {}
        for config in list(self._groups):
            group = config.group_name
            found[group] = known = self._of(group)
            yield from known.found
        self._known = found

    def _of(self, group: str) -> _Known:
        state = self._clients.consumers(group)
        if state is not None and state.subscriptions:
            topics: Set[str] = state.subscriptions.keys()
        else:
            topics = self._offsets.topics_of(group)
        pops = state is not None and state.consume_type is ConsumeType.CONSUME_POP
        how = pops, self._config.enable_retry_topic_v2, self._config.pop_retry_topic_v1
        known, version = self._known.get(group), self._topics.version
        if known is not None and known.version is version and known.how == how and known.topics == topics:
            return known
        before = {} if known is None else {(each.row, each.source): each for each in known.found}
        found = [before.get(each) or ReadTopic(*each) for each in self._read_by(group, topics, pops=pops)]
        return _Known(set(topics), version, how, found)

    def _read_by(self, group: str, topics: Set[str], *, pops: bool) -> Iterator[tuple[Row, str]]:
        """The labels and the source of each topic that a group reads."""
        for topic in sorted(topics):
            if not topic.startswith(RETRY_PREFIX) and topic in self._topics:
                is_system = str(self._topics.is_system(topic) or is_system_group(group)).lower()
                yield Row(group, topic, "false", is_system), topic
                retry = self._retry_topic(group, topic)
                if pops or retry:
                    yield Row(group, topic, "true", is_system), retry

    def _retry_topic(self, group: str, topic: str) -> str:
        """The topic in which the messages that the group popped come again; empty: there is none."""
        found = next(self._sources.retry_topics(topic, group), None)
        if found is None:
            return ""
        name = found.topic_name
        # The name may be that of another group's own retry topic: a_b is a group, or a and b are.
        own = name.removeprefix(RETRY_PREFIX) in self._groups
        return "" if own and self._offsets.kept_queues(f"{name}{SEPARATOR}{group}") is None else name
