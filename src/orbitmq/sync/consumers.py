"""Consumers that wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack

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
from orbitmq.durations import Duration, datetime
from orbitmq.message.model import MessageQueue, Processing, ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.sync.face import Face

H = TypeVar("H", bound=Callable[..., Any])


class _Subscriber(Face):
    """A consumer that names topics."""

    _core: consumer.Consumer | pull.PullConsumer | simple.SimpleConsumer

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

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]], *, stop_on_signals: bool) -> None:
        """Wait for ``work``, which ends when the consumer closes; on a signal, close it."""
        loop = self._running()
        if not stop_on_signals:
            loop.wait(work())
            return
        with first_signal_calls(lambda: loop.submit(self._core.close())) as closing:
            loop.wait(work())
            for begun in closing:
                begun.result()


class _Member(_Subscriber):
    """A consumer that shares the queues of its topics with its group."""

    _core: consumer.Consumer | pull.PullConsumer

    def pause(self, *topics: str) -> None:
        """Pull and hand out nothing of these topics, or of none at all."""
        self._running().call(self._core.pause, *topics)

    def resume(self, *topics: str) -> None:
        """End the pause of these topics, or every pause."""
        self._running().call(self._core.resume, *topics)

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member works on now."""
        return self._running().call(self._core.assignment)


class _Polled(Face):
    """A consumer that has a position in each of its queues."""

    _core: assigned.AssignedConsumer | pull.PullConsumer

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


