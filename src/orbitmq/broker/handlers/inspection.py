"""Looking closely: statistics, time spans, entries of a consume queue (AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.statistics import Stats
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    QueryConsumeQueueRequest,
    QueryConsumeTimeSpanRequest,
    QueryCorrectionOffsetRequest,
    ViewBrokerStatsDataRequest,
)

MAX_ENTRIES = 10_000
_FAR_AHEAD = 2**63 - 1


class InspectionHandlers(Family):
    """Questions that change nothing."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        metadata: MetadataAccess,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
        stats: Stats,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._metadata = metadata
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._stats = stats

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_CONSUME_QUEUE: self.consume_queue,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offset,
        }

    def stats(self, _connection: ServerConnection, command: Command) -> Answer:
        """One number over the last minute, hour and day."""
        header = ViewBrokerStatsDataRequest.from_ext(command.ext)
        data = self._stats.view(header.stats_name, header.stats_key)
        if data is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return command.reply(body=data.encode())

    def time_span(self, _connection: ServerConnection, command: Command) -> Answer:
        """Of when the messages of a topic are, and how far in time a group is."""
        header = QueryConsumeTimeSpanRequest.from_ext(command.ext)
        queues = range(self._metadata.topic(header.topic).write_queue_nums)
        body = QueryConsumeTimeSpanBody([self._span(header.topic, header.group, q) for q in queues])
        return command.reply(body=body.encode())

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        high = store.max_offset(topic, queue_id)
        first = store.store_time(topic, queue_id, store.min_offset(topic, queue_id))
        consumed = self._offsets.query(group, topic, queue_id) or 0
        delay = 0
        if consumed < high:
            next_time = store.store_time(topic, queue_id, max(consumed, store.min_offset(topic, queue_id)))
            delay = self._runtime.clock.now_ms() - next_time if next_time >= 0 else 0
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._config.broker_name, queue_id),
            min_time_stamp=first,
            max_time_stamp=store.store_time(topic, queue_id, high - 1),
            consume_time_stamp=store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first,
            delay_time=delay,
        )

    def consume_queue(self, _connection: ServerConnection, command: Command) -> Answer:
        """Entries of a consume queue as they are stored."""
        header = QueryConsumeQueueRequest.from_ext(command.ext)
        topic = header.topic or ""
        store = self._store
        if store.queues.slot(topic, header.queue_id) < 0:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!")
        low, high = store.min_offset(topic, header.queue_id), store.max_offset(topic, header.queue_id)
        body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=low)
        if header.consumer_group is not None:
            body.subscription_data = self._clients.subscription(header.consumer_group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group}@{topic} is not online!"
        if not low <= header.index < high:
            remark = f"Index {header.index} of {header.queue_id}@{topic} is not exist!"
            return command.reply(remark=remark, body=body.encode())
        last = min(high, header.index + min(max(header.count, 0), MAX_ENTRIES))
        body.queue_data = list(self._entries(topic, header.queue_id, range(header.index, last)))
        return command.reply(body=body.encode())

    def _entries(self, topic: str, queue_id: int, offsets: Iterable[int]) -> Iterable[ConsumeQueueData]:
        for offset in offsets:
            entry = self._store.entry(topic, queue_id, offset)
            if entry is not None:
                yield ConsumeQueueData(physic_offset=entry[0], physic_size=entry[1], tags_code=entry[2])

    def correction_offset(self, _connection: ServerConnection, command: Command) -> Answer:
        """The smallest offset of all groups in each queue; "never" where ``compareGroup`` is behind it."""
        header = QueryCorrectionOffsetRequest.from_ext(command.ext)
        offsets = self._offsets
        left_out = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for group in offsets.groups_of(header.topic) - left_out:
            for queue_id, offset in offsets.queues(group, header.topic).items():
                if offset >= self._store.min_offset(header.topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in offsets.queues(header.compare_group, header.topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = _FAR_AHEAD
        return command.reply(body=QueryCorrectionOffsetBody(correction_offsets=smallest).encode())
