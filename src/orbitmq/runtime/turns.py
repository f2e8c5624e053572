"""Does work in turns: each iteration of the event loop does one piece, besides its other work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A queue of steps of TLS handshakes, at most one of each connection; each turn does one step."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, work: Callable[[], None]) -> None:
        """Do ``work`` in a later iteration of the event loop, after the work that waits already."""
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
