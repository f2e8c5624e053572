"""Sending over the wire (SendMessageProcessor)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import REMARKS, RESPONSE_CODES
from orbitmq.broker.handlers.base import Answer, Family, Handler, answer_with
from orbitmq.broker.handlers.send_request import origin, response_fields, send_request
from orbitmq.broker.messaging.sending import Sending, Stored
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageResponse


class SendHandlers(Family):
    """SEND_MESSAGE in its three forms."""

    def __init__(self, config: BrokerConfig, sending: Sending) -> None:
        self._config = config
        self._sending = sending

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: ServerConnection, command: Command) -> Answer:
        """Store what the request carries; the answer waits for the device when it has to."""
        sent = self._sending.send(origin(connection, command), send_request(command))
        return answer_with(sent, partial(self._stored, command))

    def _stored(self, command: Command, stored: Stored) -> Command:
        response = SendMessageResponse(
            msg_id=stored.message_id,
            queue_id=stored.queue_id,
            queue_offset=stored.queue_offset,
            transaction_id=stored.transaction_id,
            recall_handle=stored.recall_handle,
        )
        status = stored.status
        return command.reply(
            RESPONSE_CODES[status], REMARKS.get(status), ext=response_fields(self._config, response)
        )
