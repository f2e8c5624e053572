"""The clients for programs without asyncio: the same API, the same core, on an event loop of their own.

::

    from orbitmq import Message
    from orbitmq.sync import Consumer, Producer

    with Producer("shop", name_servers="127.0.0.1:9876") as producer:
        producer.send(Message("orders", b"body"))

Every client starts one background thread. All methods may be called from any thread except from a callback
that runs on that thread.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from orbitmq.client.consumer import assigned, consumer, pull, simple
from orbitmq.client.consumer.handling import Listener
from orbitmq.client.consumer.options import (
    AssignedKeywords,
    AssignedOptions,
    ConsumerKeywords,
    ConsumerOptions,
    PullConsumerOptions,
    PullKeywords,
    SimpleKeywords,
    SimpleOptions,
)
from orbitmq.client.consumer.shutdown import first_signal_calls
from orbitmq.client.keywords import shows_keywords
from orbitmq.client.model import SendResult
from orbitmq.client.producer import producer, transactional
from orbitmq.client.producer.callbacks import Done
from orbitmq.client.producer.faults import FaultItem
from orbitmq.client.producer.options import ProducerKeywords, ProducerOptions
from orbitmq.client.producer.queue_choice import Selector
from orbitmq.client.producer.transactional import Check, Execute, Transaction, TransactionResult
from orbitmq.errors import ClientStateError
from orbitmq.message.model import Message, MessageQueue, Processing, ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.runtime.loop_thread import LoopThread

__all__ = [
    "AssignedConsumer",
    "Consumer",
    "Producer",
    "PullConsumer",
    "SimpleConsumer",
    "TransactionProducer",
]


H = TypeVar("H", bound=Callable[..., Any])
T = TypeVar("T")


class _Face:
    """Life of a client on its own loop."""

    _core: (
        producer.Producer
        | consumer.Consumer
        | assigned.AssignedConsumer
        | pull.PullConsumer
        | simple.SimpleConsumer
    )

    def __init__(self) -> None:
        self._loop: LoopThread | None = None

    @property
    def group(self) -> str:
        return self._core.group

    def start(self) -> None:
        """Start the background thread and the client.

        Raises:
            ClientStateError: it was started before.
        """
        loop = LoopThread(f"orbitmq-{self.group}")
        try:
            loop.wait(self._core.start())
        except BaseException:
            loop.stop()
            raise
        self._loop = loop

    def close(self) -> None:
        """Close the client and end its thread. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.wait(self._core.close())
        finally:
            loop.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> LoopThread:
        if self._loop is None:
            raise ClientStateError(f"client {self.group!r} is not running; use 'with' or start()")
        return self._loop


