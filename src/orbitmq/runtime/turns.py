"""Pieces of work that take turns: one in each iteration of the event loop, beside all else that it does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Work that waits for its turn. Each waiter waits once, so there are as many as there are waiters."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, work: Callable[[], None]) -> None:
        """Do this in an iteration of the loop of its own, behind what waits already."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._waiting[0]
        try:
            work()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)
