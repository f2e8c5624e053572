"""Looking at single messages (QueryMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import ViewMessageByIdRequest


class QueryHandlers(Family):
    """Messages by their place in the log."""

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.VIEW_MESSAGE_BY_ID: self.by_id}

    def by_id(self, _connection: ServerConnection, command: Command) -> Answer:
        """The record at a commit log offset."""
        offset = ViewMessageByIdRequest.from_ext(command.ext).offset
        record = self._services.store.record_at(offset)
        if record is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return command.reply(body=record)
