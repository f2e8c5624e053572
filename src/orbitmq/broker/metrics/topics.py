"""The figures of topics and groups: many series, read with pauses.

A slave has the queues of its master and copies of the groups' offsets. It leaves them out, so that sums over
all brokers count them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.metrics.ends import TopicEnds
from orbitmq.broker.metrics.label_batches import LabelBatches
from orbitmq.broker.metrics.lag import LagMetrics
from orbitmq.broker.metrics.progress import GroupProgress
from orbitmq.broker.metrics.read_topics import PER_BATCH, ReadTopics, Row
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import GROUP_GET_NUMS, Stats
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from orbitmq.monitoring.exposition import Exposition, MetricFamily
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_batches, in_slices
from orbitmq.store import MessageStore
from orbitmq.store.queues.layout import SIZE_BOUNDS
from orbitmq.wire import pop_info

# Counters that are read in one turn of the event loop.
NUMBERS_PER_TURN: Final = 1000
_TAKEN: Final = ("topic", "message_type", "is_system")
# The series of a topic's sizes of one type: each bound, above all bounds, the sum and the number.
_SIZE_SERIES: Final = len(SIZE_BOUNDS) + 3


class Topics:
    """Reads ends of queues, offsets of groups, and counters of the statistics."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        role: RoleState,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        stats: Stats,
    ) -> None:
        self._role = role
        self._topics = topics
        self._stats = stats
        self._ends = TopicEnds(store, topics)
        read_topics = ReadTopics(config, topics, groups, offsets, clients)
        self._lag = LagMetrics(clock, config, read_topics, GroupProgress(store, offsets, self._ends))
        # The labels of groups that read a topic, by group and topic: of the last scrape, and of this one.
        self._rows: dict[tuple[str, str], Row | None] = {}
        self._rows_now: dict[tuple[str, str], Row | None] = {}
        self._out_labels = LabelBatches(Row._fields)
        self._bytes_labels = LabelBatches(Row._fields)
        self._in_labels = LabelBatches(_TAKEN)
        self._size_labels = LabelBatches(_TAKEN)
        # Labels of topics that got messages, and the messages' sizes.
        self._sizes: list[tuple[tuple[str, ...], Histogram]] = []

    async def write(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add all figures of topics and groups, as long as the broker serves."""
        await self._out(text, serving)
        if self._role.takes_messages:
            self._ends.begin()
            await self._in(text, serving)
            await self._lag.write(text, serving)
            await self._message_sizes(text, serving)

    async def _out(self, text: Exposition, serving: Callable[[], bool]) -> None:
        await self._stats.look()
        self._rows, self._rows_now = self._rows_now, {}
        messages = text.family(
            "rocketmq_messages_out_total",
            "counter",
            "Messages that reads of a group covered since the start, those that its filter left out included",
        )
        totals = self._stats.totals(GROUP_GET_NUMS)
        counted = ((_pair(key), number) for key, number in totals)
        await _write(messages, self._out_labels, await self._by_row(counted), serving)

        traffic = text.family(
            "rocketmq_throughput_out_total",
            "counter",
            "Bytes of the records that reads of a group brought since the start",
        )
        sizes = list((self._stats.counters.bytes_out or {}).items())
        await _write(traffic, self._bytes_labels, await self._by_row(sizes), serving)

    async def _by_row(self, counted: Iterable[tuple[tuple[str, str], int]]) -> Mapping[Row, int]:
        """The counters by group and topic; a topic and its retry topics of pops have a row each."""
        found: dict[Row, int] = {}
        async for pair, number in in_slices(counted, NUMBERS_PER_TURN):
            row = self._row(pair)
            if row is not None:
                found[row] = found.get(row, 0) + number
        return found

    def _row(self, pair: tuple[str, str]) -> Row | None:
        """The labels of a group and a topic; None for topics that RocketMQ leaves out."""
        if pair in self._rows_now:
            return self._rows_now[pair]
        found = self._rows.get(pair)
        if found is None:
            group, source = pair
            topic = pop_info.normal_topic(source, group)
            if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                is_system = self._topics.is_system(topic) or is_system_group(group)
                found = Row(group, topic, *(str(flag).lower() for flag in (topic != source, is_system)))
        self._rows_now[pair] = found
        return found

    async def _in(self, text: Exposition, serving: Callable[[], bool]) -> None:
        taken = text.family(
            "rocketmq_messages_in_total", "counter", "Messages that the topic got since the start"
        )
        traffic = text.family(
            "rocketmq_throughput_in_total",
            "counter",
            "Bytes of the records that the topic got since the start",
        )
        dead = text.family("orbitmq_dead_letters_total", "counter", "Messages that the group gave up")
        self._in_labels.begin()
        self._sizes = []
        async for batch in in_batches(self._topics, PER_BATCH):
            if not serving():
                return
            names = [config.topic_name for config in batch if config.topic_name in self._topics]
            for name in names:
                if name.startswith(DLQ_PREFIX):
                    dead.add(self._ends.of(name).messages, consumer_group=name.removeprefix(DLQ_PREFIX))
            names = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
            if not text.room:
                text.cut += 2 * len(names)
            elif names:
                found = [each for name in names for each in self._ends.of(name).taken]
                labels = self._in_labels.of([each.labels for each in found])
                taken.add_rows([each.messages for each in found], labels)
                traffic.add_rows([int(each.sizes.total) for each in found], labels)
                self._sizes += [(each.labels, each.sizes) for each in found if each.messages]
        self._in_labels.end()

    async def _message_sizes(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add the sizes of messages. They come last: they have the most series, which the limit may cut."""
        family = text.family("rocketmq_message_size", "histogram", "Bytes of the records that the topic got")
        found, self._sizes = self._sizes, []
        self._size_labels.begin()
        async for batch in in_batches(found, PER_BATCH):
            if not serving():
                return
            if not text.room:
                text.cut += len(batch) * _SIZE_SERIES
                continue
            rows, sizes = zip(*batch, strict=True)
            family.add_histogram_rows(sizes, self._size_labels.of(rows))
        self._size_labels.end()


def _pair(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return group, topic


async def _write(
    family: MetricFamily, labels: LabelBatches, numbers: Mapping[Row, int], serving: Callable[[], bool]
) -> None:
    labels.begin()
    async for batch in in_batches(numbers.items(), PER_BATCH):
        if not serving():
            return
        rows, values = zip(*batch, strict=True)
        family.add_rows(values, labels.of(rows))
    labels.end()
