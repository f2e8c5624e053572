"""Gives free memory back to the operating system after many clients have disconnected."""

from __future__ import annotations

import asyncio
from typing import Final

from orbitmq.runtime.seam import Runtime

# Clients that disconnect together do so within this time.
DELAY_S: Final = 3.0


class MemoryReturn:
    """Gives memory back some seconds later, when all these clients have gone. A thread does the work, which
    takes a millisecond per MB."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._planned = False

    def plan(self) -> None:
        """Give free memory back after :data:`DELAY_S`."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_later(DELAY_S, self._begin)

    def _begin(self) -> None:
        self._planned = False
        self._runtime.threads.run(self._runtime.host.give_back_memory)
