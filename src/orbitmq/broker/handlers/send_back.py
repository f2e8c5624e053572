"""Messages that a consumer could not handle: later again, or in the end a dead letter."""

from __future__ import annotations

import logging

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.message import property_names, reserved
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage, PutResult, PutStatus, StoreClosedError
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import ConsumerSendMsgBackRequest
from orbitmq.wire.versions import V3_4_9

log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1


class SendBackHandlers(Family):
    """CONSUMER_SEND_MSG_BACK (AbstractSendMessageProcessor.consumerSendMsgBack)."""

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, _connection: ServerConnection, command: Command) -> Answer:
        """Store a copy of the message for a later delivery (behaviours SB-01 to SB-13, DQ-01 to DQ-05)."""
        return self._send_back(command, ConsumerSendMsgBackRequest.from_ext(command.ext))

    async def _send_back(self, command: Command, header: ConsumerSendMsgBackRequest) -> Command:
        group = self._group(header.group)
        if group.retry_queue_nums <= 0:
            return command.reply()
        retry = await self._topic(
            reserved.retry_topic(header.group),
            group.retry_queue_nums,
            reserved.TOPIC_FLAG_UNIT_SUB if header.unit_mode else 0,
        )
        record = self._record(header.offset)
        limit = max_reconsume_times(group, command.version, header.max_reconsume_times)
        properties = self._properties(record)
        if record.reconsume_times >= limit or header.delay_level < 0:
            dead = await self._topic(reserved.dead_letter_topic(header.group), DEAD_LETTER_QUEUES)
            properties[property_names.DELAY] = "0"
            copy = self._copy(record, properties, dead.topic_name, 0)
            log.info(
                "message %s of group %s is a dead letter after %d deliveries",
                properties[property_names.ORIGIN_MESSAGE_ID], header.group, record.reconsume_times + 1,
            )  # fmt: skip
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            properties[property_names.DELAY] = str(level)
            # A retry topic made earlier may have fewer queues than the group has by now.
            queues = max(1, min(group.retry_queue_nums, retry.write_queue_nums))
            queue_id = self._services.runtime.random.randrange(queues)
            copy = self._copy(record, properties, retry.topic_name, queue_id)
        await self._stored(copy, properties)
        return command.reply()

    def _group(self, name: str) -> SubscriptionGroupConfig:
        services = self._services
        config = services.config
        if config.is_slave:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"no master available along with {config.broker_ip1}"
            )
        group = self.group(name)
        if not config.writable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        return group

    async def _topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        config = await self.inner_topic(name, queues, sys_flag)
        if not config.perm & reserved.PERM_WRITE:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return config

    def _record(self, offset: int) -> Record:
        stored = self._services.store.record_at(offset)
        if stored is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        try:
            return decode_record(stored)
        except MessageFormatError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}: {error}"
            ) from error

    def _properties(self, record: Record) -> dict[str, str]:
        properties = decode_properties(record.properties)
        properties.setdefault(property_names.RETRY_TOPIC, record.topic)
        properties.setdefault(property_names.ORIGIN_MESSAGE_ID, record.message_id)
        properties[property_names.WAIT] = "false"
        return properties

    def _copy(self, record: Record, properties: dict[str, str], topic: str, queue_id: int) -> NewMessage:
        return NewMessage(
            topic,
            queue_id,
            record.body,
            encode_properties(properties),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times + 1,
            tags_code=tags_code(properties.get(property_names.TAGS)),
        )

    async def _stored(self, copy: NewMessage, properties: dict[str, str]) -> None:
        """Store the copy. The consumer counts the message as handled on success, so the device has it then.

        Raises:
            RemotingError: SYSTEM_ERROR; the consumer then uses a normal send to the retry topic.
        """
        services = self._services
        try:
            result: PutResult = services.putter.put_many([services.schedule.levels.delayed(copy, properties)])
            status = await services.putter.stored(result)
        except (RemotingError, StoreClosedError) as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if status is not PutStatus.OK:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, status.value)


def max_reconsume_times(group: SubscriptionGroupConfig, version: int, requested: int | None) -> int:
    """How often a message may be delivered again (behaviour SB-05).

    Args:
        version: the client's protocol version: from 3.4.9 on the request's own number counts.
    """
    return requested if requested is not None and version >= V3_4_9 else group.retry_max_times
