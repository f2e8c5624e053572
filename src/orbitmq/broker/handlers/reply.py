"""Replies: pushed to the client that waits for them, and stored (ReplyMessageProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.broker.handlers.send import Header, SendHandlers
from orbitmq.message import property_names
from orbitmq.message.properties import parse_properties, properties_text
from orbitmq.transport.errors import TransportError
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    PushReplyMessageToClientRequest,
    SendMessageResponse,
    SendReplyMessageRequest,
    SendReplyMessageV2Request,
)

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000


class ReplyHandlers(SendHandlers):
    """SEND_REPLY_MESSAGE in its two forms."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, connection: ServerConnection, command: Command) -> Answer:
        """Hand a reply to who asked; the answer says whether that client took it."""
        kind = (
            SendReplyMessageRequest
            if command.code == RequestCode.SEND_REPLY_MESSAGE
            else SendReplyMessageV2Request
        )
        header: Header = kind.from_ext(command.ext)
        self._check(header, command)
        return self._reply(connection, command, header, self.topic(header.topic))

    async def _reply(
        self, connection: ServerConnection, command: Command, header: Header, config: TopicConfig
    ) -> Command:
        queue_id = self._queue_id(header, config)
        properties = parse_properties(header.properties or "")
        failure = await self._push(connection, command, header, dict(properties))
        response = SendMessageResponse(msg_id="0", queue_id=queue_id, queue_offset=0)
        if self._services.config.store_reply_message_enable:
            self._keep(connection, command, header, config, properties, response)
        ext = response.to_ext()
        ext[property_names.MSG_REGION] = self._services.config.region_id
        ext[property_names.TRACE_ON] = "true" if self._services.config.trace_on else "false"
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return command.reply(code, failure, ext)

    async def _push(
        self, connection: ServerConnection, command: Command, header: Header, properties: dict[str, str]
    ) -> str | None:
        """Why the client did not get the reply, None when it did."""
        client_id = properties.get(property_names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{property_names.REPLY_TO_CLIENT}] is null"
        client = self._services.clients.producer(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._services.runtime.clock.now_ms()
        properties[property_names.PUSH_REPLY_TIME] = str(now)
        host, port = connection.remote
        request = PushReplyMessageToClientRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=f"{host}:{port}",
            store_host=self._services.address,
            store_timestamp=now,
            properties=properties_text(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode or False,
        )
        try:
            answer = await client.peer.request(request.command(command.body), PUSH_TIMEOUT_MS)
        except TransportError as error:
            log.warning("reply to client %s: %s", client_id, error)
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None

    def _keep(
        self,
        connection: ServerConnection,
        command: Command,
        header: Header,
        config: TopicConfig,
        properties: dict[str, str],
        response: SendMessageResponse,
    ) -> None:
        """Store the reply; who waits for it has it already, so a refusal is only logged."""
        try:
            result = self._put_single(connection, command, header, config, response.queue_id, properties)
        except RemotingError as error:
            log.warning("a reply of group %s is not stored: %s", header.producer_group, error)
            return
        response.msg_id = result.message_id
        response.queue_offset = result.queue_offset