class Producer(_Face):
    """Sends messages, each call waiting for its answer; see :class:`orbitmq.Producer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(ProducerOptions)
    def __init__(self, group: str, **options: Unpack[ProducerKeywords]) -> None:
        super().__init__()
        self._core: producer.Producer = producer.Producer(group, **options)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        Raises:
            ValidationError, SendError, ClientStateError: as :meth:`orbitmq.Producer.send`.
        """
        return self._running().wait(
            self._core.send(
                message, queue=queue, ordering_key=ordering_key, selector=selector, timeout_ms=timeout_ms
            )
        )

    def submit(
        self,
        message: Message,
        done: Done | None = None,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gives the result or the error, all errors included.

        Args:
            done: called with the result and None, or with None and the error: on the client's thread, which a
                slow one holds up, or in threads of their own with ``callback_threads``. Callbacks added to
                the future run on the client's thread.
        """

        async def submitted() -> SendResult:
            return await self._core.submit(
                message,
                done,
                queue=queue,
                ordering_key=ordering_key,
                selector=selector,
                timeout_ms=timeout_ms,
            )

        return self._running().submit(submitted())

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Hand one message to a connection; there is no answer to say whether it was stored."""
        self._running().wait(
            self._core.send_oneway(message, queue=queue, ordering_key=ordering_key, timeout_ms=timeout_ms)
        )

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic in one request."""
        return self._running().wait(self._core.send_batch(messages, queue=queue, timeout_ms=timeout_ms))

    def request(
        self,
        message: Message,
        *,
        timeout_ms: int,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it."""
        return self._running().wait(
            self._core.request(message, timeout_ms=timeout_ms, queue=queue, ordering_key=ordering_key)
        )

    def reply(
        self, request: ReceivedMessage, body: bytes | str, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Answer a request."""
        return self._running().wait(self._core.reply(request, body, timeout_ms=timeout_ms))

    def recall(self, topic: str, handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a message that waits for its time; its unique id."""
        return self._running().wait(self._core.recall(topic, handle, timeout_ms=timeout_ms))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that can be written to now."""
        return self._running().wait(self._core.queues(topic))

    def fault_table(self) -> list[FaultItem]:
        """Latency, isolation and reachability noted of each broker."""
        return self._running().call(self._core.fault_table)


class TransactionProducer(Producer):
    """Sends transactions; see :class:`orbitmq.client.producer.transactional.TransactionProducer`.

    Takes the same arguments; ``check`` and ``execute`` run in threads of the runtime's pool.
    """

    @shows_keywords(ProducerOptions)
    def __init__(self, group: str, *, check: Check, **options: Unpack[ProducerKeywords]) -> None:
        _Face.__init__(self)
        self._core: transactional.TransactionProducer = transactional.TransactionProducer(
            group, check=check, **options
        )

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store ``message`` where no consumer sees it, do ``execute(message)``, and commit or roll back."""
        return self._running().wait(self._core.send_in_transaction(message, execute, timeout_ms=timeout_ms))

    @contextmanager
    def transaction(self, message: Message, *, timeout_ms: int | None = None) -> Iterator[Transaction]:
        """The same as a block: consumers see ``message`` when it is left without an exception."""
        loop = self._running()
        block = self._core.transaction(message, timeout_ms=timeout_ms)
        under_way = loop.wait(block.__aenter__())
        try:
            yield under_way
        except Exception as error:
            loop.wait(block.__aexit__(type(error), error, error.__traceback__))
            raise
        loop.wait(block.__aexit__(None, None, None))


class Consumer(_Face):
    """Receives its group's share; see :class:`orbitmq.client.consumer.consumer.Consumer`.

    Takes the same arguments, and raises the same errors. Handlers run in ``concurrency`` threads.
    """

    @shows_keywords(ConsumerOptions)
    def __init__(self, group: str, **options: Unpack[ConsumerKeywords]) -> None:
        super().__init__()
        self._core: consumer.Consumer = consumer.Consumer(group, **options)

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of ``topic``; before or after the start.

        Raises:
            BrokerError: after the start: a broker cannot filter by ``sql``. Before, the start raises it.
        """
        if self._loop is None:
            self._core.subscribe(topic, tags, sql=sql)
        else:
            self._loop.wait(self._subscribed(topic, tags, sql))

    async def _subscribed(self, topic: str, tags: str, sql: str | None) -> None:
        await self._core.subscribe(topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving the messages of ``topic``."""
        if self._loop is None:
            self._core.unsubscribe(topic)
        else:
            self._loop.call(self._core.unsubscribe, topic)

    def on(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Callable[[H], H]:
        """Subscribe, and let the function below handle the messages of ``topic``."""
        if self._loop is None:
            return self._core.on(topic, tags, sql=sql)
        return self._loop.call(self._core.on, topic, tags, sql=sql)

    def pause(self, *topics: str) -> None:
        """Pull and hand out nothing of these topics, or of none at all."""
        self._running().call(self._core.pause, *topics)

    def resume(self, *topics: str) -> None:
        """End the pause of these topics, or every pause."""
        self._running().call(self._core.resume, *topics)

    def run(
        self,
        handler: Listener | None = None,
        *,
        batch: int | None = None,
        stop_on_signals: bool = False,
    ) -> None:
        """Give every message to ``handler`` until :meth:`close` is called in another thread, or Ctrl-C.

        Args:
            handler: runs in threads, ``concurrency`` of them. Without one, those of :meth:`on`.
            batch: give lists of up to so many messages.
            stop_on_signals: on Ctrl-C and SIGTERM let running handlers end and return then; a second signal
                raises KeyboardInterrupt. Only in the main thread.
        """
        loop = self._running()
        if not stop_on_signals:
            loop.wait(self._core.run(handler, batch=batch))
            return
        with first_signal_calls(lambda: loop.submit(self._core.close())) as closing:
            loop.wait(self._core.run(handler, batch=batch))
            for begun in closing:
                begun.result()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[ReceivedMessage]:
        """The messages one by one; asking for the next one marks the one before as done."""
        return self._each(self._core.messages(auto_ack=auto_ack))

    def batches(self, at_most: int) -> Iterator[list[ReceivedMessage]]:
        """Lists of up to so many messages; asking for the next one marks what is left of the last as done."""
        return self._each(self._core.batches(at_most))

    def _each(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        loop = self._running()

        async def following() -> T | None:
            return await anext(source, None)

        try:
            while (found := loop.wait(following())) is not None:
                yield found
        finally:
            if self._loop is loop:
                loop.wait(source.aclose())

    def ack(self, message: ReceivedMessage) -> Settled:
        """This message is done."""
        return message.ack()

    def retry(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> Settled:
        """Have this message delivered again, later."""
        return message.retry(delay_level=delay_level, delay_s=delay_s, reason=reason)

    def process(self, message: ReceivedMessage) -> Processing:
        """``with consumer.process(message):`` - done at the end, delivered again after an exception."""
        return message.process()

    def commit(self) -> None:
        """Commit what is done, now."""
        self._running().wait(self._core.commit())

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member works on now."""
        return self._running().call(self._core.assignment)


class SimpleConsumer(_Face):
    """Receives messages when asked to; see :class:`orbitmq.client.consumer.simple.SimpleConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(SimpleOptions)
    def __init__(self, group: str, **options: Unpack[SimpleKeywords]) -> None:
        super().__init__()
        self._core: simple.SimpleConsumer = simple.SimpleConsumer(group, **options)

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of ``topic``; before or after the start.

        Raises:
            BrokerError: after the start: a broker cannot filter by ``sql``. Before, the start raises it.
        """
        if self._loop is None:
            self._core.subscribe(topic, tags, sql=sql)
        else:
            self._loop.wait(self._subscribed(topic, tags, sql))

    async def _subscribed(self, topic: str, tags: str, sql: str | None) -> None:
        await self._core.subscribe(topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving the messages of ``topic``."""
        if self._loop is None:
            self._core.unsubscribe(topic)
        else:
            self._loop.call(self._core.unsubscribe, topic)

    def receive(
        self, max_messages: int = 16, invisible_s: float | None = None, *, wait_s: float = simple.WAIT_S
    ) -> list[ReceivedMessage]:
        """Up to so many messages; an empty list when none came in time."""
        return self._running().wait(self._core.receive(max_messages, invisible_s, wait_s=wait_s))

    def ack(self, message: ReceivedMessage) -> Settled:
        """This message is done; returns when its broker knows."""
        return self._running().wait(self._core.ack(message))

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> list[Settled]:
        """As :meth:`ack` for each of them, with one request for each broker."""
        return self._running().wait(self._core.ack_all(messages))

    def retry(self, message: ReceivedMessage, *, delay_s: float | None = None) -> Settled:
        """Have this message come again after so many seconds, by default later each time."""
        return self._running().wait(self._core.retry(message, delay_s=delay_s))

    def reject(self, message: ReceivedMessage) -> Settled:
        """Make this message a dead letter."""
        return self._running().wait(self._core.reject(message))

    def change_invisible(self, message: ReceivedMessage, invisible_s: float) -> Settled:
        """Let this message stay invisible for so long from now on."""
        return self._running().wait(self._core.change_invisible(message, invisible_s))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[ReceivedMessage]:
        """The messages one by one; asking for the next one acknowledges the one before."""
        loop = self._running()
        source = self._core.messages(auto_ack=auto_ack)

        async def following() -> ReceivedMessage | None:
            return await anext(source, None)

        try:
            while (message := loop.wait(following())) is not None:
                yield message
        finally:
            if self._loop is loop:
                loop.wait(source.aclose())


class PullConsumer(_Face):
    """Asks for its group's share; see :class:`orbitmq.client.consumer.pull.PullConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(PullConsumerOptions)
    def __init__(self, group: str, **options: Unpack[PullKeywords]) -> None:
        super().__init__()
        self._core: pull.PullConsumer = pull.PullConsumer(group, **options)

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of ``topic``; before or after the start.

        Raises:
            BrokerError: after the start: a broker cannot filter by ``sql``. Before, the start raises it.
        """
        if self._loop is None:
            self._core.subscribe(topic, tags, sql=sql)
        else:
            self._loop.wait(self._subscribed(topic, tags, sql))

    async def _subscribed(self, topic: str, tags: str, sql: str | None) -> None:
        await self._core.subscribe(topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving the messages of ``topic``."""
        if self._loop is None:
            self._core.unsubscribe(topic)
        else:
            self._loop.call(self._core.unsubscribe, topic)

    def pause(self, *topics: str) -> None:
        """Pull and hand out nothing of these topics, or of none at all."""
        self._running().call(self._core.pause, *topics)

    def resume(self, *topics: str) -> None:
        """End the pause of these topics, or every pause."""
        self._running().call(self._core.resume, *topics)

    def poll(self, max_messages: int = 32, *, timeout_ms: int = 5000) -> list[ReceivedMessage]:
        """The next messages; an empty list when none came in time. What it gave before is done."""
        return self._running().wait(self._core.poll(max_messages, timeout_ms=timeout_ms))

    def commit(self) -> None:
        """What :meth:`poll` gave is done; commit that now."""
        self._running().wait(self._core.commit())

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member works on now."""
        return self._running().call(self._core.assignment)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on."""
        self._running().wait(self._core.seek(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest messages of these queues."""
        self._running().wait(self._core.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest messages of these queues."""
        self._running().wait(self._core.seek_to_end(*queues))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that :meth:`poll` gives of this queue."""
        return self._running().wait(self._core.position(queue))

    def committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, -1 when it has none."""
        return self._running().wait(self._core.committed(queue))


class AssignedConsumer(_Face):
    """Reads the queues it is told to read; see :class:`orbitmq.client.consumer.assigned.AssignedConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(AssignedOptions)
    def __init__(self, group: str, **options: Unpack[AssignedKeywords]) -> None:
        super().__init__()
        self._core: assigned.AssignedConsumer = assigned.AssignedConsumer(group, **options)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``."""
        return self._running().wait(self._core.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None) -> None:
        """Read exactly these queues."""
        self._running().call(self._core.assign, queues, tags=tags, sql=sql)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._running().call(self._core.assignment)

    def poll(self, max_messages: int = 32, *, timeout_ms: int = 5000) -> list[ReceivedMessage]:
        """The next messages; an empty list when none came in time."""
        return self._running().wait(self._core.poll(max_messages, timeout_ms=timeout_ms))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on."""
        self._running().call(self._core.seek, queue, offset)

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest messages of these queues."""
        self._running().wait(self._core.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest messages of these queues."""
        self._running().wait(self._core.seek_to_end(*queues))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that :meth:`poll` gives of this queue."""
        return self._running().wait(self._core.position(queue))

    def committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, -1 when it has none."""
        return self._running().wait(self._core.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit these offsets, or the positions of all assigned queues."""
        self._running().wait(self._core.commit(offsets))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of the queue."""
        return self._running().wait(self._core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        return self._running().wait(self._core.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after ``timestamp_ms``."""
        return self._running().wait(self._core.offset_by_time(queue, timestamp_ms))
