"""The life of a client: new, running, closed. Which moves there are stands in one table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from types import TracebackType
from typing import Self

from orbitmq.errors import ClientStateError


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


class Life:
    """The state of one client.

    Args:
        name: how errors call the client, for example ``producer 'orders'``.

    Attributes:
        state: where the client is now; changed by :meth:`move` only.
        running: whether that is RUNNING.
    """

    __slots__ = ("_name", "running", "state")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = State.NEW
        self.running = False

    def move(self, to: State) -> State:
        """Enter a state; the one that was left.

        Raises:
            ClientStateError: there is no such move.
        """
        before = self.state
        if to not in MOVES[before]:
            started = "is started already" if before is State.RUNNING else "was closed; make a new one"
            raise ClientStateError(f"{self._name} {started}")
        self.state = to
        self.running = to is State.RUNNING
        return before

    def check_running(self) -> None:
        """Refuse to work for a client that is not running.

        Raises:
            ClientStateError: it was not started, or it is closed.
        """
        if not self.running:
            raise ClientStateError(f"{self._name} is not running; use 'async with' or start()")


class InBlock(ABC):
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
