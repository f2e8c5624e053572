"""Sends, replies and messages sent back by consumers (SendMessageProcessor, ReplyMessageProcessor)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import REMARKS, RESPONSE_CODES
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, answer_with, reply_after
from orbitmq.broker.messaging.reply import Replied, Reply
from orbitmq.broker.messaging.send_back import ReturnedMessage, SendBack
from orbitmq.broker.messaging.sending import Origin, Sending, SendRequest, Stored
from orbitmq.message import property_names
from orbitmq.message.properties import parse_properties
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import (
    ConsumerSendMsgBackRequest,
    SendMessageRequest,
    SendMessageResponse,
    SendMessageV2Request,
)


def origin(connection: ServerConnection, command: Command) -> Origin:
    """The client that sends."""
    return Origin(connection.remote, command.version)


def send_request(command: Command) -> SendRequest:
    """The request for :class:`Sending`, from a header with long or short field names."""
    long_names = command.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    header = (SendMessageRequest if long_names else SendMessageV2Request).from_ext(command.ext)
    return SendRequest(
        topic=header.topic,
        body=command.body,
        properties=parse_properties(header.properties or ""),
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        reconsume_times=header.reconsume_times or 0,
        max_reconsume_times=header.max_reconsume_times,
        producer_group=header.producer_group,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        unit_mode=header.unit_mode or False,
        batch=header.batch or False,
    )


def response_fields(config: BrokerConfig, response: SendMessageResponse) -> dict[str, str]:
    """The header fields of an answer, with those that RocketMQ adds to each."""
    ext = response.to_ext()
    ext[property_names.MSG_REGION] = config.region_id
    ext[property_names.TRACE_ON] = "true" if config.trace_on else "false"
    return ext


class SendHandlers(HandlerFamily):
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
        """Store the request's message; the answer waits for the device if it has to."""
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


class ReplyHandlers(HandlerFamily):
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
        """Push a reply to the client that made the request; the answer shows whether the client got it."""
        replied = self._reply.reply(origin(connection, command), send_request(command))
        return answer_with(replied, partial(self._replied, command))

    def _replied(self, command: Command, replied: Replied) -> Command:
        response = SendMessageResponse(
            msg_id=replied.message_id, queue_id=replied.queue_id, queue_offset=replied.queue_offset
        )
        code = ResponseCode.SUCCESS if replied.failure is None else ResponseCode.SYSTEM_ERROR
        return command.reply(code, replied.failure, response_fields(self._config, response))


class SendBackHandlers(HandlerFamily):
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
            message_id=header.origin_msg_id,
            reason=header.reason,
            client_id=header.client_id,
        )
        return reply_after(self._send_back.return_(returned), command)
