"""Replies over the wire (ReplyMessageProcessor)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler, answer_with
from orbitmq.broker.handlers.send_request import origin, response_fields, send_request
from orbitmq.broker.messaging.reply import Replied, Reply
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageResponse


class ReplyHandlers(Family):
    """SEND_REPLY_MESSAGE in its two forms."""

    def __init__(self, config: BrokerConfig, reply: Reply) -> None:
        self._config = config
        self._reply = reply

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, connection: ServerConnection, command: Command) -> Answer:
        """Hand a reply to the client that asked; the answer says whether that client took it."""
        replied = self._reply.reply(origin(connection, command), send_request(command))
        return answer_with(replied, partial(self._replied, command))

    def _replied(self, command: Command, replied: Replied) -> Command:
        response = SendMessageResponse(
            msg_id=replied.message_id, queue_id=replied.queue_id, queue_offset=replied.queue_offset
        )
        code = ResponseCode.SUCCESS if replied.failure is None else ResponseCode.SYSTEM_ERROR
        return command.reply(code, replied.failure, response_fields(self._config, response))