class Consumer(_Member):
    """Receives its group's share; see :class:`orbitmq.client.consumer.consumer.Consumer`.

    Takes the same arguments, and raises the same errors. Handlers run in ``concurrency`` threads.
    """

    @shows_keywords(ConsumerOptions)
    def __init__(self, group: str, **options: Unpack[ConsumerKeywords]) -> None:
        super().__init__()
        self._core: consumer.Consumer = consumer.Consumer(group, **options)

    def on(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Callable[[H], H]:
        """Subscribe to ``topic``, and let the function below handle its messages."""
        register = self._core.on(topic, tags, sql=sql)

        def registered(handler: H) -> H:
            call = self._handler(handler)
            if self._loop is None:
                register(call)
            else:
                self._loop.call(register, call)
            return handler

        return registered

    def run(
        self,
        handler: Listener | None = None,
        *,
        batch: int | None = None,
        stop_on_signals: bool = False,
    ) -> None:
        """Give every message to ``handler`` until :meth:`close` is called, in it or elsewhere, or Ctrl-C.

        Args:
            handler: runs in threads, ``concurrency`` of them. Without one, those of :meth:`on`.
            batch: give lists of up to so many messages.
            stop_on_signals: on Ctrl-C and SIGTERM let running handlers end and return then; a second signal
                raises KeyboardInterrupt. Only in the main thread.
        """
        call = None if handler is None else self._handler(handler)
        self._run(lambda: self._core.run(call, batch=batch), stop_on_signals=stop_on_signals)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[ReceivedMessage]:
        """The messages one by one; asking for the next one marks the one before as done."""
        return self._each(self._core.messages(auto_ack=auto_ack))

    def batches(self, at_most: int) -> Iterator[list[ReceivedMessage]]:
        """Lists of up to so many messages; asking for the next one marks what is left of the last as done."""
        return self._each(self._core.batches(at_most))

    def ack(self, message: ReceivedMessage) -> Settled:
        """This message is done."""
        return message.ack()

    def retry(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        delay: Duration | None = None,
        reason: str = "",
    ) -> Settled:
        """Have this message delivered again, later."""
        return message.retry(delay_level=delay_level, delay=delay, reason=reason)

    def process(self, message: ReceivedMessage) -> Processing:
        """``with consumer.process(message):`` - done at the end, delivered again after an exception."""
        return message.process()

    def commit(self) -> None:
        """Commit what is done, now.

        Raises:
            OrbitError: the offset of a queue is not committed.
        """
        self._running().wait(self._core.commit())


class SimpleConsumer(_Subscriber):
    """Receives messages when asked to; see :class:`orbitmq.client.consumer.simple.SimpleConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(SimpleOptions)
    def __init__(self, group: str, **options: Unpack[SimpleKeywords]) -> None:
        super().__init__()
        self._core: simple.SimpleConsumer = simple.SimpleConsumer(group, **options)

    def receive(
        self, max_messages: int = 16, invisible_for: Duration | None = None, *, wait: Duration = simple.WAIT_S
    ) -> list[ReceivedMessage]:
        """Up to so many messages; an empty list when none came in time."""
        return self._running().wait(self._core.receive(max_messages, invisible_for, wait=wait))

    def ack(self, message: ReceivedMessage) -> Settled:
        """This message is done; returns when its broker knows."""
        return self._running().wait(self._core.ack(message))

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> list[Settled]:
        """As :meth:`ack` for each of them, with one request for each broker."""
        return self._running().wait(self._core.ack_all(messages))

    def retry(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        delay: Duration | None = None,
        reason: str = "",
    ) -> Settled:
        """Have this message come again, by default later each time."""
        return self._running().wait(
            self._core.retry(message, delay_level=delay_level, delay=delay, reason=reason)
        )

    def reject(self, message: ReceivedMessage, reason: str = "") -> Settled:
        """Make this message a dead letter."""
        return self._running().wait(self._core.reject(message, reason))

    def change_invisible(self, message: ReceivedMessage, invisible_for: Duration) -> Settled:
        """Let this message stay invisible for so long from now on."""
        return self._running().wait(self._core.change_invisible(message, invisible_for))

    def run(self, handler: Listener, *, stop_on_signals: bool = False) -> None:
        """Give every message to ``handler`` until :meth:`close` is called, in it or elsewhere, or Ctrl-C.

        Args:
            handler: runs in threads, ``concurrency`` of them.
            stop_on_signals: as for :meth:`Consumer.run`.
        """
        call = self._handler(handler)
        self._run(lambda: self._core.run(call), stop_on_signals=stop_on_signals)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[ReceivedMessage]:
        """The messages one by one; asking for the next one acknowledges the one before."""
        return self._each(self._core.messages(auto_ack=auto_ack))


class PullConsumer(_Member, _Polled):
    """Asks for its group's share; see :class:`orbitmq.client.consumer.pull.PullConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(PullConsumerOptions)
    def __init__(self, group: str, **options: Unpack[PullKeywords]) -> None:
        super().__init__()
        self._core: pull.PullConsumer = pull.PullConsumer(group, **options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._loop is not None:
            self._loop.wait(self._core._block_ended())
        super().__exit__(kind, error, trace)

    def poll(self, max_messages: int = 32, *, timeout: Duration = 5.0) -> list[ReceivedMessage]:
        """The next messages; an empty list when none came in time. What it gave before is done."""
        return self._running().wait(self._core.poll(max_messages, timeout=timeout))

    def commit(self) -> None:
        """Mark the messages of :meth:`poll` as done and commit that now.

        Raises:
            OrbitError: the offset of a queue is not committed.
        """
        self._running().wait(self._core.commit())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on."""
        self._running().wait(self._core.seek(queue, offset))


class AssignedConsumer(_Polled):
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

    def poll(self, max_messages: int = 32, *, timeout: Duration = 5.0) -> list[ReceivedMessage]:
        """The next messages; an empty list when none came in time."""
        return self._running().wait(self._core.poll(max_messages, timeout=timeout))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on."""
        self._running().call(self._core.seek, queue, offset)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit these offsets, or the positions of all assigned queues.

        Raises:
            OrbitError: the offset of a queue is not committed; offsets of other queues may be.
        """
        self._running().wait(self._core.commit(offsets))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of the queue."""
        return self._running().wait(self._core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        return self._running().wait(self._core.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message stored at or after ``at``."""
        return self._running().wait(self._core.offset_by_time(queue, at))
