"""The life of a client: new, running, closed. One table has the moves that are allowed."""

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
    """Where a producer or a consumer is in its life."""

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
        name: how errors call the client, for example ``producer 'orders'``.

    Attributes:
        state: where the client is now; changed by :meth:`move` only.
        running: whether :attr:`state` is RUNNING.
        loop: the event loop that the client was started in; it works only there.
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
        """Enter a state; returns the one that was left.

        Raises:
            ClientStateError: the present state does not lead there.
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
        """Start within the block; a client whose shared client cannot be used is closed.

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
        """Close the client by ``work``, which is done once and to its end. A later call waits for it too.

        The work goes on when the caller is cancelled or out of time: a half-closed client would stay in its
        group, and hold the queues that it no longer reads.

        Args:
            calls: running calls of the user's code. ``work`` waits for them, except for :attr:`closer`. A
                second call that closes returns at once, as neither could end before the other.

        Raises:
            ClientStateError: called in another event loop than the one that the client was started in.
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
        # Waiting callers get the error, too, but there may be none.
        if not closing.cancelled() and (error := closing.exception()) is not None:
            log.error("%s did not close as it should", self._name, exc_info=error)

    def check_running(self) -> None:
        """Refuse to work for a client that is not running.

        Raises:
            ClientStateError: it was not started, or it is closed.
        """
        if not self.running:
            raise ClientStateError(f"{self._name} is not running; use 'async with' or start()")

    def check_loop(self) -> None:
        """Refuse to work in another event loop than the one that the client was started in.

        Raises:
            ClientStateError: its connections and its background work belong to that other loop.
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
