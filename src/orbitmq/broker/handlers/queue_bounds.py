"""Offsets of queues: their bounds, and where a time is (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class QueueBoundHandlers(Family):
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
