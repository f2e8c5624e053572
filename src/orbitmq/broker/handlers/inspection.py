"""Looking closely: statistics, entries of a consume queue (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.inspection.queues import QueueInspection
from orbitmq.broker.statistics import Stats
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class InspectionHandlers(Family):
    """Questions that change nothing."""

    def __init__(self, stats: Stats, queues: QueueInspection) -> None:
        self._stats = stats
        self._queues = queues

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.QUERY_CONSUME_QUEUE: self.consume_queue,
        }

    async def stats(self, _connection: ServerConnection, command: Command) -> Command:
        """One number over the last minute, hour and day; known from the first message on."""
        header = headers.ViewBrokerStatsDataRequest.from_ext(command.ext)
        await self._stats.look()
        data = self._stats.view(header.stats_name, header.stats_key)
        if data is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return command.reply(body=data.encode())

    def topic_stats(self, _connection: ServerConnection, command: Command) -> Answer:
        """Bounds and last change of each queue of a topic."""
        topic = headers.GetTopicStatsInfoRequest.from_ext(command.ext).topic
        return command.reply(body=self._queues.topic_stats(topic).encode())

    def consume_queue(self, _connection: ServerConnection, command: Command) -> Answer:
        """Entries of a consume queue as they are stored."""
        header = headers.QueryConsumeQueueRequest.from_ext(command.ext)
        body, remark = self._queues.consume_queue(
            header.topic or "", header.queue_id, header.index, header.count, header.consumer_group
        )
        return command.reply(remark=remark, body=body.encode())
