"""Reads the bounds of queues and the entries of a consume queue (AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.statistics import TOPIC_PUT_NUMS, Stats
from orbitmq.message.model import MessageQueue
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.stats import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

MAX_ENTRIES = 10_000


class QueueInspection:
    """Bounds and entries of queues, for administrators."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        clients: ClientManager,
        store: MessageStore,
        stats: Stats,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._clients = clients
        self._store = store
        self._stats = stats

    def topic_stats(self, topic: str) -> TopicStatsTable:
        """Bounds and last change of each queue of a topic.

        Raises:
            RemotingError: TOPIC_NOT_EXIST.
        """
        config = self._metadata.topic(topic)
        store = self._store
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            high = store.max_offset(topic, queue_id)
            table[MessageQueue(topic, self._config.broker_name, queue_id)] = TopicOffset(
                min_offset=max(0, store.min_offset(topic, queue_id)),
                max_offset=max(0, high),
                last_update_timestamp=store.store_time(topic, queue_id, high - 1) if high > 0 else 0,
            )
        rate = self._stats.per_second(TOPIC_PUT_NUMS, topic)
        return TopicStatsTable(offset_table=table, topic_put_tps=rate)

    def consume_queue(
        self, topic: str, queue_id: int, index: int, count: int, group: str | None
    ) -> tuple[QueryConsumeQueueResponseBody, str | None]:
        """Entries of a consume queue as they are stored, and a remark when there is none at ``index``.

        Args:
            group: the group whose subscription is added to the entries.

        Raises:
            RemotingError: SYSTEM_ERROR, there is no such queue.
        """
        store = self._store
        if not store.has_queue(topic, queue_id):
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=low)
        if group is not None:
            body.subscription_data = self._clients.subscription(group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{group}@{topic} is not online!"
        if not low <= index < high:
            return body, f"Index {index} of {queue_id}@{topic} is not exist!"
        last = min(high, index + min(max(count, 0), MAX_ENTRIES))
        body.queue_data = list(self._entries(topic, queue_id, range(index, last)))
        return body, None

    def _entries(self, topic: str, queue_id: int, offsets: Iterable[int]) -> Iterable[ConsumeQueueData]:
        for offset in offsets:
            entry = self._store.entry(topic, queue_id, offset)
            if entry is not None:
                yield ConsumeQueueData(physic_offset=entry[0], physic_size=entry[1], tags_code=entry[2])
