"""Request and reply: a message that its consumer answers (RequestResponseFuture)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import ClientStateError, ReplyTimeoutError
from orbitmq.message import property_names
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import encode_properties, parse_properties
from orbitmq.message.record import Record, to_received
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import PushReplyMessageToClientRequest

log = logging.getLogger("orbitmq.client")

MAX_WAITING = 65_535


class Replies:
    """The requests of one client that wait for their replies."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        client.on_server_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._arrived)

    def marked(self, message: Message, timeout_ms: int) -> tuple[Message, str]:
        """A copy of ``message`` marked as a request, and its correlation id."""
        random = self._client.runtime.random
        correlation_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        properties = {
            **message.properties,
            property_names.CORRELATION_ID: correlation_id,
            property_names.REPLY_TO_CLIENT: self._client.client_id,
            property_names.TTL: str(timeout_ms),
        }
        return Message(message.topic, message.body, flag=message.flag, properties=properties), correlation_id

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """A future for the reply; the caller calls :meth:`forget` afterwards.

        Raises:
            ClientStateError: too many requests wait for their replies.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise ClientStateError(
                f"{len(self._waiting)} requests wait for their replies, the limit is {MAX_WAITING}"
            )
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Drop a request whose reply is not awaited any more."""
        self._waiting.pop(correlation_id, None)

    async def wait(
        self, future: asyncio.Future[ReceivedMessage], topic: str, timeout_ms: float, total_ms: int
    ) -> ReceivedMessage:
        """Wait for the reply and return it.

        Raises:
            ReplyTimeoutError: no reply arrived in time.
        """
        try:
            return await asyncio.wait_for(future, max(0.0, timeout_ms) / 1000)
        except TimeoutError:
            raise ReplyTimeoutError(
                topic, f"the request to {topic} was stored, but no reply came within {total_ms / 1000:g} s"
            ) from None

    def _arrived(self, connection: Any, command: Command) -> Command:
        header = PushReplyMessageToClientRequest.from_ext(command.ext)
        properties = parse_properties(header.properties or "")
        correlation_id = properties.get(property_names.CORRELATION_ID, "")
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            log.warning(
                "a reply from %s came too late, or no request waits for it: %s",
                header.born_host,
                correlation_id,
            )
            return command.reply()
        try:
            future.set_result(self._received(header, properties, command.body))
        except MessageFormatError as error:
            log.warning("a reply from %s cannot be read: %s", header.born_host, error)
            return command.reply(ResponseCode.SYSTEM_ERROR, f"process reply message fail: {error}")
        return command.reply()

    def _received(
        self, header: PushReplyMessageToClientRequest, properties: dict[str, str], body: bytes
    ) -> ReceivedMessage:
        properties[property_names.ARRIVE_TIME] = str(self._client.runtime.clock.now_ms())
        record = Record(
            header.topic,
            body,
            encode_properties(properties),
            header.queue_id,
            header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
        )
        return to_received(record, header.bname or "")


def _host(text: str) -> tuple[str, int]:
    """Parse ``/1.2.3.4:5`` or ``1.2.3.4:5``. A host name, which only very old brokers send, becomes 0.0.0.0;
    a missing port becomes 0.
    """
    host, _, port = text.lstrip("/").rpartition(":")
    numeric = bool(host) and all(c in "0123456789.:abcdefABCDEF" for c in host)
    return (host if numeric else "0.0.0.0", whole_number(port, 99_999) or 0)  # noqa: S104
