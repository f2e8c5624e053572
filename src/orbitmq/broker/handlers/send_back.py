"""Messages that a consumer could not handle (AbstractSendMessageProcessor.consumerSendMsgBack)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler, reply_after
from orbitmq.broker.messaging.send_back import ReturnedMessage, SendBack
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import ConsumerSendMsgBackRequest


class SendBackHandlers(Family):
    """CONSUMER_SEND_MSG_BACK."""

    def __init__(self, send_back: SendBack) -> None:
        self._send_back = send_back

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, _connection: ServerConnection, command: Command) -> Answer:
        """Store a copy of the message for a later delivery."""
        header = ConsumerSendMsgBackRequest.from_ext(command.ext)
        returned = ReturnedMessage(
            group=header.group,
            offset=header.offset,
            delay_level=header.delay_level,
            delay_ms=header.delay_ms,
            max_reconsume_times=header.max_reconsume_times,
            unit_mode=header.unit_mode,
            version=command.version,
            reason=header.reason,
            client_id=header.client_id,
        )
        return reply_after(self._send_back.return_(returned), command)
