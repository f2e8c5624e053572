"""The clients of each machine: started, killed, closed as on SIGTERM, and started again."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from functools import partial
from typing import Any

from tools.simulation.history import History
from tools.simulation.site import Site

# Clients that close while brokers do not answer wait for some timeouts.
CLOSE_LIMIT_S = 60.0
LOOK_S = 0.05


class Lives(ABC):
    """The clients of each machine; each start is a new life."""

    def __init__(self, site: Site, history: History) -> None:
        self._site = site
        self._history = history
        self._lives = 0
        # The number of each machine's running life.
        self._current: dict[str, str] = {}
        self._work: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    def _work_of(self, machine: str, life: str) -> Coroutine[Any, Any, None]:
        """The work of a machine's clients until they are closed."""

    def begin(self, machine: str) -> None:
        """Start the clients of one machine."""
        self._lives += 1
        life = f"{machine}/{self._lives}"
        self._current[machine] = str(self._lives)
        self._work[machine] = task = self._site.machines[machine].begin(self._work_of(machine, life))
        task.add_done_callback(partial(self._ended, life))

    def _ended(self, life: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._history.violate("nothing crashes", f"{life} ends: {error!r}")

    def kill(self, machine: str) -> bool:
        """End the clients of a machine at once; returns whether any were running."""
        if self._current.pop(machine, None) is None:
            return False
        self._site.kill(machine)
        return True

    async def leave(self, machine: str) -> bool:
        """Close the clients of a machine, as on SIGTERM, and end its process; returns whether any were
        running.
        """
        life = self._current.get(machine)
        if life is None:
            return False
        task = self._work[machine]
        task.cancel()
        # The work of a process that is killed meanwhile never ends.
        limit = self._site.clock.monotonic() + CLOSE_LIMIT_S
        while not task.done() and self._current.get(machine) == life:
            if self._site.clock.monotonic() > limit:
                text = f"the clients of {machine} still close after {CLOSE_LIMIT_S:g} s"
                self._history.violate("processes end clean", text)
                break
            await asyncio.sleep(LOOK_S)
        return self._current.get(machine) == life and self.kill(machine)
