"""The figures of topics and groups: many series, read with pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import GROUP_GET_NUMS, Stats
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from orbitmq.monitoring.exposition import Exposition, LabelSet
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

# How many topics, or pairs of a group and a topic, are looked at in one turn of the event loop.
PER_TURN = 50
# The end of the log, which the system has in memory as a rule: it was written not long ago.
HOT_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class ConsumedQueue:
    """A group's progress in a queue.

    Attributes:
        done, read: the offset after the last message that is finished in order, and that was read.
        end: the offset after the newest message.
        in_flight: messages that were read and are not finished.
        oldest_lagging_ms, oldest_ready_ms: when the first unfinished and unread one was stored; 0: none.
    """

    queue_id: int
    done: int
    read: int
    end: int
    in_flight: int
    oldest_lagging_ms: int = 0
    oldest_ready_ms: int = 0

    @property
    def lag(self) -> int:
        return self.end - self.read + self.in_flight


class Topics:
    """Reads ends of queues and offsets of groups.

    A slave has the queues of its master and copies of the groups' offsets. It leaves them out, so that sums
    over all brokers count them once.
    """

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
        self._clock = clock
        self._config = config
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        # The labels of each group's topic and of each topic (without a group), those of the last scrape.
        self._rows: dict[tuple[str, str], LabelSet] = {}
        self._rows_now: dict[tuple[str, str], LabelSet] = {}
        # When the messages at which groups stand were stored, by their places in the log: of the last scrape,
        # and of this one. A group may stand at the same message for long, and that is in memory no more.
        self._times: dict[int, int] = {}
        self._times_now: dict[int, int] = {}

    async def write(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add all figures of topics and groups, as long as the broker serves."""
        await self._out(text, serving)
        if self._role.takes_messages:
            await self._in(text, serving)
            await self._lag(text, serving)
        self._rows, self._rows_now = self._rows_now, {}
        self._times, self._times_now = self._times_now, {}

    def _row(self, topic: str, group: str) -> LabelSet:
        key = topic, group
        row = self._rows_now.get(key) or self._rows.get(key)
        if row is None:
            is_system = self._is_system(topic, group)
            row = (
                LabelSet(consumer_group=group, topic=topic, is_retry="false", is_system=is_system)
                if group
                else LabelSet(topic=topic, is_system=is_system)
            )
        self._rows_now[key] = row
        return row

    async def _out(self, text: Exposition, serving: Callable[[], bool]) -> None:
        await self._stats.look()
        out = text.family(
            "rocketmq_messages_out_total",
            "counter",
            "Messages that reads of a group covered since the start, those that its filter left out included",
        )
        async for key, messages in in_slices(self._stats.totals(GROUP_GET_NUMS), 20 * PER_TURN):
            if not serving():
                return
            topic, _, group = key.partition(SEPARATOR)
            if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                out.add_row(messages, self._row(topic, group))

        traffic = text.family(
            "rocketmq_throughput_out_total",
            "counter",
            "Bytes of the records that reads of a group brought since the start",
        )
        sizes = list((self._stats.counters.bytes_out or {}).items())
        async for (group, topic), size in in_slices(sizes, 20 * PER_TURN):
            if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                traffic.add_row(size, self._row(topic, group))

    async def _in(self, text: Exposition, serving: Callable[[], bool]) -> None:
        taken = text.family("rocketmq_messages_in_total", "counter", "Messages that the topic ever got")
        traffic = text.family(
            "rocketmq_throughput_in_total",
            "counter",
            "Bytes of the records that the topic got since the start",
        )
        dead = text.family("orbitmq_dead_letters_total", "counter", "Messages that the group gave up")
        async for config in in_slices(list(self._topics), PER_TURN):
            if not serving():
                return
            topic = config.topic_name
            if topic.startswith(RETRY_PREFIX):
                continue
            if not text.room:
                text.cut += 2
                continue
            queues = max(config.read_queue_nums, config.write_queue_nums)
            messages = sum(self._store.max_offsets(topic, queues))
            if topic.startswith(DLQ_PREFIX):
                dead.add(messages, consumer_group=topic.removeprefix(DLQ_PREFIX))
            else:
                row = self._row(topic, "")
                taken.add_row(messages, row)
                traffic.add_row(self._store.topic_bytes_in(topic, queues), row)

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
        by_queue = _QueueLag(text) if self._config.metrics_queue_lag else None
        # The ends of a topic's queues are read once for all of its groups.
        ends: dict[str, list[int]] = {}
        every = by_queue is not None
        async for group, topic in in_slices(self._read_topics(), PER_TURN):
            if not serving():
                return
            if not text.room:
                text.cut += 5
                continue
            if topic not in ends:
                config = self._topics.get(topic)
                ends[topic] = self._store.max_offsets(topic, config.read_queue_nums if config else 0)
            queues = self._queues(group, topic, ends[topic], every=every)
            cold = self._look_at_times(topic, queues, self._store.max_commit_log_offset - HOT_BYTES)
            if cold:
                # Load them in a thread, so that the event loop does not wait for the disk.
                await self._store.bring_to_memory(cold)
                if not serving():
                    return
                self._look_at_times(topic, queues, 0)
            now = self._clock.now_ms()
            behind = held = 0
            for queue in queues:
                behind += queue.lag
                held += queue.in_flight
            row = self._row(topic, group)
            lag.add_row(behind, row)
            latency.add_row(_age(now, [queue.oldest_lagging_ms for queue in queues]), row)
            in_flight.add_row(held, row)
            queueing.add_row(_age(now, [queue.oldest_ready_ms for queue in queues]), row)
            ready.add_row(behind - held, row)
            if by_queue is not None:
                by_queue.add(group, topic, queues, now)

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

    def _queues(self, group: str, topic: str, ends: Sequence[int], *, every: bool) -> list[ConsumedQueue]:
        """The group's progress in each queue, without the times.

        Args:
            ends: the ends of the queues.
            every: also of queues of which the group has finished all messages.
        """
        offsets = self._offsets
        key = f"{topic}{SEPARATOR}{group}"
        done_by_queue = offsets.kept_queues(key) or {}
        wanted = [queue for queue, end in enumerate(ends) if every or done_by_queue.get(queue, end) < end]
        if not wanted:
            return []
        found = []
        pulled_by_queue = offsets.pulls().get(key, {})
        reads = offsets.reads(key)
        for queue in wanted:
            end = ends[queue]
            done = min(end, done_by_queue.get(queue, end))
            if done == end:
                found.append(ConsumedQueue(queue, end, end, end, 0))
                continue
            next_one = max(done, reads.get(queue, 0))
            read = min(end, max(next_one, pulled_by_queue.get(queue, 0)))
            popped = offsets.in_flight(group, topic, queue)
            # Of messages that pops handed out, those behind one in flight may be finished.
            in_flight = read - done if popped is None else read - next_one + popped
            found.append(ConsumedQueue(queue, done, read, end, in_flight))
        return found

    def _look_at_times(self, topic: str, queues: Sequence[ConsumedQueue], border: int) -> list[int]:
        """Read when the messages were stored at which the group stands.

        Returns:
            The places in the log of those that were not read: they are unknown, and lie before ``border``.
        """
        cold: list[int] = []
        for queue in queues:
            if queue.done < queue.end:
                queue.oldest_lagging_ms = self._time(topic, queue.queue_id, queue.done, border, cold)
            if queue.read == queue.done:
                queue.oldest_ready_ms = queue.oldest_lagging_ms
            elif queue.read < queue.end:
                queue.oldest_ready_ms = self._time(topic, queue.queue_id, queue.read, border, cold)
        return cold

    def _time(self, topic: str, queue_id: int, offset: int, border: int, cold: list[int]) -> int:
        """When the first message from ``offset`` on that is still stored was stored; 0: it is not known."""
        stored = max(offset, self._store.min_offset(topic, queue_id))
        entry = self._store.entry(topic, queue_id, stored)
        if entry is None:
            return 0
        place = entry[0]
        found = self._times_now.get(place) or self._times.get(place)
        if found is None:
            if place < border:
                cold.append(place)
                return 0
            found = max(0, self._store.store_time(topic, queue_id, stored))
        self._times_now[place] = found
        return found

    def _is_system(self, topic: str, group: str) -> str:
        return str(self._topics.is_system(topic) or is_system_group(group)).lower()


class _QueueLag:
    """The two figures of each queue."""

    def __init__(self, text: Exposition) -> None:
        self._messages = text.family(
            "orbitmq_consumer_queue_lag_messages",
            "gauge",
            "Messages of the queue that the group has not done",
        )
        self._latency = text.family(
            "orbitmq_consumer_queue_lag_latency_milliseconds", "gauge", "Age of the oldest of these"
        )

    def add(self, group: str, topic: str, queues: Sequence[ConsumedQueue], now: int) -> None:
        for queue in queues:
            labels = {"consumer_group": group, "topic": topic, "queue_id": str(queue.queue_id)}
            self._messages.add(queue.lag, **labels)
            self._latency.add(_age(now, (queue.oldest_lagging_ms,)), **labels)


def _age(now: int, stored_ms: Iterable[int]) -> int:
    """The greatest age; a time of 0 means that there is no message."""
    oldest = min(filter(None, stored_ms), default=now)
    return max(0, now - oldest)
