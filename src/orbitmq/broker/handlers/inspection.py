"""Statistics, consume queues, single messages (AdminBrokerProcessor)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, answer_with
from orbitmq.broker.inspection.messages import FoundMessages, MessageLookup
from orbitmq.broker.inspection.queues import QueueInspection
from orbitmq.broker.statistics import Stats
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.pull import QueryMessageRequest, QueryMessageResponse, ViewMessageByIdRequest


class InspectionHandlers(HandlerFamily):
    """Requests that only read."""

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
        """One number of the statistics over the last minute, hour and day, from the first message on."""
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


# The header field that marks the key as a unique id (MixAll.UNIQUE_MSG_QUERY_FLAG).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryHandlers(HandlerFamily):
    """Messages by their keys and by their place in the log."""

    def __init__(self, lookup: MessageLookup) -> None:
        self._lookup = lookup

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_id,
        }

    def by_key(self, _connection: ServerConnection, command: Command) -> Answer:
        """The newest messages of a topic with a key, or with a unique id, stored in a range of time."""
        header = QueryMessageRequest.from_ext(command.ext)
        found = self._lookup.by_key(
            header.topic,
            header.key,
            header.begin_timestamp,
            header.end_timestamp,
            header.max_num,
            unique=command.ext.get(UNIQUE_KEY_QUERY) == "true",
        )
        return answer_with(found, partial(_found, command))

    def by_id(self, _connection: ServerConnection, command: Command) -> Answer:
        """The record at a commit log offset."""
        return command.reply(body=self._lookup.by_offset(ViewMessageByIdRequest.from_ext(command.ext).offset))


def _found(command: Command, found: FoundMessages) -> Command:
    response = QueryMessageResponse(
        index_last_update_timestamp=found.index_time_ms, index_last_update_phyoffset=found.index_offset
    )
    if not found.records:
        remark = "can not find message, maybe time range not correct"
        return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext=response.to_ext())
    return response.reply_to(command, body=found.records)
