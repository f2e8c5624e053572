"""Offsets of groups and queues, and progress of groups (ConsumerManageProcessor, AdminBrokerProcessor)."""

from __future__ import annotations

import msgspec

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, reply_after
from orbitmq.broker.handlers.tables import encode_with_list, encode_with_table, encode_with_tables
from orbitmq.broker.inspection.progress import ConsumeProgress
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class OffsetHandlers(HandlerFamily):
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
        """The offset at which a group continues; a new group of a young queue begins at 0."""
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
        """Move a group to a time or an offset; its consumers get the new offset with their next pull."""
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
        """Move one group to the offsets of another, in one topic or in all."""
        header = headers.CloneGroupOffsetRequest.from_ext(command.ext)
        cloned = self._reset.clone(header.src_group, header.dest_group, header.topic, offline=header.offline)
        return reply_after(cloned, command)


class QueueBoundHandlers(HandlerFamily):
    """The bounds of queues, and searches by time."""

    def __init__(self, queues: QueueOffsets) -> None:
        self._queues = queues

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_MAX_OFFSET: self.maximum,
            RequestCode.GET_MIN_OFFSET: self.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def by_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset at or behind a time; with boundary ``upper`` the last one before it."""
        header = headers.SearchOffsetByTimestampRequest.from_ext(command.ext)
        upper = (header.boundary_type or "").lower() == "upper"
        offset = self._queues.at_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        made_at = self._queues.made_at(header.topic)
        return headers.SearchOffsetByTimestampResponse(offset=offset, made_at=made_at).reply_to(command)

    def maximum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The offset that the next message of a queue gets."""
        header = headers.GetMaxOffsetRequest.from_ext(command.ext)
        offset = self._queues.maximum(header.topic, header.queue_id)
        made_at = self._queues.made_at(header.topic)
        return headers.GetMaxOffsetResponse(offset=offset, made_at=made_at).reply_to(command)

    def minimum(self, _connection: ServerConnection, command: Command) -> Answer:
        """The first offset of a queue that is still stored."""
        header = headers.GetMinOffsetRequest.from_ext(command.ext)
        offset = self._queues.minimum(header.topic, header.queue_id)
        made_at = self._queues.made_at(header.topic)
        return headers.GetMinOffsetResponse(offset=offset, made_at=made_at).reply_to(command)

    def earliest_time(self, _connection: ServerConnection, command: Command) -> Answer:
        """When the first message of a queue was stored, -1 when there is none."""
        header = headers.GetEarliestMsgStoretimeRequest.from_ext(command.ext)
        timestamp = self._queues.earliest_time(header.topic, header.queue_id)
        return headers.GetEarliestMsgStoretimeResponse(timestamp=timestamp).reply_to(command)


class ProgressHandlers(HandlerFamily):
    """Statistics of consuming: offsets, lag and time spans."""

    def __init__(self, progress: ConsumeProgress) -> None:
        self._progress = progress

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offset,
        }

    async def consume_stats(self, _connection: ServerConnection, command: Command) -> Command:
        """A group's progress in each queue."""
        header = headers.GetConsumeStatsRequest.from_ext(command.ext)
        group = header.consumer_group
        if header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
            stats = await self._progress.of_group(group, topics)
        elif header.topic:
            stats = await self._progress.in_topic(group, header.topic)
        else:
            stats = await self._progress.of_group(group)
        body = ConsumeStats(consume_tps=stats.consume_tps)
        return command.reply(body=await encode_with_table(body, "offsetTable", stats.offset_table))

    async def all_consume_stats(self, _connection: ServerConnection, command: Command) -> Command:
        """Every group's progress in every topic; with ``isOrder`` only in ordered topics. A request with
        ``sumBy=topic`` gets the sums of each topic's queues instead.
        """
        only_order = headers.GetBrokerConsumeStatsRequest.from_ext(command.ext).is_order
        if command.ext.get("sumBy") == "topic":
            sums, body = await self._progress.sums(), ConsumeStatsList(sums={})
            # With names and numbers only, msgspec writes the same JSON as fastjson.
            return command.reply(body=await encode_with_table(body, "sums", sums, msgspec.json.encode))
        found = await self._progress.of_all_groups(only_order=only_order)
        groups, found.consume_stats_list = found.consume_stats_list, []
        items = ((group, 1 + sum(map(len, group.values()))) for group in groups)
        return command.reply(body=await encode_with_list(found, "consumeStatsList", items))

    def time_span(self, _connection: ServerConnection, command: Command) -> Answer:
        """Store times in each queue of a topic, and of the message that a group reads next."""
        header = headers.QueryConsumeTimeSpanRequest.from_ext(command.ext)
        spans = self._progress.time_spans(header.topic, header.group)
        return command.reply(body=QueryConsumeTimeSpanBody(spans).encode())

    async def correction_offset(self, _connection: ServerConnection, command: Command) -> Command:
        """The smallest offset of all groups in each queue; "never" where ``compareGroup`` is below it."""
        header = headers.QueryCorrectionOffsetRequest.from_ext(command.ext)
        without = (header.filter_groups or "").split(",")
        smallest = await self._progress.corrections(header.topic, header.compare_group, without)
        return command.reply(body=QueryCorrectionOffsetBody(correction_offsets=smallest).encode())
