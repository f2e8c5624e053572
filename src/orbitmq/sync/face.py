"""What all blocking clients share: a life on an event loop of their own."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from orbitmq.client.consumer import assigned, consumer, pull, simple
from orbitmq.client.consumer.handling import Listener, is_async
from orbitmq.client.producer import producer
from orbitmq.errors import ClientStateError
from orbitmq.runtime.loop_thread import LoopThread

T = TypeVar("T")


class Face:
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
        # A signal handler may close while its own thread does.
        self._closing = threading.RLock()
        self._inside = threading.local()

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
        """Close the client and end its thread; a further call waits for that.

        In a handler of this consumer it only begins: what waits for the end of all handlers ends after it.

        Raises:
            ClientStateError: called on the client's own thread, as by a callback, where nothing may wait.
        """
        loop = self._loop
        if loop is not None and loop.here:
            raise ClientStateError(
                f"close() of {self.group!r} waits, and cannot be called on the client's own thread"
            )
        if getattr(self._inside, "handler", False):
            if loop is not None:
                loop.submit(self._core.close())
            return
        with self._closing:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            try:
                loop.wait(self._core.close())
            finally:
                loop.stop()

    def _handler(self, listener: Listener) -> Listener:
        """The listener, which may close this client when it runs in a thread."""
        if is_async(listener):
            return listener

        @wraps(listener, updated=())
        def call(messages: Any) -> object:
            self._inside.handler = True
            try:
                return listener(messages)
            finally:
                self._inside.handler = False

        return call

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
