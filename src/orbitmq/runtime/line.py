"""Admits work of which only a limited amount may be under way at a time."""

from __future__ import annotations

import asyncio

# Larger than every sum of sizes: for lines whose entries have no weight.
NO_LIMIT = 1 << 62


class Line:
    """Admits entries up to a number and a total weight; the others wait, first come first served.

    An entry heavier than ``max_weight`` is admitted when nothing else is inside.

    Args:
        places: entries inside at a time, at least 1.
        max_weight: their weights together.
    """

    __slots__ = ("_inside", "_max_weight", "_places", "_waiting", "_weight")

    def __init__(self, places: int, max_weight: int = NO_LIMIT) -> None:
        self._places = places
        self._max_weight = max_weight
        self._inside = 0
        self._weight = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def take(self, weight: int = 0) -> bool:
        """Enter now if there is room and no other entry waits."""
        if self._waiting or not self._fits(weight):
            return False
        self._inside += 1
        self._weight += weight
        return True

    async def enter(self, weight: int = 0, *, deadline: float | None = None) -> None:
        """Enter, waiting for room until ``deadline`` (time of the event loop).

        A wait that is cancelled or too long leaves its place in the line to the next.

        Raises:
            TimeoutError: there was no room in time.
        """
        if self.take(weight):
            return
        loop = asyncio.get_running_loop()
        if deadline is not None and deadline <= loop.time():
            raise TimeoutError
        admitted: asyncio.Future[None] = loop.create_future()
        self._waiting[admitted] = weight
        timer = None if deadline is None else loop.call_at(deadline, _expire, admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self.leave(weight)  # admitted in the same moment
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if self._waiting.pop(admitted, None) is not None:
                self._let_in()

    def leave(self, weight: int = 0) -> None:
        """End an entry of that weight, and admit those that have room now."""
        self._inside -= 1
        self._weight -= weight
        if self._waiting:
            self._let_in()

    def _fits(self, weight: int) -> bool:
        if not self._inside:
            return True
        return self._inside < self._places and self._weight + weight <= self._max_weight

    def _let_in(self) -> None:
        while self._waiting:
            admitted, weight = next(iter(self._waiting.items()))
            if not admitted.done():
                if not self._fits(weight):
                    return
                self._inside += 1
                self._weight += weight
                admitted.set_result(None)
            del self._waiting[admitted]


def _expire(admitted: asyncio.Future[None]) -> None:
    if not admitted.done():
        admitted.set_exception(TimeoutError())
