"""The life of a client: new, running, closed. One table holds the allowed transitions."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Any, Self

from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client")


class State(Enum):
    """The stages in the life of a producer or consumer."""

    NEW = "not started"
    RUNNING = "running"
    CLOSED = "closed"


# A closed client stays closed: its connections and its background work are gone.
MOVES: Mapping[State, frozenset[State]] = {
    State.NEW: frozenset({State.RUNNING, State.CLOSED}),
    State.RUNNING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset({State.CLOSED}),
}


class ClientState:
    """The state of one client.

    Args:
        name: the client's name in error texts, for example ``producer 'orders'``.

    Attributes:
        state: the current state; changed by :meth:`move` only.
        running: whether :attr:`state` is RUNNING.
        loop: the event loop that the client was started in; the client works only in this loop.
        closer: the task whose :meth:`end` closed the client, if any.
    """

    __slots__ = ("_closing", "_name", "closer", "loop", "running", "state")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = State.NEW
        self.running = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closer: asyncio.Task[Any] | None = None
        self._closing: asyncio.Task[None] | None = None

    def move(self, to: State) -> State:
        """Enter a state; returns the previous one.

        Raises:
            ClientStateError: the table has no transition from the present state.
        """
        before = self.state
        if to not in MOVES[before]:
            started = "is started already" if before is State.RUNNING else "was closed; make a new one"
            raise ClientStateError(f"{self._name} {started}")
        if to is State.RUNNING:
            self.loop = asyncio.get_running_loop()
        self.state = to
        self.running = to is State.RUNNING
        return before

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start within the block; if a shared client is unusable, this client is closed.

        Raises:
            ClientStateError: the client was started before or is closed, or the block raises it.
        """
        self.move(State.RUNNING)
        try:
            yield
        except ClientStateError:
            self.move(State.CLOSED)
            raise

    async def end(
        self, work: Callable[[], Coroutine[Any, Any, None]], calls: Collection[asyncio.Task[None]] = ()
    ) -> None:
        """Close the client by ``work``, which runs once and to its end. A second call waits for it, too.

        The work continues when the caller is cancelled or times out: a half-closed client would stay in its
        group, and keep queues that it does not read.

        Args:
            calls: running calls of the user's code. ``work`` waits for them, except for :attr:`closer`. A
                second call to close from one of them returns at once: it and ``work`` would wait for each
                other.

        Raises:
            ClientStateError: called in another event loop than the client's.
        """
        self.check_loop()
        here = asyncio.current_task()
        if self.move(State.CLOSED) is State.RUNNING:
            self.closer = here
            self._closing = asyncio.get_running_loop().create_task(work(), name=f"closing of {self._name}")
            self._closing.add_done_callback(self._closed)
        elif here in calls:
            return
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        # Waiting callers get the error, too, but it is logged because there may be none.
        if not closing.cancelled() and (error := closing.exception()) is not None:
            log.error("%s did not close as it should", self._name, exc_info=error)

    def check_running(self) -> None:
        """Refuse to work for a client that is not running.

        Raises:
            ClientStateError: the client was not started, or it is closed.
        """
        if not self.running:
            raise ClientStateError(f"{self._name} is not running; use 'async with' or start()")

    def check_loop(self) -> None:
        """Refuse to work in another event loop than the one that the client was started in.

        Raises:
            ClientStateError: the client's connections and background work belong to another loop.
        """
        if self.loop is not None and self.loop is not asyncio.get_running_loop():
            raise ClientStateError(
                f"{self._name} was started in another event loop and works only there: make one in each loop "
                "(every asyncio.run() has a loop of its own), or use orbitmq.sync, which works in any thread"
            )

    def check_here(self) -> None:
        """Refuse to work for a client that is not running, or not in this event loop.

        Raises:
            ClientStateError: as :meth:`check_running` and :meth:`check_loop`.
        """
        self.check_running()
        self.check_loop()


class AsyncContext(ABC):
    """A client that starts when an ``async with`` block is entered and closes when it is left."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
