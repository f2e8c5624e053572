"""An event loop on virtual time that runs several coroutines in turn: a server started before a test serves
the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from orbitmq.testing.machine.simulated import DEFAULT_LIMIT_S
from orbitmq.testing.machine.virtual_loop import VirtualClock, VirtualLoop

T = TypeVar("T")


class SimulatedLoop:
    """Runs coroutines one after the other on one virtual-time loop; between two of them nothing runs.

    Args:
        seed: the seed of every ``simulated_runtime()`` that is created on this loop without its own seed.
        limit_s: seconds of virtual time that one coroutine may take.
    """

    def __init__(self, *, seed: int = 0, limit_s: float = DEFAULT_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(VirtualClock(), seed))
        self._entered = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result.

        Raises:
            TimeoutError: the coroutine took longer than ``limit_s``.
            SimulationStuckError: the coroutine waits for an event that cannot happen.
        """

        async def limited() -> T:
            return await asyncio.wait_for(work, self._limit_s)

        return self._runner.run(limited())

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager; :meth:`close` exits all of them in reverse order."""
        return self.run(self._entered.enter_async_context(manager))

    def close(self) -> None:
        """Exit the entered context managers, cancel the remaining tasks, close the loop."""
        try:
            self.run(self._entered.aclose())
        finally:
            self._runner.close()
