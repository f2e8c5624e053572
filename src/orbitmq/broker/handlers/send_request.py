"""What sends and replies have in common on the wire."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.sending import Origin, SendRequest
from orbitmq.message import property_names
from orbitmq.message.properties import parse_properties
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageRequest, SendMessageResponse, SendMessageV2Request


def origin(connection: ServerConnection, command: Command) -> Origin:
    """Who sends."""
    return Origin(connection.remote, command.version)


def send_request(command: Command) -> SendRequest:
    """What is sent, from the long or the short names of its header."""
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
