"""The figures of topics and groups: many series, read with pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import GROUP_GET_NUMS, Stats
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

# How many topics, or pairs of a group and a topic, are looked at in one turn of the event loop.
PER_TURN = 20


@dataclass(slots=True)
class Progress:
    """How far a group is in a topic: messages not done, how many of these are in flight, and times."""

    lag: int = 0
    in_flight: int = 0
    oldest_lagging_ms: int = 0
    oldest_ready_ms: int = 0


class Topics:
    """Reads ends of queues and offsets of groups.

    A slave has the queues of its master and copies of the groups' offsets. It leaves them out, so that sums
    over all brokers count them once.
    """

    def __init__(
        self,
        clock: Clock,
        role: RoleState,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        stats: Stats,
    ) -> None:
        self._clock = clock
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats

    async def write(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add all figures of topics and groups, as long as the broker serves."""
        await self._out(text, serving)
        if self._role.takes_messages:
            await self._in(text, serving)
            await self._lag(text, serving)

    async def _out(self, text: Exposition, serving: Callable[[], bool]) -> None:
        await self._stats.look()
        out = text.family(
            "rocketmq_messages_out_total",
            "counter",
            "Messages that reads of a group covered since the start, those that its filter left out included",
        )
        async for key, messages in in_slices(self._stats.totals(GROUP_GET_NUMS), 50 * PER_TURN):
            if not serving():
                return
            topic, _, group = key.partition(SEPARATOR)
            if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                out.add(
                    messages,
                    topic=topic,
                    consumer_group=group,
                    is_retry="false",
                    is_system=self._is_system(topic, group),
                )

    async def _in(self, text: Exposition, serving: Callable[[], bool]) -> None:
        taken = text.family("rocketmq_messages_in_total", "counter", "Messages that the topic ever got")
        dead = text.family("orbitmq_dead_letters_total", "counter", "Messages that the group gave up")
        async for config in in_slices(list(self._topics), PER_TURN):
            if not serving():
                return
            topic = config.topic_name
            if topic.startswith(RETRY_PREFIX):
                continue
            if not text.room:
                text.cut += 1
                continue
            queues = max(config.read_queue_nums, config.write_queue_nums)
            messages = sum(max(0, self._store.max_offset(topic, queue)) for queue in range(queues))
            if topic.startswith(DLQ_PREFIX):
                dead.add(messages, consumer_group=topic.removeprefix(DLQ_PREFIX))
            else:
                taken.add(messages, topic=topic, is_system=str(self._topics.is_system(topic)).lower())

    async def _lag(self, text: Exposition, serving: Callable[[], bool]) -> None:
        lag = text.family("rocketmq_consumer_lag_messages", "gauge", "Messages that the group has not done")
        latency = text.family(
            "rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the oldest of these"
        )
        in_flight = text.family(
            "rocketmq_consumer_inflight_messages", "gauge", "Messages that the group has, and has not done"
        )
        queueing = text.family(
            "rocketmq_consumer_queueing_latency_milliseconds",
            "gauge",
            "Age of the oldest message that the group has not read",
        )
        ready = text.family(
            "rocketmq_consumer_ready_messages", "gauge", "Messages that the group can read now"
        )
        async for group, topic in in_slices(self._read_topics(), PER_TURN):
            if not serving():
                return
            if not text.room:
                text.cut += 5
                continue
            found, now = self._progress(group, topic), self._clock.now_ms()
            labels = {
                "consumer_group": group,
                "topic": topic,
                "is_retry": "false",
                "is_system": self._is_system(topic, group),
            }
            lag.add(found.lag, **labels)
            latency.add(_age(now, found.oldest_lagging_ms), **labels)
            in_flight.add(found.in_flight, **labels)
            queueing.add(_age(now, found.oldest_ready_ms), **labels)
            ready.add(found.lag - found.in_flight, **labels)

    def _read_topics(self) -> Iterator[tuple[str, str]]:
        """Each group with each of its topics: as its members subscribe, else as its offsets say."""
        for config in list(self._groups):
            group = config.group_name
            state = self._clients.consumers(group)
            if state is not None and state.subscriptions:
                topics = set(state.subscriptions)
            else:
                topics = self._offsets.topics_of(group)
            for topic in sorted(topics):
                if not topic.startswith(RETRY_PREFIX) and topic in self._topics:
                    yield group, topic

    def _progress(self, group: str, topic: str) -> Progress:
        found, store, offsets = Progress(), self._store, self._offsets
        config = self._topics.get(topic)
        done_by_queue = offsets.kept(group, topic)
        pulled_by_queue = offsets.pulls().get(f"{topic}{SEPARATOR}{group}", {})
        for queue in range(config.read_queue_nums if config is not None else 0):
            end = max(0, store.max_offset(topic, queue))
            done = min(end, done_by_queue.get(queue, end))
            committed = offsets.query(group, topic, queue)
            read = min(end, max(done, pulled_by_queue.get(queue, 0), committed or 0))
            found.lag += end - done
            found.in_flight += read - done
            if done < end:
                found.oldest_lagging_ms = self._older(found.oldest_lagging_ms, topic, queue, done)
            if read < end:
                found.oldest_ready_ms = self._older(found.oldest_ready_ms, topic, queue, read)
        return found

    def _older(self, known_ms: int, topic: str, queue: int, offset: int) -> int:
        first = max(offset, self._store.min_offset(topic, queue))
        stored_ms = self._store.store_time(topic, queue, first)
        return stored_ms if stored_ms > 0 and (not known_ms or stored_ms < known_ms) else known_ms

    def _is_system(self, topic: str, group: str) -> str:
        return str(self._topics.is_system(topic) or is_system_group(group)).lower()


def _age(now: int, stored_ms: int) -> int:
    return max(0, now - stored_ms) if stored_ms else 0
