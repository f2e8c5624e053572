"""A line of ready messages, and the handlers that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadyLine(Generic[T]):
    """A first-in, first-out line of ready items. One waiting handler is woken at a time, and it wakes the
    next one.

    A handler that never awaits thus serves a whole pull alone, without a wake-up for each message; as soon as
    it awaits something, the next handler continues with the rest.
    """

    __slots__ = ("_waiting", "_waking", "closed", "items")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.closed = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def put(self, item: T) -> None:
        self.items.append(item)
        self.wake()

    def extend(self, items: Iterable[T]) -> None:
        self.items.extend(items)
        self.wake()

    def pop(self) -> T | None:
        """The next item; None if the line is empty or closed."""
        items = self.items
        if not items or self.closed:
            return None
        item = items.popleft()
        if items and self._waiting and not self._waking:
            self.wake()
        return item

    def take_all(self) -> list[T]:
        """Remove and return all items."""
        found = list(self.items)
        self.items.clear()
        return found

    def wake(self) -> None:
        """Wake one waiting handler, unless a woken one has not run yet."""
        while self._waiting and not self._waking:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._waking = True

    async def wait(self) -> None:
        """Return when the line may have an item, or is closed."""
        if self.items or self.closed:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            elif not future.cancelled():
                # The cancelled handler was woken but takes no item: wake another one.
                self._waking = False
                self.wake()
            raise
        self._waking = False

    def close(self) -> None:
        """Give out nothing more, and wake all waiting handlers."""
        self.closed = True
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
