"""The deadlines of the calls of all connections, in slots of time, with one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

# Deadlines are rounded up to slots of this length: the client has given the call up by the end of its slot.
SLOT_MS: Final = 50

C = TypeVar("C")


class Deadlines(Generic[C]):
    """Calls by the slot of time in which their deadlines lie.

    Args:
        expired: called with each call whose deadline has passed. An exception of it goes to the event loop's
            exception handler; the other calls end all the same.
    """

    def __init__(self, expired: Callable[[C], object]) -> None:
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._slots: dict[int, dict[C, None]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: C, timeout_ms: int) -> dict[C, None]:
        """Add a call. Returns the calls of its slot; removing the call from them removes its deadline."""
        slot = int((self._loop.time() * 1000 + timeout_ms) // SLOT_MS) + 1
        due = self._slots.get(slot)
        if due is None:
            due = self._slots[slot] = {}
            heapq.heappush(self._order, slot)
            if self._order[0] == slot:
                self._wake()
        due[call] = None
        return due

    def close(self) -> None:
        """Forget all calls."""
        self._slots.clear()
        self._order.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        """Set the timer to the end of the first slot."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            first = self._order[0]
            self._timer = self._loop.call_at(first * SLOT_MS / 1000, self._tick, first)

    def _tick(self, slot: int) -> None:
        self._timer = None
        try:
            while self._order and self._order[0] <= slot:
                calls = self._slots[self._order[0]]
                while calls:
                    call = next(iter(calls))
                    del calls[call]
                    self._expired(call)
                del self._slots[heapq.heappop(self._order)]
        finally:
            # Empty slots, whose calls have ended, need no timer.
            while self._order and not self._slots[self._order[0]]:
                del self._slots[heapq.heappop(self._order)]
            self._wake()
