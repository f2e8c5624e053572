"""Collect single sends into batches: one request for many messages, one result for each."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.model import SendResult
from orbitmq.client.producer.request import PLAIN_ITEM_BYTES, Item, Outgoing, OutgoingFactory
from orbitmq.errors import ClientStateError
from orbitmq.message import property_names
from orbitmq.message.model import Message
from orbitmq.message.reserved import RETRY_PREFIX
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


@dataclass(frozen=True, slots=True)
class AutoBatch:
    """How sends are collected.

    Attributes:
        linger_ms: the longest that a message waits for others; 0 waits for the current iteration of the loop
            only.
        max_bytes: a batch of this size goes out at once. Larger messages go alone.
        max_messages: as does one of so many messages.
    """

    linger_ms: float = 1.0
    max_bytes: int = 32 * 1024
    max_messages: int = 256


class _Batch:
    """The messages of one topic that wait together.

    An item is the bare body of a message without properties and flag, or else what
    :meth:`OutgoingFactory.item` made. All are encoded together when the batch is closed.
    """

    __slots__ = ("items", "new_future", "plain", "size", "timer", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.items: list[bytes | Item] = []
        self.waiting: list[asyncio.Future[SendResult]] = []
        self.plain = True
        self.size = 0
        self.new_future: Callable[[], asyncio.Future[SendResult]] = loop.create_future
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    """The open batches of one producer.

    Args:
        send: sends a batch's request, with retries.
        check: refuses a message that may not be sent; called for all but the plainest.
        factory: makes requests and ids.

    Attributes:
        waiting: messages without a result yet.
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
        self._linger_s = settings.linger_ms / 1000
        self._factory = factory
        self._check = check
        self._send = send
        self._background = background
        self._open: dict[str, _Batch] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.waiting = 0

    def add(self, message: Message) -> asyncio.Future[SendResult] | None:
        """Put a message into its topic's batch; the future gives its own result.

        None when it may not travel with others (BA-02): a delay, a transaction, large, or the like.

        Raises:
            ValidationError: it may not be sent, or its properties would not read back.
        """
        topic = message.topic
        body = message.body
        batch = self._open.get(topic)
        item: bytes | Item
        if (
            batch is not None
            and body.__class__ is bytes
            and body
            and not message.properties
            and not message.flag
            and message.__class__ is Message
        ):
            # Nothing to refuse: the topic was checked when the batch was opened.
            item = body
            size = PLAIN_ITEM_BYTES + len(body)
            if size > self._max_bytes:
                return None
        else:
            self._check(message)
            if not self._takes(message):
                return None
            item = self._factory.item(message)
            size = item.size
        if batch is None:
            batch = self._begin(topic)
        elif batch.size + size > self._max_bytes:
            self._close(topic, batch)
            batch = self._begin(topic)
        if item is not body:
            batch.plain = False
        future = batch.new_future()
        batch.items.append(item)
        batch.waiting.append(future)
        batch.size += size
        self.waiting += 1
        if len(batch.items) >= self._max_messages:
            self._close(topic, batch)
        return future

    def _takes(self, message: Message) -> bool:
        return (
            len(message.body) + PLAIN_ITEM_BYTES <= self._max_bytes
            and not (message.properties and not _ALONE.isdisjoint(message.properties))
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def _begin(self, topic: str) -> _Batch:
        loop = asyncio.get_running_loop()
        batch = self._open[topic] = _Batch(loop)
        batch.timer = loop.call_later(self._linger_s, self._close, topic, batch)
        return batch

    async def close(self) -> None:
        """Send everything that waits, now, and return when it is answered."""
        for topic, batch in list(self._open.items()):
            self._close(topic, batch)
        await asyncio.gather(*self._sending, return_exceptions=True)

    def _close(self, topic: str, batch: _Batch) -> None:
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
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, topic: str, batch: _Batch) -> None:
        try:
            out, ids = self._factory.joined(topic, batch.items, plain=batch.plain)
            whole = await self._send(out)
        except asyncio.CancelledError:
            for future in batch.waiting:
                future.cancel()
            raise
        except Exception as error:
            _fail(batch, error)
            return
        finally:
            self.waiting -= len(batch.waiting)
        _share(whole, batch.waiting, ids)


def _share(whole: SendResult, waiting: list[asyncio.Future[SendResult]], ids: list[str]) -> None:
    """Give every message its own part of the batch's result (BA-06: consecutive offsets)."""
    queue, status, offset = whole.queue, whole.status, whole.queue_offset
    places = whole.offset_message_id.split(",")
    if len(places) != len(ids):
        places = [""] * len(ids)
    step = 1 if offset >= 0 else 0
    for future, unique_id, place in zip(waiting, ids, places, strict=True):
        if not future.done():
            future.set_result(SendResult(status, unique_id, place, queue, offset))
        offset += step


def _fail(batch: _Batch, error: Exception) -> None:
    """Give every sender the error as an object of its own: a shared one would collect all tracebacks."""
    for future in batch.waiting:
        if not future.done():
            own = copy.copy(error)
            own.__cause__ = error
            future.set_exception(own)
