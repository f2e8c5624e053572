"""An asyncio event loop on virtual time: when nothing is ready it jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from typing import Any, NoReturn

# A simulated day starts at the same moment in every run.
EPOCH_MS = 1_700_000_000_000
# Simulated machines stand in Greenwich.
_EPOCH = datetime(1970, 1, 1)
MAX_ITERATIONS = 50_000_000
# Beyond so many timers those that were cancelled are dropped once they are the most.
_FEW_TIMERS = 100


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
        running: whether it is neither frozen nor killed; ``killed``: whether it has ended.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.running = True
        self.killed = False
        self._held: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def context(self) -> Context:
        """A context in which new tasks belong to this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def freeze(self) -> None:
        """Nothing of it runs until :meth:`thaw` (SIGSTOP); timers that become due meanwhile wait."""
        self.running = False

    def thaw(self) -> None:
        """Go on (SIGCONT)."""
        if not self.killed:
            self.running = True
            self._replay()

    def kill(self) -> None:
        """End it here (SIGKILL): no line of it runs any more, also no ``finally``."""
        self.running, self.killed = False, True
        # Tasks that nobody holds would be closed by the garbage collector, which runs their `finally`.
        self._tasks = list(asyncio.all_tasks())

    def bury(self) -> None:
        """Before the loop closes: let the tasks of a killed process be cancelled."""
        self.running, self.killed = True, False
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


class _Task(asyncio.Task[Any]):
    """A task with a number: asyncio keeps tasks in sets, whose order would else be that of addresses."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, tasks and futures as ever; no sockets, no threads, no real waiting.

    Args:
        max_iterations: turns of the loop, after which the program counts as stuck.

    Attributes:
        iterations: the turns of the loop so far.
    """

    # asyncio's own.
    _clock_resolution: float
    _closed: bool
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, clock: VirtualClock, seed: int = 0, *, max_iterations: int = MAX_ITERATIONS) -> None:
        super().__init__()
        self.clock = clock
        self.seed = seed
        self.iterations = 0
        self._max_iterations = max_iterations
        self._ready: deque[Any] = deque()
        # (due, number, handle): what is due at one moment runs in the order in which it was set.
        self._scheduled: list[tuple[float, int, Any]] = []
        self._timers_set = 0
        self._tasks_made = 0
        self.set_task_factory(self._new_task)

    def _new_task(self, _loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks_made += 1
        return _Task(self._tasks_made, coro, loop=self, **options)

    def time(self) -> float:
        return self.clock.monotonic()

    async def until_next_event(self) -> None:
        """Return in the moment of the next timer, beside what that timer makes run."""
        due = min((due for due, _, handle in self._scheduled if not handle.cancelled()), default=None)
        await asyncio.sleep(0 if due is None else max(0.0, due - self.time()))

    def run_again(self, handles: list[asyncio.Handle]) -> None:
        """Callbacks that were held back are due now."""
        self._ready.extend(handles)

    # -- asyncio's loop, without sockets, other threads and debugging: a run spends most of its time here ----

    def call_soon(  # type: ignore[override]  # typeshed ties arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer: Any = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True
        self._timers_set += 1
        heapq.heappush(self._scheduled, (when, self._timers_set, timer))
        return timer  # type: ignore[no-any-return]

    def _run_once(self) -> None:
        """One turn: pass over time when nothing is ready, then run what is ready when the turn begins."""
        self.iterations += 1
        if self.iterations > self._max_iterations:
            raise SimulationStuckError(f"more than {self._max_iterations} iterations of the loop")
        self._take_due()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_PROCESS)
            if process is None or process.running:
                handle._run()
            else:
                process.hold(handle)

    def _take_due(self) -> None:
        if self._timer_cancelled_count:
            self._forget_cancelled()
        clock, scheduled, ready = self.clock, self._scheduled, self._ready
        if not ready and not self._stopping:
            if not scheduled:
                raise SimulationStuckError("every task waits, and no timer is set that could wake one")
            clock.advance(max(0.0, scheduled[0][0] - clock.monotonic()))
        end = clock.monotonic() + self._clock_resolution
        while scheduled and scheduled[0][0] < end:
            handle = heapq.heappop(scheduled)[2]
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)

    def _forget_cancelled(self) -> None:
        scheduled = self._scheduled
        if len(scheduled) > _FEW_TIMERS and 2 * self._timer_cancelled_count > len(scheduled):
            for entry in scheduled:
                entry[2]._scheduled = not entry[2]._cancelled
            scheduled[:] = [entry for entry in scheduled if not entry[2]._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[2]._scheduled = False

    def _write_to_self(self) -> None:
        """No other thread, nothing to wake."""

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated loop has no threads: use Runtime.threads")
