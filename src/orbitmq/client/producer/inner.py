"""Sends the client's own messages: trace records, and messages for a retry topic."""

from __future__ import annotations

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import SendResult
from orbitmq.client.observe.trace import MAX_BODY_CHARS, TRACE_GROUP, Tracer
from orbitmq.client.producer.queue_choice import QueueChooser
from orbitmq.client.producer.request import OutgoingFactory
from orbitmq.client.producer.send import RetryOptions, SendKernel
from orbitmq.client.validation import MAX_MESSAGE_BYTES, check_message, check_send_topic
from orbitmq.message.model import Message


class InternalProducer:
    """A producer without options. It registers with its first message.

    Args:
        group: the producer group.
        max_message_bytes: larger bodies are refused.
    """

    def __init__(
        self, client: ClientInstance, group: str, *, max_message_bytes: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._client = client
        self._group = group
        self._max_message_bytes = max_message_bytes
        self._kernel = SendKernel(client, RetryOptions(), None, group=group)
        self._outgoing = OutgoingFactory(group, client.runtime, max_message_bytes=max_message_bytes)
        self._choosers: dict[str, QueueChooser] = {}
        self._started = False

    async def send(self, message: Message) -> SendResult:
        """Send one message and wait until a broker has stored it.

        Raises:
            ValidationError, SendError: as ``Producer.send``.
        """
        check_message(message, self._max_message_bytes)
        chooser = self._choosers.get(message.topic)
        if chooser is None:
            check_send_topic(message.topic)
            chooser = self._choosers[message.topic] = QueueChooser(self._client.runtime.random)
        if not self._started:
            self._started = True
            await self._client.start()
            self._client.register_producer(self._group)
        out = self._outgoing.small(message) or await self._outgoing.large(message)
        return await self._kernel.send(chooser, out, None, None)

    async def close(self) -> None:
        """Leave the group, if a message was sent. Idempotent."""
        if self._started:
            self._started = False
            await self._client.unregister_producer(self._group)
            await self._client.close()


def make_tracer(client: ClientInstance, trace: bool | str) -> tuple[InternalProducer | None, Tracer | None]:
    """The tracer, and the producer that sends its records; both None without a trace.

    Args:
        trace: True for RMQ_SYS_TRACE_TOPIC, or the topic of the records.
    """
    if not trace:
        return None, None
    sender = InternalProducer(client, TRACE_GROUP, max_message_bytes=4 * MAX_BODY_CHARS)
    if isinstance(trace, str):
        return sender, Tracer(client.runtime, sender.send, trace)
    return sender, Tracer(client.runtime, sender.send)
