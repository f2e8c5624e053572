"""Blocking consumers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from orbitmq.client.consumer import consumer, pull, reader, simple
from orbitmq.client.consumer.handling import Handler
from orbitmq.client.consumer.shutdown import first_signal_calls
from orbitmq.message.model import ReceivedMessage
from orbitmq.sync.blocking import (
    GroupClient,
    StartedClient,
    blocking,
    iterating,
    made_as,
    on_loop,
    parameters_of,
)

H = TypeVar("H", bound=Callable[..., Any])
Subscriber = consumer.Consumer | pull.PullConsumer | simple.SimpleConsumer
S = TypeVar("S", bound=Subscriber)
M = TypeVar("M", bound=consumer.Consumer | pull.PullConsumer)


class _Subscriber(GroupClient[S]):
    """A consumer that subscribes to topics."""

    @parameters_of(consumer.Consumer.subscribe)
    def subscribe(self, *args: Any, **options: Any) -> None:
        """Receive the messages of ``topic``; may be called before or after the start.

        Raises:
            BrokerError: after the start: a broker cannot filter by ``sql``. For a call before the start, the
                start raises this error.
        """
        if self._loop is None:
            self._core.subscribe(*args, **options)
            return

        async def subscribed() -> None:
            await self._core.subscribe(*args, **options)

        self._loop.wait(subscribed())

    @parameters_of(consumer.Consumer.unsubscribe)
    def unsubscribe(self, topic: Any) -> None:
        if self._loop is None:
            self._core.unsubscribe(topic)
        else:
            self._loop.call(self._core.unsubscribe, topic)

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]], *, stop_on_signals: bool) -> None:
        """Wait for ``work``, which ends when the consumer closes; a signal closes the consumer."""
        loop = self._running()
        if not stop_on_signals:
            loop.wait(work())
            return
        with first_signal_calls(lambda: loop.submit(self._core.close())) as closing:
            loop.wait(work())
            for begun in closing:
                begun.result()


class _Member(_Subscriber[M]):
    """A consumer that shares the queues of its topics with its group."""

    pause = on_loop(consumer.Consumer.pause)
    resume = on_loop(consumer.Consumer.resume)
    assignment = on_loop(consumer.Consumer.assignment)


class Consumer(_Member[consumer.Consumer]):
    """Receives a share of its group's messages; see :class:`orbitmq.Consumer`.

    Takes the same arguments, and raises the same errors. Handlers run in ``concurrency`` threads.
    """

    @made_as(consumer.Consumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(consumer.Consumer(*args, **options))

    @parameters_of(consumer.Consumer.on)
    def on(self, *args: Any, **options: Any) -> Callable[[H], H]:
        """Subscribe to ``topic``, with the decorated function as the handler of its messages."""
        register = self._core.on(*args, **options)

        def registered(handler: H) -> H:
            call = self._handler(handler)
            if self._loop is None:
                register(call)
            else:
                self._loop.call(register, call)
            return handler

        return registered

    @parameters_of(consumer.Consumer.run)
    def run(self, handler: Handler | None = None, *, stop_on_signals: bool = False, **options: Any) -> None:
        """Give every message to ``handler`` until :meth:`close` is called, in the handler or elsewhere, or
        until Ctrl-C.

        Args:
            handler: the handler, which runs in ``concurrency`` threads. None: the handlers of :meth:`on`.
            batch: give lists of up to this many messages.
            stop_on_signals: on Ctrl-C and SIGTERM let running handlers end and return then; a second signal
                raises KeyboardInterrupt. Only in the main thread.
        """
        call = None if handler is None else self._handler(handler)
        self._run(lambda: self._core.run(call, **options), stop_on_signals=stop_on_signals)

    messages = iterating(consumer.Consumer.messages)
    batches = iterating(consumer.Consumer.batches)
    commit = blocking(consumer.Consumer.commit)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()


class SimpleConsumer(_Subscriber[simple.SimpleConsumer]):
    """Receives messages by explicit requests; see :class:`orbitmq.SimpleConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @made_as(simple.SimpleConsumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(simple.SimpleConsumer(*args, **options))

    receive = blocking(simple.SimpleConsumer.receive)
    ack = blocking(simple.SimpleConsumer.ack)
    ack_all = blocking(simple.SimpleConsumer.ack_all)
    retry = blocking(simple.SimpleConsumer.retry)
    reject = blocking(simple.SimpleConsumer.reject)
    change_invisible = blocking(simple.SimpleConsumer.change_invisible)
    messages = iterating(simple.SimpleConsumer.messages)

    @parameters_of(simple.SimpleConsumer.run)
    def run(self, handler: Handler, *, stop_on_signals: bool = False) -> None:
        """Give every message to ``handler`` until :meth:`close` is called, in the handler or elsewhere, or
        until Ctrl-C.

        Args:
            handler: the handler, which runs in ``concurrency`` threads.
            stop_on_signals: as for :meth:`Consumer.run`.
        """
        call = self._handler(handler)
        self._run(lambda: self._core.run(call), stop_on_signals=stop_on_signals)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()


class PullConsumer(_Member[pull.PullConsumer]):
    """Polls for messages; see :class:`orbitmq.PullConsumer`.

    Takes the same arguments, and raises the same errors.
    """

    @made_as(pull.PullConsumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(pull.PullConsumer(*args, **options))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._loop is not None:
            self._loop.wait(self._core._block_ended())
        super().__exit__(kind, error, trace)

    queues = blocking(pull.PullConsumer.queues)

    @parameters_of(pull.PullConsumer.assign)
    def assign(self, *args: Any, **options: Any) -> None:
        if self._loop is None:
            self._core.assign(*args, **options)
        else:
            self._loop.call(self._core.assign, *args, **options)

    poll = blocking(pull.PullConsumer.poll)
    commit = blocking(pull.PullConsumer.commit)
    seek = blocking(pull.PullConsumer.seek)
    seek_to_begin = blocking(pull.PullConsumer.seek_to_begin)
    seek_to_end = blocking(pull.PullConsumer.seek_to_end)
    position = blocking(pull.PullConsumer.position)
    committed = blocking(pull.PullConsumer.committed)
    min_offset = blocking(pull.PullConsumer.min_offset)
    max_offset = blocking(pull.PullConsumer.max_offset)
    offset_by_time = blocking(pull.PullConsumer.offset_by_time)


class Reader(StartedClient[reader.Reader]):
    """Reads a topic without a group; see :class:`orbitmq.Reader`.

    Takes the same arguments, and raises the same errors.
    """

    @made_as(reader.Reader)
    def __init__(self, *args: Any, **options: Any) -> None:
        core = reader.Reader(*args, **options)
        super().__init__(core, core.topic)
        self.topic = core.topic

    messages = iterating(reader.Reader.messages)
    batches = iterating(reader.Reader.batches)
    steps = iterating(reader.Reader.steps)
    offsets = blocking(reader.Reader.offsets)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()
