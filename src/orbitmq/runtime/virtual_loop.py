"""An asyncio event loop on virtual time: when nothing is ready it jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
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


class SimulatedProcess:
    """One process of a simulated machine: all that runs in its context can stand still, or end at any await.

    Callbacks and tasks belong to the process in whose context they were made; what it makes itself does too.

    Attributes:
        name: of its machine.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._frozen = False
        self._killed = False
        self._held: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def running(self) -> bool:
        """Whether it is neither frozen nor killed."""
        return not self._frozen and not self._killed

    @property
    def killed(self) -> bool:
        return self._killed

    def context(self) -> Context:
        """A context in which new tasks belong to this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def freeze(self) -> None:
        """Nothing of it runs until :meth:`thaw` (SIGSTOP); timers that become due meanwhile wait."""
        self._frozen = True

    def thaw(self) -> None:
        """Go on (SIGCONT)."""
        self._frozen = False
        if not self._killed:
            self._replay()

    def kill(self) -> None:
        """End it here (SIGKILL): no line of it runs any more, also no ``finally``."""
        self._killed = True
        # Tasks that nobody holds would be closed by the garbage collector, which runs their `finally`.
        self._tasks = list(asyncio.all_tasks())

    def bury(self) -> None:
        """Before the loop closes: let the tasks of a killed process be cancelled."""
        self._frozen = self._killed = False
        self._tasks = []
        self._replay()

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback that became due while the process does not run."""
        self._held.append(handle)

    def _replay(self) -> None:
        held, self._held = self._held, []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.run_again(held)


_PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("simulated process", default=None)


def current_process() -> SimulatedProcess | None:
    """The process that the caller belongs to."""
    return _PROCESS.get()


def runs_now(context: Context) -> bool:
    """Whether the process of a context can run; what belongs to none always can."""
    process = context.get(_PROCESS)
    return process is None or process.running


class _NothingToDo:
    _cancelled = True


_NOTHING_TO_DO: Any = _NothingToDo()


class _Ready(deque[Any]):
    """asyncio's queue of callbacks that are due; those of processes that do not run are held back."""

    def popleft(self) -> Any:
        handle = super().popleft()
        process = handle._context.get(_PROCESS)
        if process is None or process.running:
            return handle
        process.hold(handle)
        return _NOTHING_TO_DO


class _JumpingSelector:
    """Stands where asyncio waits for sockets: waiting is what moves the virtual clock."""

    def __init__(self, clock: VirtualClock, max_iterations: int) -> None:
        self._clock = clock
        self._max_iterations = max_iterations
        self.iterations = 0

    def select(self, timeout: float | None) -> list[Any]:
        self.iterations += 1
        if self.iterations > self._max_iterations:
            raise SimulationStuckError(f"more than {self._max_iterations} iterations of the loop")
        if timeout is None:
            raise SimulationStuckError("every task waits, and no timer is set that could wake one")
        if timeout > 0:
            self._clock.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to release."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, tasks and futures as ever; no sockets, no threads, no real waiting.

    Args:
        max_iterations: turns of the loop, after which the program counts as stuck.
    """

    def __init__(self, clock: VirtualClock, seed: int = 0, *, max_iterations: int = MAX_ITERATIONS) -> None:
        super().__init__()
        self.clock = clock
        self.seed = seed
        self._selector = _JumpingSelector(clock, max_iterations)
        self._ready = _Ready()
        self._scheduled: list[asyncio.TimerHandle]

    @property
    def iterations(self) -> int:
        """The turns of the loop so far."""
        return self._selector.iterations

    async def until_next_event(self) -> None:
        """Return in the moment of the next timer, beside what that timer makes run."""
        due = next((handle.when() for handle in sorted(self._scheduled) if not handle.cancelled()), None)
        await asyncio.sleep(0 if due is None else max(0.0, due - self.time()))

    def run_again(self, handles: list[asyncio.Handle]) -> None:
        """Callbacks that were held back are due now."""
        self._ready.extend(handles)

    def time(self) -> float:
        return self.clock.monotonic()

    def _process_events(self, event_list: list[Any]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """No other thread, nothing to wake."""

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated loop has no threads: use Runtime.threads")
