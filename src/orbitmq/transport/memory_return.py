"""Gives memory back to the machine after many clients have left."""

from __future__ import annotations

import asyncio
from typing import Final

from orbitmq.runtime.seam import Runtime

# Those that leave together do so within this time.
DELAY_S: Final = 3.0


class MemoryReturn:
    """Waits until those that leave have left. The work is done by a thread: it takes a millisecond per MB."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._planned = False

    def plan(self) -> None:
        """Many have left: give back what is free soon."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_later(DELAY_S, self._begin)

    def _begin(self) -> None:
        self._planned = False
        self._runtime.threads.run(self._runtime.host.give_back_memory)
