"""Base of all blocking clients: their life on an event loop of their own, and methods derived from the async
ones.
"""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from orbitmq.client.consumer import consumer, pull, simple
from orbitmq.client.consumer.handling import Handler
from orbitmq.client.producer import producer
from orbitmq.errors import ClientStateError
from orbitmq.runtime.loop_thread import LoopThread
from orbitmq.runtime.program_end import close_at_end
from orbitmq.runtime.tasks import is_async

Grouped = producer.Producer | consumer.Consumer | pull.PullConsumer | simple.SimpleConsumer
C = TypeVar("C", bound="Core")
S = TypeVar("S", bound="StartedCore")
G = TypeVar("G", bound=Grouped)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# The client whose handler runs on this thread.
_handles: ContextVar[object] = ContextVar("_handles", default=None)


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """A method of a blocking client that waits for this async one: same parameters, result and docstring."""

    @wraps(method)
    def wait(self: OnLoop, /, *args: P.args, **options: P.kwargs) -> R:
        loop = self._running()
        work: Coroutine[Any, Any, R] = getattr(self._core, method.__name__)(*args, **options)
        return loop.wait(work)

    return wait


def on_loop(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of a blocking client that calls this plain one on the client's event loop."""

    @wraps(method)
    def call(self: OnLoop, /, *args: P.args, **options: P.kwargs) -> R:
        function: Callable[..., R] = getattr(self._core, method.__name__)
        return self._running().call(function, *args, **options)

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """A method of a blocking client that iterates over this async generator."""

    @wraps(method)
    def each(self: BlockingClient[Any], /, *args: P.args, **options: P.kwargs) -> Iterator[R]:
        source: AsyncGenerator[R, None] = getattr(self._core, method.__name__)(*args, **options)
        return self._each(source)

    signature = inspect.signature(method)
    item = str(signature.return_annotation).partition("[")[2].removesuffix(", None]")
    each.__signature__ = signature.replace(return_annotation=f"Iterator[{item}]")  # type: ignore[attr-defined]
    return each


def parameters_of(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Decorator: gives a blocking method the parameters of this async one, and keeps its body and result."""

    def decorate(body: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        back = inspect.signature(body).return_annotation
        signature = inspect.signature(method).replace(return_annotation=back)
        body.__signature__ = signature  # type: ignore[attr-defined]
        body.__doc__ = body.__doc__ or method.__doc__
        return body

    return decorate


def made_as(
    kind: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Decorator: gives a constructor the parameters of this class."""

    def decorate(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        own = next(iter(inspect.signature(init).parameters.values()))
        signature = inspect.signature(kind)
        init.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *signature.parameters.values()]
        )
        return init

    return decorate


def _nothing() -> None:
    return None


class Core(Protocol):
    """The methods that every async client has."""

    async def close(self) -> None: ...


class StartedCore(Core, Protocol):
    """An async client that has to be started."""

    async def start(self) -> None: ...


class OnLoop(Protocol):
    """A blocking client or a part of one: its calls go to the core, on the loop."""

    @property
    def _core(self) -> Any: ...

    def _running(self) -> LoopThread: ...


class BlockingClient(Generic[C]):
    """A blocking client, whose async core runs on a loop of its own.

    Args:
        core: the async client, not started.
        name: the client's name in errors and in the name of its thread.
    """

    def __init__(self, core: C, name: str) -> None:
        self._core = core
        self._name = name
        self._loop: LoopThread | None = None
        self._not_at_end: Callable[[], object] = _nothing

    async def _begin(self) -> None:
        """Start the core. Subclasses override this."""

    def start(self) -> None:
        """Start the background thread and the client.

        Raises:
            ClientStateError: the client was started before.
        """
        loop = LoopThread(f"orbitmq-{self._name}")
        try:
            loop.wait(self._begin())
        except BaseException:
            loop.stop()
            raise
        self._loop = loop
        # The thread ends with the program: without this hook the last submitted messages, acknowledgements
        # and commits would be lost.
        self._not_at_end = close_at_end(f"client {self._name!r}", self._begin_to_close)

    def _begin_to_close(self) -> concurrent.futures.Future[None] | None:
        loop = self._loop
        return loop.submit(self._core.close()) if loop is not None and loop.open else None

    def close(self) -> None:
        """Close the client and end its thread; a second call waits until it is closed.

        The end of the program also closes an open client, within 10 s.

        In a handler of this consumer the call returns at once: the client closes when all handlers have
        ended.

        Raises:
            ClientStateError: called on the client's own thread, as in a callback, where no call may wait.
        """
        loop = self._loop
        if loop is None:
            return
        if loop.here:
            raise ClientStateError(
                f"close() of {self._name!r} waits, and cannot be called on the client's own thread"
            )
        if _handles.get() is self:
            loop.submit(self._core.close())
            return
        with loop.ending:
            if self._loop is not loop:
                return
            try:
                loop.wait(self._core.close())
            finally:
                self._loop = None
                self._not_at_end()
                loop.stop()

    def _handler(self, listener: Handler) -> Handler:
        """The listener; a plain one is wrapped so that it may close this client."""
        if is_async(listener):
            return listener

        @wraps(listener, updated=())
        def call(messages: Any) -> object:
            before = _handles.set(self)
            try:
                return listener(messages)
            finally:
                _handles.reset(before)

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
            raise ClientStateError(f"client {self._name!r} is not running; use 'with' or start()")
        return self._loop

    def _each(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        loop = self._running()

        async def following() -> T | None:
            return await anext(source, None)

        try:
            while (found := loop.wait(following())) is not None:
                yield found
        finally:
            if self._loop is loop and loop.open:
                loop.wait(source.aclose())


class StartedClient(BlockingClient[S]):
    """A blocking client whose core has to be started."""

    async def _begin(self) -> None:
        await self._core.start()


class GroupClient(StartedClient[G]):
    """A client that belongs to a group."""

    def __init__(self, core: G) -> None:
        super().__init__(core, core.group)

    @property
    def group(self) -> str:
        return self._core.group
