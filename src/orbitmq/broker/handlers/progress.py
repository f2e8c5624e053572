"""How far groups are, in offsets and in time (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.tables import encode_with_list, encode_with_table
from orbitmq.broker.inspection.progress import ConsumeProgress
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import ConsumeStats, QueryConsumeTimeSpanBody, QueryCorrectionOffsetBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class ProgressHandlers(Family):
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
        """How far a group is in each queue."""
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
        """How far every group is in every topic; with ``isOrder`` only in ordered topics."""
        only_order = headers.GetBrokerConsumeStatsRequest.from_ext(command.ext).is_order
        found = await self._progress.of_all_groups(only_order=only_order)
        groups, found.consume_stats_list = found.consume_stats_list, []
        items = ((group, 1 + sum(map(len, group.values()))) for group in groups)
        return command.reply(body=await encode_with_list(found, "consumeStatsList", items))

    def time_span(self, _connection: ServerConnection, command: Command) -> Answer:
        """Of when the messages of a topic are, and how far in time a group is."""
        header = headers.QueryConsumeTimeSpanRequest.from_ext(command.ext)
        spans = self._progress.time_spans(header.topic, header.group)
        return command.reply(body=QueryConsumeTimeSpanBody(spans).encode())

    async def correction_offset(self, _connection: ServerConnection, command: Command) -> Command:
        """The smallest offset of all groups in each queue; "never" where ``compareGroup`` is behind it."""
        header = headers.QueryCorrectionOffsetRequest.from_ext(command.ext)
        without = (header.filter_groups or "").split(",")
        smallest = await self._progress.corrections(header.topic, header.compare_group, without)
        return command.reply(body=QueryCorrectionOffsetBody(correction_offsets=smallest).encode())
