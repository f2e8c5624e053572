"""Offsets: of groups, and of queues (ConsumerManageProcessor, AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.topics import MAX_QUEUES
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import decode_record
from orbitmq.store import GetStatus
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import fastjson
from orbitmq.wire.bodies import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Language
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    CloneGroupOffsetRequest,
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    InvokeBrokerToResetOffsetRequest,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    ResetConsumerClientOffsetRequest,
    SearchOffsetByTimestampRequest,
    SearchOffsetByTimestampResponse,
    UpdateConsumerOffsetRequest,
)

# A queue whose first message is this near to the log's end is young: a new group reads it from the start.
# RocketMQ asks whether it is still in memory (accessMessageInMemoryMaxRatio, 40 % of the machine's).
YOUNG_BYTES = 3 << 30


class OffsetHandlers(Family):
    """Committed offsets, and the bounds of queues."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_MAX_OFFSET: self.maximum,
            RequestCode.GET_MIN_OFFSET: self.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def query(self, _connection: ServerConnection, command: Command) -> Answer:
        """Where a group goes on; a new group of a young queue begins at 0."""
        header = QueryConsumerOffsetRequest.from_ext(command.ext)
        offset = self._services.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None or offset < 0:
            if header.set_zero_if_not_found is False:
                return command.reply(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
                )
            if not self._is_young(header.topic, header.queue_id):
                return command.reply(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
                )
            offset = 0
        return QueryConsumerOffsetResponse(offset=offset).reply_to(command)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        config = self._services.topics.get(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return False
        store = self._services.store
        if store.min_offset(topic, queue_id) > 0:
            return False
        first = store.get(topic, queue_id, 0, 1)
        if first.status is not GetStatus.FOUND:
            return False
        return store.max_commit_log_offset - decode_record(first.body).physical_offset <= YOUNG_BYTES

    def update(self, _connection: ServerConnection, command: Command) -> Answer:
        """Commit a group's offset."""
        header = UpdateConsumerOffsetRequest.from_ext(command.ext)
        services = self._services
        if header.consumer_group not in services.groups:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!"
            )
        if header.topic not in services.topics:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if not 0 <= header.queue_id < MAX_QUEUES or header.commit_offset < 0:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {header.queue_id}, commitOffset {header.commit_offset}: "
                f"expected 0 to {MAX_QUEUES - 1}, and not below 0",
            )
        if services.offsets.has_reset(header.consumer_group, header.topic, header.queue_id):
            return command.reply(ResponseCode.SUCCESS, "Offset has been previously reset")
        services.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return command.reply()

    def by_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset at or behind a time; with boundary ``upper`` the last one before it."""
        header = SearchOffsetByTimestampRequest.from_ext(command.ext)
        self.queue(header.topic, header.queue_id)
        upper = (header.boundary_type or "").lower() == "upper"
        offset = self._services.store.offset_by_time(
            header.topic, header.queue_id, header.timestamp, upper=upper
        )
        return SearchOffsetByTimestampResponse(offset=offset).reply_to(command)

    def maximum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The offset that the next message of a queue gets."""
        header = GetMaxOffsetRequest.from_ext(command.ext)
        self.queue(header.topic, header.queue_id)
        offset = self._services.store.max_offset(header.topic, header.queue_id)
        return GetMaxOffsetResponse(offset=offset).reply_to(command)

    def minimum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset of a queue that is still stored."""
        header = GetMinOffsetRequest.from_ext(command.ext)
        self.queue(header.topic, header.queue_id)
        offset = self._services.store.min_offset(header.topic, header.queue_id)
        return GetMinOffsetResponse(offset=offset).reply_to(command)

    def earliest_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """When the first message of a queue was stored, -1 when there is none."""
        header = GetEarliestMsgStoretimeRequest.from_ext(command.ext)
        self.queue(header.topic, header.queue_id)
        store = self._services.store
        first = store.min_offset(header.topic, header.queue_id)
        timestamp = store.store_time(header.topic, header.queue_id, first)
        return GetEarliestMsgStoretimeResponse(timestamp=timestamp).reply_to(command)

    def all_offsets(self, _connection: ServerConnection, command: Command) -> Answer:
        """The whole table, as ``consumerOffset.json`` holds it."""
        return command.reply(body=fastjson.dumps(self._services.offsets.snapshot()))

    def reset(self, _connection: ServerConnection, command: Command) -> Answer:
        """Move a group to a time or an offset; its consumers learn it with their next pull."""
        header = InvokeBrokerToResetOffsetRequest.from_ext(command.ext)
        services = self._services
        topic = self.topic(header.topic)
        if not services.config.server_side_reset_offset:
            return self._reset_in_clients(command, header, topic.write_queue_nums)
        if header.group not in services.groups:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        if header.queue_id >= 0:
            self.queue(header.topic, header.queue_id)
            queue_ids = [header.queue_id]
        else:
            queue_ids = list(range(topic.read_queue_nums))
        table: dict[MessageQueue, int] = {}
        for queue_id in queue_ids:
            offset = self._reset_target(header, queue_id)
            table[MessageQueue(header.topic, services.config.broker_name, queue_id)] = offset
        for queue, offset in table.items():
            services.offsets.reset(header.group, header.topic, queue.queue_id, offset)
        return command.reply(body=ResetOffsetBody(offset_table=table).encode())

    def _reset_in_clients(
        self, command: Command, header: InvokeBrokerToResetOffsetRequest, queues: int
    ) -> Command:
        """Let the group's consumers move (Broker2Client.resetOffset); without ``isForce`` only back."""
        services = self._services
        store = services.store
        table: dict[MessageQueue, int] = {}
        for queue_id in range(queues):
            consumed = services.offsets.query(header.group, header.topic, queue_id)
            if consumed is None:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR, f"The consumer group <{header.group}> not exist"
                )
            if header.timestamp == -1:
                target = store.max_offset(header.topic, queue_id)
            else:
                target = store.offset_by_time(header.topic, queue_id, header.timestamp)
            offset = target if header.is_force else min(target, consumed)
            table[MessageQueue(header.topic, services.config.broker_name, queue_id)] = offset
        group = services.clients.consumers(header.group)
        if group is None:
            raise RemotingError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        request = ResetConsumerClientOffsetRequest(
            group=header.group, topic=header.topic, timestamp=header.timestamp, is_force=header.is_force
        )
        for client in group.members.values():
            client.peer.oneway(request.command(_reset_body(table, client.language)))
        return command.reply(body=ResetOffsetBody(offset_table=table).encode())

    def _reset_target(self, header: InvokeBrokerToResetOffsetRequest, queue_id: int) -> int:
        store = self._services.store
        low, high = store.min_offset(header.topic, queue_id), store.max_offset(header.topic, queue_id)
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            if not low <= header.offset <= high:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
                )
            return header.offset
        if header.timestamp < 0:
            return high
        return store.offset_by_time(header.topic, queue_id, header.timestamp)

    def clone(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give one group the offsets of another, in one topic or in all."""
        header = CloneGroupOffsetRequest.from_ext(command.ext)
        services = self._services
        offsets = services.offsets
        topics = [header.topic] if header.topic else sorted(offsets.topics_of(header.src_group))
        online = services.clients.consumers(header.src_group)
        for topic in topics:
            # An online group's offsets of topics that it no longer reads are left where they are.
            left = not header.offline and online is not None and topic not in online.subscriptions
            if topic in services.topics and not left:
                offsets.clone(header.src_group, header.dest_group, topic)
        return command.reply()


def _reset_body(table: dict[MessageQueue, int], language: int) -> bytes:
    """The new offsets, for C++ clients as a list: their JSON has no objects as keys."""
    if language != Language.CPP:
        return ResetOffsetBody(offset_table=table).encode()
    listed = [
        MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, to) for queue, to in table.items()
    ]
    return ResetOffsetBodyForC(offset_table=listed).encode()
