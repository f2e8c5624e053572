"""Collects single sends into batches: one request for many messages, one result per message."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.model import SendResult
from orbitmq.client.producer.open_batch import PLAIN_ITEM_BYTES, Item, OpenBatch, plain_body, share
from orbitmq.client.producer.request import Outgoing, OutgoingFactory
from orbitmq.client.producer.taken import taken
from orbitmq.client.ranges import check_number
from orbitmq.durations import Duration, as_seconds
from orbitmq.errors import ClientStateError
from orbitmq.message import property_names
from orbitmq.message.model import Message
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.tasks import Background

_ALONE = frozenset(
    {
        property_names.DELAY,
        property_names.TRANSACTION_PREPARED,
        property_names.WAIT,
        property_names.INNER_MULTI_DISPATCH,
        property_names.MSG_TYPE,
        *property_names.TIMER_PROPERTIES,
    }
)

SendBatch = Callable[[Outgoing], Awaitable[SendResult]]


@refuses_unknown
@dataclass(frozen=True, slots=True)
class AutoBatch:
    """How single sends are collected into batches.

    Attributes:
        linger: the longest time that a message waits for others, 1 s at most; 0: a batch holds the messages
            of one iteration of the event loop.
        max_bytes: a batch of this size is sent at once. Larger messages are sent alone.
        max_messages: a batch of this many messages is sent at once.
    """

    linger: Duration = 0.001
    max_bytes: int = 32 * 1024
    max_messages: int = 256

    def __post_init__(self) -> None:
        for name in ("linger", "max_bytes", "max_messages"):
            check_number(f"AutoBatch.{name}", getattr(self, name), called=f"{name} of auto_batch")


class Accumulator:
    """The open batches of one producer.

    Args:
        send: sends a batch's request, with retries.
        check: refuses a message that may not be sent; called for messages with more than a body.
        factory: creates requests and ids.

    Attributes:
        waiting: messages without a result yet.
        cut_off: messages whose batch was cancelled while it was sent, and whose callers still wait.
    """

    def __init__(
        self,
        settings: AutoBatch,
        factory: OutgoingFactory,
        check: Callable[[Message], object],
        send: SendBatch,
        background: Background,
    ) -> None:
        self._max_bytes = settings.max_bytes
        self._max_messages = settings.max_messages
        self._linger_s = as_seconds(settings.linger)
        self._factory = factory
        self._check = check
        self._send = send
        self._background = background
        self._open: dict[str, OpenBatch] = {}
        self._sending: dict[asyncio.Task[None], OpenBatch] = {}
        self.waiting = 0
        self.cut_off = 0

    def add(self, message: Message) -> asyncio.Future[SendResult] | None:
        """Put a message into its topic's batch; returns the future of its result.

        None if the message may not be in a batch (BA-02): it has a delay, belongs to a transaction, or is
        large.

        Raises:
            ValidationError: the message may not be sent, or its properties cannot be encoded.
        """
        batch = self._open.get(message.topic)
        future = None if batch is None else batch.add_plain(message)
        if batch is None or future is None:
            return self._add_checked(message, batch)
        self.waiting += 1
        if batch.full:
            self._close(message.topic, batch)
        return future

    def _add_checked(self, message: Message, batch: OpenBatch | None) -> asyncio.Future[SendResult] | None:
        """Add a message that begins a batch, does not fit into the open one, or has more than a body."""
        message = taken(message)
        self._check(message)
        if not self._takes(message):
            return None
        body = plain_body(message)
        item: bytes | Item
        if body is None:
            item = self._factory.item(message)
            size = item.size
        else:
            item, size = body, PLAIN_ITEM_BYTES + len(body)
        topic = message.topic
        if batch is not None and not batch.has_room(size):
            self._close(topic, batch)
            batch = None
        if batch is None:
            batch = self._begin(topic)
        future = batch.put(item, size)
        self.waiting += 1
        if batch.full:
            self._close(topic, batch)
        return future

    def _takes(self, message: Message) -> bool:
        return (
            len(message.body) + PLAIN_ITEM_BYTES <= self._max_bytes
            and not (message.properties and not _ALONE.isdisjoint(message.properties))
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def _begin(self, topic: str) -> OpenBatch:
        loop = asyncio.get_running_loop()
        batch = self._open[topic] = OpenBatch(loop.create_future, self._max_bytes, self._max_messages)
        batch.timer = loop.call_later(self._linger_s, self._close, topic, batch)
        return batch

    def flush(self) -> None:
        """Send all waiting messages now."""
        for topic, batch in list(self._open.items()):
            self._close(topic, batch)

    @property
    def under_way(self) -> list[asyncio.Future[SendResult]]:
        """The futures of results that are still pending."""
        batches = (*self._open.values(), *self._sending.values())
        return [future for batch in batches for future in batch.waiting if not future.done()]

    def _close(self, topic: str, batch: OpenBatch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
        if self._open.get(topic) is batch:
            del self._open[topic]
        try:
            task = self._background.spawn(self._deliver(topic, batch), "batch")
        except RuntimeError as error:
            self.waiting -= len(batch.waiting)
            _fail(batch, ClientStateError(f"a batch to topic {topic!r} cannot be sent: {error}"))
            return
        self._sending[task] = batch
        task.add_done_callback(self._sending.pop)

    async def _deliver(self, topic: str, batch: OpenBatch) -> None:
        try:
            out, ids = self._factory.joined(topic, batch)
            whole = await self._send(out)
        except asyncio.CancelledError:
            self.cut_off += sum(not future.done() for future in batch.waiting)
            for future in batch.waiting:
                future.cancel()
            raise
        except Exception as error:
            _fail(batch, error)
            return
        finally:
            self.waiting -= len(batch.waiting)
        share(whole, batch.waiting, ids)


def _fail(batch: OpenBatch, error: Exception) -> None:
    """Give every caller its own copy of the error: a shared one would collect all tracebacks."""
    for future in batch.waiting:
        if not future.done():
            own = copy.copy(error)
            own.__cause__ = error
            future.set_exception(own)
