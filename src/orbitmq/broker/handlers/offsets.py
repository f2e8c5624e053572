"""Offsets: of groups, and of queues (ConsumerManageProcessor, AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import fastjson, headers
from orbitmq.wire.bodies import ResetOffsetBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class OffsetHandlers(Family):
    """Committed offsets, and the bounds of queues."""

    def __init__(self, offsets: ConsumerOffsets, queues: QueueOffsets, reset: GroupReset) -> None:
        self._offsets = offsets
        self._queues = queues
        self._reset = reset

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
        header = headers.QueryConsumerOffsetRequest.from_ext(command.ext)
        zero = header.set_zero_if_not_found is not False
        offset = self._queues.start(header.consumer_group, header.topic, header.queue_id, zero_if_young=zero)
        return headers.QueryConsumerOffsetResponse(offset=offset).reply_to(command)

    def update(self, _connection: ServerConnection, command: Command) -> Answer:
        """Commit a group's offset."""
        header = headers.UpdateConsumerOffsetRequest.from_ext(command.ext)
        if self._queues.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset):
            return command.reply()
        return command.reply(ResponseCode.SUCCESS, "Offset has been previously reset")

    def by_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset at or behind a time; with boundary ``upper`` the last one before it."""
        header = headers.SearchOffsetByTimestampRequest.from_ext(command.ext)
        upper = (header.boundary_type or "").lower() == "upper"
        offset = self._queues.at_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        return headers.SearchOffsetByTimestampResponse(offset=offset).reply_to(command)

    def maximum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The offset that the next message of a queue gets."""
        header = headers.GetMaxOffsetRequest.from_ext(command.ext)
        offset = self._queues.maximum(header.topic, header.queue_id)
        return headers.GetMaxOffsetResponse(offset=offset).reply_to(command)

    def minimum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset of a queue that is still stored."""
        header = headers.GetMinOffsetRequest.from_ext(command.ext)
        offset = self._queues.minimum(header.topic, header.queue_id)
        return headers.GetMinOffsetResponse(offset=offset).reply_to(command)

    def earliest_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """When the first message of a queue was stored, -1 when there is none."""
        header = headers.GetEarliestMsgStoretimeRequest.from_ext(command.ext)
        timestamp = self._queues.earliest_time(header.topic, header.queue_id)
        return headers.GetEarliestMsgStoretimeResponse(timestamp=timestamp).reply_to(command)

    def all_offsets(self, _connection: ServerConnection, command: Command) -> Answer:
        """The whole table, as ``consumerOffset.json`` holds it."""
        offsets = self._offsets
        table = {"dataVersion": offsets.version.to_plain(), "offsetTable": offsets.kept_table()}
        return command.reply(body=fastjson.dumps(table))

    def reset(self, _connection: ServerConnection, command: Command) -> Answer:
        """Move a group to a time or an offset; its consumers learn it with their next pull."""
        header = headers.InvokeBrokerToResetOffsetRequest.from_ext(command.ext)
        table = self._reset.move(
            header.group,
            header.topic,
            queue_id=header.queue_id,
            offset=header.offset,
            timestamp_ms=header.timestamp,
            force=header.is_force,
        )
        return command.reply(body=ResetOffsetBody(offset_table=table).encode())

    def clone(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give one group the offsets of another, in one topic or in all."""
        header = headers.CloneGroupOffsetRequest.from_ext(command.ext)
        self._reset.clone(header.src_group, header.dest_group, header.topic, offline=header.offline)
        return command.reply()
