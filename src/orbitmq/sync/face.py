"""What all blocking clients share: a life on an event loop of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Self, TypeVar

from orbitmq.client.consumer import assigned, consumer, pull, simple
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
