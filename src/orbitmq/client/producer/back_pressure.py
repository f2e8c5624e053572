"""A limit for what a producer has under way, in messages and bytes (AS-09)."""

from __future__ import annotations

import asyncio
from collections import deque


class BackPressure:
    """Whoever would exceed a limit waits, in order, until others are done.

    Args:
        max_messages: sends under way at a time.
        max_bytes: their bodies together. One body over the limit may go when nothing else is under way.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def take(self, size_bytes: int) -> bool:
        """Enter at once if there is room and nobody waits."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self._enter(size_bytes)
        return True

    async def enter(self, size_bytes: int) -> None:
        """Enter, waiting for room. A cancelled waiter leaves its place in the line to the next."""
        if self.take(size_bytes):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((admitted, size_bytes))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(size_bytes)
            else:
                self._let_in()
            raise

    def leave(self, size_bytes: int) -> None:
        """Done, one way or the other."""
        self._messages -= 1
        self._bytes -= size_bytes
        self._let_in()

    def _fits(self, size_bytes: int) -> bool:
        if not self._messages:
            return True
        return self._messages < self._max_messages and self._bytes + size_bytes <= self._max_bytes

    def _enter(self, size_bytes: int) -> None:
        self._messages += 1
        self._bytes += size_bytes

    def _let_in(self) -> None:
        while self._waiting:
            admitted, size_bytes = self._waiting[0]
            if admitted.done():
                self._waiting.popleft()
            elif self._fits(size_bytes):
                self._waiting.popleft()
                self._enter(size_bytes)
                admitted.set_result(None)
            else:
                return
