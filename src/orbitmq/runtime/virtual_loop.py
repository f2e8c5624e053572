"""An asyncio event loop on virtual time: when nothing is ready it jumps to the next timer."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, NoReturn

# A simulated day starts at the same moment in every run.
EPOCH_MS = 1_700_000_000_000
# Simulated machines stand in Greenwich.
_EPOCH = datetime(1970, 1, 1)
MAX_ITERATIONS = 50_000_000


class SimulationStuckError(RuntimeError):
    """The simulated program waits for something that can never happen, or never lets time pass."""


class VirtualClock:
    """Time that moves only when the loop jumps or :meth:`advance` is called."""

    def __init__(self, epoch_ms: int = EPOCH_MS) -> None:
        self._epoch_ms = epoch_ms
        self._now = 0.0

    def now_ms(self) -> int:
        # Rounded to microseconds first: sums of floats must not show the millisecond before.
        return self._epoch_ms + round(self._now * 1e6) // 1000

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def local_time(self, epoch_ms: int) -> datetime:
        return _EPOCH + timedelta(milliseconds=epoch_ms)

    def epoch_ms(self, local: datetime) -> int:
        return (local - _EPOCH) // timedelta(milliseconds=1)

    def advance(self, seconds: float) -> None:
        """Let time pass by hand. Timers that became due run in the loop's next iteration."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back with a negative number; no time passes."""
        self._epoch_ms += round(seconds * 1000)


class _JumpingSelector:
    """Stands where asyncio waits for sockets: waiting is what moves the virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._iterations = 0

    def select(self, timeout: float | None) -> list[Any]:
        self._iterations += 1
        if self._iterations > MAX_ITERATIONS:
            raise SimulationStuckError(f"more than {MAX_ITERATIONS} iterations of the loop")
        if timeout is None:
            raise SimulationStuckError("every task waits, and no timer is set that could wake one")
        if timeout > 0:
            self._clock.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to release."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, tasks and futures as ever; no sockets, no threads, no real waiting."""

    def __init__(self, clock: VirtualClock, seed: int = 0) -> None:
        super().__init__()
        self.clock = clock
        self.seed = seed
        self._selector = _JumpingSelector(clock)

    def time(self) -> float:
        return self.clock.monotonic()

    def _process_events(self, event_list: list[Any]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """No other thread, nothing to wake."""

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated loop has no threads: use Runtime.threads")
