"""Waiting until a condition holds: the code that changes it wakes the waiting tasks, so none polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Waiters:
    """Tasks that wait until a condition on some state holds. Code that changes it calls :meth:`changed`.

    Like :class:`asyncio.Condition` without its lock, since the state changes in plain functions: only tasks
    whose condition holds are woken. All of it happens on one event loop.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: The conditions that tasks wait for. Usually empty: a busy path may check that before it calls
        #:meth:`changed`.
        self.waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def changed(self) -> None:
        """Wake the tasks whose condition holds now, after a change of the state."""
        for woken, holds in self.waiting.items():
            if not woken.done() and holds():
                woken.set_result(None)

    async def until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Return when the condition holds, or after this many seconds.

        Returns:
            Whether it holds now. It may have ceased to hold since the task was woken.
        """
        if holds():
            return True
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self.waiting[woken] = holds
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, woken)
        try:
            await woken
        finally:
            del self.waiting[woken]
            if timer is not None:
                timer.cancel()
        return holds()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
