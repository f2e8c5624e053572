"""Offsets of groups: commit, ask, reset (ConsumerManageProcessor, AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler, reply_after
from orbitmq.broker.handlers.tables import encode_with_tables
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import ConsumerOffsetSerializeWrapper, ResetOffsetBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class OffsetHandlers(Family):
    """Committed offsets."""

    def __init__(self, offsets: ConsumerOffsets, queues: QueueOffsets, reset: GroupReset) -> None:
        self._offsets = offsets
        self._queues = queues
        self._reset = reset

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def query(self, _connection: ServerConnection, command: Command) -> Answer:
        """Where a group goes on; a new group of a young queue begins at 0."""
        header = headers.QueryConsumerOffsetRequest.from_ext(command.ext)
        zero = header.set_zero_if_not_found is not False
        offset = self._queues.start(header.consumer_group, header.topic, header.queue_id, zero_if_young=zero)
        made_at = self._queues.made_at(header.topic)
        return headers.QueryConsumerOffsetResponse(offset=offset, made_at=made_at).reply_to(command)

    def update(self, _connection: ServerConnection, command: Command) -> Answer:
        """Commit a group's offset."""
        header = headers.UpdateConsumerOffsetRequest.from_ext(command.ext)
        if self._queues.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset):
            return command.reply()
        return command.reply(ResponseCode.SUCCESS, "Offset has been previously reset")

    async def all_offsets(self, _connection: ServerConnection, command: Command) -> Command:
        """The whole table, as ``consumerOffset.json`` holds it."""
        offsets = self._offsets
        body = ConsumerOffsetSerializeWrapper(data_version=offsets.version)
        encoded = await encode_with_tables(body, offsetTable=(offsets.table(), offsets.kept_queues))
        return command.reply(body=encoded)

    async def reset(self, _connection: ServerConnection, command: Command) -> Command:
        """Move a group to a time or an offset; its consumers learn it with their next pull."""
        header = headers.InvokeBrokerToResetOffsetRequest.from_ext(command.ext)
        table = await self._reset.move(
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
        cloned = self._reset.clone(header.src_group, header.dest_group, header.topic, offline=header.offline)
        return reply_after(cloned, command)
