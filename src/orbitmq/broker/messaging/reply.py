"""Replies of request-reply: pushed to the client that waits for them, and stored (ReplyMessageProcessor)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.sending import Origin, Sending, SendRequest
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.message import property_names
from orbitmq.message.properties import properties_text
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.send import PushReplyMessageToClientRequest

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class Replied:
    """The outcome of a reply.

    Attributes:
        failure: why the waiting client did not get the reply; ``None`` when it did.
        message_id: where the reply was stored, "0" when it was not.
    """

    failure: str | None
    queue_id: int
    message_id: str = "0"
    queue_offset: int = 0


class Reply:
    """Hands replies to the clients that sent the requests.

    Args:
        address: this broker's address for clients, host:port.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        clients: ClientManager,
        metadata: MetadataAccess,
        sending: Sending,
        address: str,
    ) -> None:
        self._config = config
        self._limiter = LogLimiter(log)
        self._clock = clock
        self._clients = clients
        self._metadata = metadata
        self._sending = sending
        self._address = address

    async def reply(self, origin: Origin, request: SendRequest) -> Replied:
        """Push a reply to the client that its properties name, then store it when the settings say so.

        Raises:
            RemotingError: the reply is not a message that may be sent, or its topic or queue is not there.
        """
        self._sending.check(request)
        config = self._metadata.topic(request.topic)
        queue_id = self._sending.choose_queue(request, config)
        replied = Replied(await self._push(origin, request), queue_id)
        if self._config.store_reply_message_enable:
            self._keep(origin, request, config, replied)
        return replied

    async def _push(self, origin: Origin, request: SendRequest) -> str | None:
        """Push the reply; returns why the client did not get it, None when it did."""
        properties = dict(request.properties)
        client_id = properties.get(property_names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{property_names.REPLY_TO_CLIENT}] is null"
        client = self._clients.producer(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock.now_ms()
        properties[property_names.PUSH_REPLY_TIME] = str(now)
        host, port = origin.born_host
        push = PushReplyMessageToClientRequest(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            born_host=f"{host}:{port}",
            store_host=self._address,
            store_timestamp=now,
            properties=properties_text(properties),
            reconsume_times=request.reconsume_times,
            unit_mode=request.unit_mode,
        )
        try:
            answer = await client.peer.request(push.command(request.body), PUSH_TIMEOUT_MS)
        except TransportError as error:
            self._limiter.write(
                logging.WARNING, "reply not delivered", "reply to client %s: %s", client_id, error
            )
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None

    def _keep(self, origin: Origin, request: SendRequest, config: TopicConfig, replied: Replied) -> None:
        """Store the reply; the waiting client already has it, so a refusal is only logged."""
        try:
            result = self._sending.append(origin, request, config, replied.queue_id)
        except RemotingError as error:
            text = "a reply of group %s is not stored: %s"
            self._limiter.write(logging.WARNING, "reply not stored", text, request.producer_group, error)
            return
        replied.message_id = result.message_id
        replied.queue_offset = result.queue_offset
