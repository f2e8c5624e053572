"""The progress of consumer groups (AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.statistics import GROUP_GET_NUMS, Stats
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_batches, in_slices
from orbitmq.store import MessageStore
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueueTimeSpan,
    TopicProgress,
)

_FAR_AHEAD = 2**63 - 1
# How many topics of a group, or groups of a topic, are looked at in one turn of the event loop.
TOPICS_PER_TURN = 100
# How many pairs of group and topic are summed up in one turn: a tenth of a millisecond, since each console
# requests the sums every few seconds.
PAIRS_PER_TURN = 25


class ConsumeProgress:
    """Compares the offsets of groups with the stored messages.

    Args:
        address: this broker's address for clients, host:port.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
        stats: Stats,
        address: str,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._stats = stats
        self._address = address

    async def of_group(self, group: str, topics: Iterable[str] | None = None) -> ConsumeStats:
        """A group's progress in each queue of these topics, by default of all its topics."""
        stats = ConsumeStats()
        async for topic in in_slices(self._topics_of(group) if topics is None else topics, TOPICS_PER_TURN):
            stats.offset_table |= self._in_topic(group, topic)
            stats.consume_tps += self._rate(group, topic)
        return stats

    async def in_topic(self, group: str, topic: str) -> ConsumeStats:
        """A group's progress in a topic; no figures if the group is online and not subscribed to it."""
        return await self.of_group(group, [topic]) if self._reads(group, topic) else ConsumeStats()

    def _reads(self, group: str, topic: str) -> bool:
        subscribed = self._subscribed(group)
        return not subscribed or _is_read(group, topic, subscribed)

    def _topics_of(self, group: str) -> list[str]:
        """All topics of the group, including those of its redeliveries, without topics that it does not
        subscribe to any more.
        """
        topics, subscribed = self._offsets.topics_of(group), self._subscribed(group)
        return sorted(
            topics if not subscribed else (one for one in topics if _is_read(group, one, subscribed))
        )

    def _subscribed(self, group: str) -> Collection[str]:
        """The subscriptions of the group; empty: the group is not online, or has no subscriptions."""
        state = self._clients.consumers(group)
        return () if state is None else state.subscriptions

    def _rate(self, group: str, topic: str) -> float:
        return self._stats.per_second(GROUP_GET_NUMS, f"{topic}{SEPARATOR}{group}")

    def _in_topic(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        config = self._topics.get(topic)
        broker = self._config.broker_name
        return {
            MessageQueue(topic, broker, queue_id): self._in_queue(group, topic, queue_id)
            for queue_id in range(config.read_queue_nums if config is not None else 0)
        }

    def _in_queue(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        store, offsets = self._store, self._offsets
        consumed = max(0, offsets.query(group, topic, queue_id) or 0)
        pulled = offsets.pulled(group, topic, queue_id) or 0
        stored_ms = store.store_time(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=max(0, store.max_offset(topic, queue_id)),
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled),
            last_timestamp=max(0, stored_ms),
            pop_in_flight=offsets.in_flight(group, topic, queue_id),
        )

    async def of_all_groups(self, *, only_order: bool) -> ConsumeStatsList:
        """Every group's progress in every topic, or in every ordered topic."""
        listed: list[dict[str, list[ConsumeStats]]] = []
        behind = 0
        async for config in in_slices(list(self._groups), TOPICS_PER_TURN):
            progress = []
            async for topic in in_slices(self._topics_of(config.group_name), TOPICS_PER_TURN):
                if only_order and not self._topics.is_order(topic):
                    continue
                stats = await self.of_group(config.group_name, [topic])
                behind += sum(p.broker_offset - p.consumer_offset for p in stats.offset_table.values())
                progress.append(stats)
            listed.append({config.group_name: progress})
        return ConsumeStatsList(consume_stats_list=listed, broker_addr=self._address, total_diff=behind)

    async def sums(self) -> dict[str, dict[str, TopicProgress]]:
        """Every group's progress in each topic, summed over the queues: shorter and faster than
        :meth:`of_all_groups`.
        """
        found: dict[str, dict[str, TopicProgress]] = {}
        # The ends of a topic's queues are read once for all of its groups.
        ends: dict[str, Sequence[int]] = {}
        async for pairs in in_batches(self._pairs(), PAIRS_PER_TURN):
            for group, topic in pairs:
                topics = found.setdefault(group, {})
                if topic is not None:
                    if topic not in ends:
                        config = self._topics.get(topic)
                        ends[topic] = self._store.max_offsets(topic, config.read_queue_nums if config else 0)
                    topics[topic] = self._sum(group, topic, ends[topic])
        return found

    def _pairs(self) -> Iterator[tuple[str, str | None]]:
        """Each group with each of its topics; a group without topics with ``None``."""
        for config in list(self._groups):
            group = config.group_name
            for topic in self._topics_of(group) or (None,):
                yield group, topic

    def _sum(self, group: str, topic: str, ends: Sequence[int]) -> TopicProgress:
        offsets = self._offsets
        key = f"{topic}{SEPARATOR}{group}"
        kept, reads = offsets.kept_queues(key) or {}, offsets.reads(key)
        committed = ({**kept, **reads} if reads else kept).get
        lag = offsets.in_flight_in(group, topic, len(ends))
        for queue, end in enumerate(ends):
            behind = end - committed(queue, 0)
            if behind > 0:
                lag += behind
        return TopicProgress(lag, sum(ends))

    def time_spans(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """Store times in each queue, and how long the group's first message that is not done has waited.

        Raises:
            RemotingError: TOPIC_NOT_EXIST.
        """
        queues = range(self._metadata.topic(topic).write_queue_nums)
        return [self._span(topic, group, queue_id) for queue_id in queues]

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first = store.store_time(topic, queue_id, low)
        consumed = self._offsets.query(group, topic, queue_id) or 0
        undone = self._offsets.undone(group, topic, queue_id) or 0
        delay = 0
        if undone < high:
            next_time = store.store_time(topic, queue_id, max(undone, low))
            delay = self._clock.now_ms() - next_time if next_time >= 0 else 0
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._config.broker_name, queue_id),
            min_time_stamp=first,
            max_time_stamp=store.store_time(topic, queue_id, high - 1),
            consume_time_stamp=store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first,
            delay_time=delay,
        )

    async def corrections(self, topic: str, compare_group: str, without: Iterable[str]) -> dict[int, int]:
        """The smallest offset of all groups in each queue; "never" if ``compare_group`` is below it."""
        offsets = self._offsets
        smallest: dict[int, int] = {}
        async for group in in_slices(offsets.groups_of(topic) - set(without), TOPICS_PER_TURN):
            for queue_id, offset in offsets.queues(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in offsets.queues(compare_group, topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = _FAR_AHEAD
        return smallest


def _is_read(group: str, topic: str, subscribed: Collection[str]) -> bool:
    return topic in subscribed or pop_info.normal_topic(topic, group) in subscribed
