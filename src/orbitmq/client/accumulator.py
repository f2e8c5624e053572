"""Collect single sends into batches: one request for many messages, one result for each."""

from __future__ import annotations

import asyncio
import copy
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.model import SendResult
from orbitmq.client.outgoing import Outgoing, OutgoingFactory
from orbitmq.client.validation import RETRY_PREFIX, TIMER_KEYS
from orbitmq.errors import ClientStateError
from orbitmq.message import keys
from orbitmq.message.model import Message, MessageQueue
from orbitmq.runtime.tasks import Background

_ITEM = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_ITEM_BYTES = _ITEM.size + _PROPERTIES_LENGTH.size
_ALONE = frozenset(
    {
        keys.DELAY,
        keys.TRANSACTION_PREPARED,
        keys.WAIT,
        keys.INNER_MULTI_DISPATCH,
        keys.MSG_TYPE,
        *TIMER_KEYS,
    }
)

SendBatch = Callable[[Outgoing], Awaitable[SendResult]]


@dataclass(frozen=True, slots=True)
class AutoBatch:
    """How sends are collected.

    Attributes:
        linger_ms: the longest that a message waits for others; 0 waits for the current turn of the loop only.
        max_bytes: a batch of this size goes out at once. Larger messages go alone.
        max_messages: as does one of so many messages.
    """

    linger_ms: float = 1.0
    max_bytes: int = 32 * 1024
    max_messages: int = 256


class _Batch:
    """The messages of one topic that wait together."""

    __slots__ = ("ids", "parts", "size", "timer", "waiting")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.ids: list[str] = []
        self.waiting: list[asyncio.Future[SendResult]] = []
        self.size = 0
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None


class Accumulator:
    """The open batches of one producer.

    What waits is bounded by its callers: each waits for the result of its message.

    Args:
        send: sends a batch's request, with retries.
        factory: makes requests and ids.
    """

    def __init__(
        self, settings: AutoBatch, factory: OutgoingFactory, send: SendBatch, background: Background
    ) -> None:
        self._settings = settings
        self._factory = factory
        self._send = send
        self._background = background
        self._open: dict[str, _Batch] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Whether the message may travel with others (BA-02): no delay, no transaction, not large."""
        return (
            len(message.body) < self._settings.max_bytes
            and not (message.properties and not _ALONE.isdisjoint(message.properties))
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def add(self, message: Message) -> asyncio.Future[SendResult]:
        """Put a message into its topic's batch; the future gives its own result.

        Raises:
            ValidationError: its properties would not read back.
        """
        loop = asyncio.get_running_loop()
        properties, unique_id = self._factory.item_properties(message)
        body = message.body
        size = _ITEM_BYTES + len(body) + len(properties)
        batch = self._open.get(message.topic)
        if batch is not None and batch.size + size > self._settings.max_bytes:
            self._close(message.topic, batch)
            batch = None
        if batch is None:
            batch = self._open[message.topic] = _Batch()
            linger_s = self._settings.linger_ms / 1000
            batch.timer = loop.call_later(linger_s, self._close, message.topic, batch)
        head = _ITEM.pack(size, 0, 0, message.flag, len(body))
        batch.parts.append(b"".join((head, body, _PROPERTIES_LENGTH.pack(len(properties)), properties)))
        batch.size += size
        batch.ids.append(unique_id)
        future: asyncio.Future[SendResult] = loop.create_future()
        batch.waiting.append(future)
        if len(batch.ids) >= self._settings.max_messages:
            self._close(message.topic, batch)
        return future

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
            _fail(batch, ClientStateError(f"a batch to topic {topic!r} cannot be sent: {error}"))
            return
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, topic: str, batch: _Batch) -> None:
        try:
            whole = await self._send(self._factory.joined(topic, b"".join(batch.parts), batch.ids))
        except asyncio.CancelledError:
            for future in batch.waiting:
                future.cancel()
            raise
        except Exception as error:
            _fail(batch, error)
            return
        self._share(whole, batch)

    def _share(self, whole: SendResult, batch: _Batch) -> None:
        """Give every message its own part of the batch's result (BA-06: consecutive offsets)."""
        queue: MessageQueue = whole.queue
        places = whole.offset_message_id.split(",")
        if len(places) != len(batch.ids):
            places = [""] * len(batch.ids)
        offset = whole.queue_offset
        for step, future in enumerate(batch.waiting):
            if not future.done():
                own = offset + step if offset >= 0 else -1
                future.set_result(SendResult(whole.status, batch.ids[step], places[step], queue, own))


def _fail(batch: _Batch, error: Exception) -> None:
    """Give every sender the error as an object of its own: a shared one would collect all tracebacks."""
    for future in batch.waiting:
        if not future.done():
            own = copy.copy(error)
            own.__cause__ = error
            future.set_exception(own)
