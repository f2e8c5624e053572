"""Sending: one message, or a batch (SendMessageProcessor)."""

from __future__ import annotations

from inspect import isawaitable

import msgspec

from orbitmq.broker import names
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.send_back import DEAD_LETTER_QUEUES, max_reconsume_times
from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.batch import iter_batch
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.properties import (
    MAX_PROPERTIES_BYTES,
    decode_properties,
    encode_properties,
    parse_properties,
    properties_text,
)
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage, PutResult, PutStatus
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import TopicConfig, TopicFilterType
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import SendMessageRequest, SendMessageResponse, SendMessageV2Request

Header = SendMessageRequest | SendMessageV2Request


class SendHandlers(Family):
    """SEND_MESSAGE in its three forms."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: ServerConnection, command: Command) -> Answer:
        """Store what the request carries; the answer waits for the device when it has to."""
        kind = SendMessageRequest if command.code == RequestCode.SEND_MESSAGE else SendMessageV2Request
        header: Header = kind.from_ext(command.ext)
        self._check(header, command)
        if (
            header.topic.startswith(reserved.RETRY_PREFIX)
            and not header.batch
            and self._is_dead(header, command)
        ):
            return self._send_dead_letter(connection, command, header)
        config = self._services.topics.get(header.topic)
        if config is None or not self._services.persistence.saved(TOPICS, header.topic):
            return self._send_to_new_topic(connection, command, header)
        return self._store(connection, command, header, config)

    def _check(self, header: Header, command: Command) -> None:
        config = self._services.config
        if config.is_slave:
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave",
            )
        if not config.writable and self._services.topics.is_order(header.topic):
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        names.check_topic(header.topic)
        if header.topic in reserved.FORBIDDEN_SEND_TOPICS:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden."
            )
        size = len(command.body)
        if not size:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        if size > config.body_limit:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: body of {size} bytes, limit maxMessageSize "
                f"{config.body_limit} bytes",
            )

    def _is_dead(self, header: Header, command: Command) -> bool:
        """Whether a message sent to a retry topic goes to the dead letters (behaviours SB-14, SB-16).

        So does every message of a group that consumes in order: it sends one when it has given up.
        """
        name = header.topic.removeprefix(reserved.RETRY_PREFIX)
        limit = max_reconsume_times(self.group(name), command.version, header.max_reconsume_times)
        return (header.reconsume_times or 0) > limit or self._services.locks.any_held(name)

    async def _send_dead_letter(
        self, connection: ServerConnection, command: Command, header: Header
    ) -> Command | None:
        name = header.topic.removeprefix(reserved.RETRY_PREFIX)
        config = await self.inner_topic(reserved.dead_letter_topic(name), DEAD_LETTER_QUEUES)
        properties = parse_properties(header.properties or "")
        properties[property_names.DELAY] = "-1"
        moved = msgspec.structs.replace(
            header, topic=config.topic_name, queue_id=0, properties=properties_text(properties)
        )
        answer = self._store(connection, command, moved, config)
        return await answer if isawaitable(answer) else answer

    async def _send_to_new_topic(
        self, connection: ServerConnection, command: Command, header: Header
    ) -> Command | None:
        config = self._create_topic(header)
        # The message must not outlive the topic's config in a crash.
        await self.save(TOPICS)
        answer = self._store(connection, command, header, config)
        return await answer if isawaitable(answer) else answer

    def _create_topic(self, header: Header) -> TopicConfig:
        topics = self._services.topics
        is_retry = header.topic.startswith(reserved.RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = reserved.TOPIC_FLAG_UNIT_SUB if is_retry else reserved.TOPIC_FLAG_UNIT
        config = topics.create_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
        )
        if config is None and is_retry:
            config = topics.create_if_absent(header.topic, 1, sys_flag=sys_flag)
        return config if config is not None else self.topic(header.topic)

    def _store(
        self, connection: ServerConnection, command: Command, header: Header, config: TopicConfig
    ) -> Answer:
        queue_id = self._queue_id(header, config)
        properties = parse_properties(header.properties or "")
        if header.batch:
            result = self._put_batch(connection, command, header, queue_id)
        else:
            result = self._put_single(connection, command, header, config, queue_id, properties)
        response = SendMessageResponse(
            msg_id=result.message_id,
            queue_id=queue_id,
            queue_offset=result.queue_offset,
            transaction_id=properties.get(property_names.UNIQ_KEY),
        )
        wait_stored = properties.get(property_names.WAIT, "true").lower() == "true"
        if self._services.putter.must_wait(wait_stored):
            return self._answer_when_stored(command, response, result)
        self._services.putter.write()
        return self._answer(command, response, result.status)

    async def _answer_when_stored(
        self, command: Command, response: SendMessageResponse, result: PutResult
    ) -> Command:
        return self._answer(command, response, await self._services.putter.stored(result))

    def _answer(self, command: Command, response: SendMessageResponse, status: PutStatus) -> Command:
        config = self._services.config
        code = ResponseCode.SUCCESS if status is PutStatus.OK else ResponseCode.FLUSH_DISK_TIMEOUT
        ext = response.to_ext()
        ext[property_names.MSG_REGION] = config.region_id
        ext[property_names.TRACE_ON] = "true" if config.trace_on else "false"
        return command.reply(code, ext=ext)

    def _queue_id(self, header: Header, config: TopicConfig) -> int:
        if header.queue_id >= 0:
            self.queue(header.topic, header.queue_id)
            return header.queue_id
        if config.write_queue_nums <= 0:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"topic {header.topic} has no queue to write to"
            )
        return self._services.runtime.random.randrange(config.write_queue_nums)

    def _put_single(
        self,
        connection: ServerConnection,
        command: Command,
        header: Header,
        config: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
    ) -> PutResult:
        self._complete(properties)
        encoded = encode_properties(properties)
        _check_properties(len(encoded))
        message = NewMessage(
            header.topic,
            queue_id,
            command.body,
            encoded,
            flag=header.flag,
            sys_flag=_sys_flag(header, config),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote,
            reconsume_times=header.reconsume_times or 0,
            tags_code=tags_code(properties.get(property_names.TAGS)),
        )
        self._services.counters.handled_in += 1
        return self._services.putter.put(message, properties)

    def _complete(self, properties: dict[str, str]) -> None:
        """What the broker adds to a single message (SendMessageProcessor.sendMessage, buildMsgContext)."""
        config = self._services.config
        properties.pop(property_names.POP_CK, None)
        properties[property_names.MSG_REGION] = config.region_id
        properties[property_names.TRACE_ON] = "true" if config.trace_on else "false"
        properties.setdefault(property_names.UNIQ_KEY, self._services.ids.next())
        properties[property_names.CLUSTER] = config.broker_cluster_name

    def _put_batch(
        self, connection: ServerConnection, command: Command, header: Header, queue_id: int
    ) -> PutResult:
        """Store the items one behind the other, as they came (behaviours BA-06, BA-07)."""
        if header.topic.startswith(reserved.RETRY_PREFIX):
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        sys_flag = _sys_flag(header, self.topic(header.topic))
        try:
            messages = [
                NewMessage(
                    header.topic,
                    queue_id,
                    item.body,
                    item.properties,
                    flag=item.flag,
                    sys_flag=sys_flag,
                    born_timestamp=header.born_timestamp,
                    born_host=connection.remote,
                    reconsume_times=header.reconsume_times or 0,
                    tags_code=tags_code(decode_properties(item.properties).get(property_names.TAGS)),
                )
                for item in iter_batch(command.body)
            ]
        except MessageFormatError as error:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {error}") from error
        if not messages:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "batch body: it holds no message")
        self._services.counters.handled_in += len(messages)
        return self._services.putter.put_many(messages)


def _sys_flag(header: Header, config: TopicConfig) -> int:
    multi = sysflag.MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else 0
    return header.sys_flag | multi


def _check_properties(size: int) -> None:
    if size > MAX_PROPERTIES_BYTES:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of {size} bytes, limit {MAX_PROPERTIES_BYTES} bytes",
        )
