"""Lets answers wait until the broker's tables are on disk, without a task for each answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import iscoroutine
from typing import TypeAlias

from orbitmq.runtime.tasks import Background

log = logging.getLogger("orbitmq.gateway")

# Called with the error of the write; None after success.
Then: TypeAlias = Callable[[Exception | None], object]


class Saves:
    """Awaits writes in the order in which they were added.

    One task does so as long as the service runs: one write of a table serves all answers that wait for it.
    A task that ended with the last write would leave a gap: its :class:`Background` counts it until the event
    loop's next turn, and refuses another one.
    """

    def __init__(self, background: Background) -> None:
        self._waiting: deque[tuple[Awaitable[object] | None, Then]] = deque()
        self._came = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()
        background.spawn(self._follow(), "answers that wait for the disk")

    def add(self, saved: Awaitable[object] | None, then: Then) -> None:
        """Call ``then`` soon after the awaitable has ended; with None at the next turn of the task."""
        self._waiting.append((saved, then))
        self._came.set()
        self._done.clear()

    async def stop(self, limit_s: float) -> None:
        """Wait until all answers are sent, for at most this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._done.wait()

    async def _follow(self) -> None:
        try:
            while True:
                await self._came.wait()
                while self._waiting:
                    await self._one(*self._waiting.popleft())
                self._came.clear()
                self._done.set()
        finally:
            for saved, _ in self._waiting:
                # A coroutine that nothing will await has to be closed, or Python warns.
                if iscoroutine(saved):
                    saved.close()

    async def _one(self, saved: Awaitable[object] | None, then: Then) -> None:
        found: Exception | None = None
        try:
            if saved is not None:
                await saved
        except Exception as error:
            found = error
        try:
            then(found)
        except Exception:
            log.exception("an answer that waited for the disk failed")
