"""An asyncio event loop on virtual time: if nothing is ready, it jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn

# The wall clock at the start, the same in every run.
EPOCH_MS = 1_700_000_000_000
# The time zone of simulated machines is UTC.
_EPOCH = datetime(1970, 1, 1)
MAX_ITERATIONS = 50_000_000
# Above this number of timers, cancelled ones are dropped once they are the majority.
_FEW_TIMERS = 100


class SimulationStuckError(RuntimeError):
    """The simulated program waits for an event that can never happen, or never lets time pass."""


class VirtualClock:
    """Time that moves only when the loop jumps or :meth:`advance` is called.

    Attributes:
        now_s: the value of :meth:`monotonic`; the loop reads and moves it.
    """

    def __init__(self, epoch_ms: int = EPOCH_MS) -> None:
        self._epoch_ms = epoch_ms
        self.now_s = 0.0

    def now_ms(self) -> int:
        # Rounded to microseconds first: otherwise a sum of floats could fall into the previous millisecond.
        return self._epoch_ms + round(self.now_s * 1e6) // 1000

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def local_time(self, epoch_ms: int) -> datetime:
        return _EPOCH + timedelta(milliseconds=epoch_ms)

    def epoch_ms(self, local: datetime) -> int:
        return (local - _EPOCH) // timedelta(milliseconds=1)

    def advance(self, seconds: float) -> None:
        """Let time pass by hand. Timers that become due run in the loop's next iteration."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self.now_s += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or with a negative number back; no time passes."""
        self._epoch_ms += round(seconds * 1000)


class SimulatedProcess:
    """One process of a simulated machine: everything in its context can be frozen, or end at any await.

    Callbacks and tasks belong to the process in whose context they were created.

    Attributes:
        name: the name of the machine.
        running: whether the process is neither frozen nor killed; ``killed``: whether it was killed.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.running = True
        self.killed = False
        self._held: list[_Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def context(self) -> Context:
        """A context in which new tasks belong to this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def freeze(self) -> None:
        """Stop the process until :meth:`thaw` (SIGSTOP); timers that become due meanwhile wait."""
        self.running = False

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        if not self.killed:
            self.running = True
            self._replay()

    def kill(self) -> None:
        """End the process here (SIGKILL): none of its code runs any more, not even a ``finally``."""
        self.running, self.killed = False, True
        # Unreferenced tasks would be closed by the garbage collector, which runs their `finally`.
        self._tasks = list(asyncio.all_tasks())

    def bury(self) -> None:
        """Cancel the tasks of a killed process. To be called before the loop closes."""
        self.running, self.killed = True, False
        self._tasks = []
        self._replay()

    def hold(self, handle: _Handle) -> None:
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
    """Whether the process of a context runs; a context without a process always does."""
    process = context.get(_PROCESS)
    return process is None or process.running


class _Task(asyncio.Task[Any]):
    """A task with a number: asyncio keeps tasks in sets, whose order would otherwise depend on addresses in
    memory.
    """

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Handle(asyncio.TimerHandle):
    """A callback or a timer, without those parts of asyncio's class that only debugging needs."""

    # Attributes of asyncio's class.
    _callback: Any
    _args: Any
    _context: Context
    _loop: VirtualLoop

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: VirtualLoop, context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = False
        self._when = 0.0
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop.timer_cancelled()
            # Drop the callback, since it may keep much memory alive.
            self._callback = self._args = None


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, tasks and futures as in asyncio; no sockets, no threads, no real waiting.

    Args:
        max_iterations: number of turns of the loop after which the program counts as stuck.

    Attributes:
        iterations: number of turns of the loop so far.
    """

    # Attributes of asyncio's class.
    _clock_resolution: float
    _closed: bool
    _stopping: bool

    def __init__(self, clock: VirtualClock, seed: int = 0, *, max_iterations: int = MAX_ITERATIONS) -> None:
        super().__init__()
        self.clock = clock
        self.seed = seed
        self.iterations = 0
        self._max_iterations = max_iterations
        self._ready: deque[_Handle] = deque()
        # (due, number, handle): handles that are due at the same moment run in the order in which they were
        # set.
        self._scheduled: list[tuple[float, int, _Handle]] = []
        self._cancelled_timers = 0
        self._timers_set = 0
        self._tasks_made = 0
        self.set_task_factory(self._new_task)

    def _new_task(self, _loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks_made += 1
        return _Task(self._tasks_made, coro, loop=self, **options)

    def time(self) -> float:
        return self.clock.now_s

    async def until_next_event(self) -> None:
        """Return at the moment of the next timer, together with the callbacks of that timer."""
        due = min((due for due, _, handle in self._scheduled if not handle.cancelled()), default=None)
        await asyncio.sleep(0 if due is None else max(0.0, due - self.time()))

    def run_again(self, handles: list[_Handle]) -> None:
        """Run callbacks that were held back in the next turn."""
        self._ready.extend(handles)

    def timer_cancelled(self) -> None:
        """Count a cancelled timer, which is dropped later."""
        self._cancelled_timers += 1

    # -- overrides of asyncio's loop without sockets, threads and debugging: a run spends much time here ----

    def call_soon(  # type: ignore[override]  # typeshed ties arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        handle._when = when
        handle._scheduled = True
        self._timers_set += 1
        heappush(self._scheduled, (when, self._timers_set, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock.now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run turns until the loop is stopped: if nothing is ready, jump to the next timer; then run what is
        ready.
        """
        clock, ready, scheduled, process_of = self.clock, self._ready, self._scheduled, _PROCESS
        while True:
            self.iterations += 1
            if self.iterations > self._max_iterations:
                raise SimulationStuckError(f"more than {self._max_iterations} iterations of the loop")
            if self._cancelled_timers and (
                scheduled[0][2]._cancelled or 2 * self._cancelled_timers > len(scheduled)
            ):
                self._forget_cancelled()
            if not ready and not self._stopping:
                self._pass_time()
            end = clock.now_s + self._clock_resolution
            while scheduled and scheduled[0][0] < end:
                handle = heappop(scheduled)[2]
                handle._scheduled = False
                if handle._cancelled:
                    self._cancelled_timers -= 1
                else:
                    ready.append(handle)
            # Callbacks that become ready in this turn run in the next one.
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle._context.get(process_of)
                if process is not None and not process.running:
                    process.hold(handle)
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._failed(handle, error)
            if self._stopping:
                return

    def _failed(self, handle: _Handle, error: BaseException) -> None:
        text = f"Exception in callback {handle._callback}"
        self.call_exception_handler({"message": text, "exception": error, "handle": handle})

    def _pass_time(self) -> None:
        if not self._scheduled:
            raise SimulationStuckError("every task waits, and no timer is set that could wake one")
        due, now = self._scheduled[0][0], self.clock.now_s
        if due > now:
            self.clock.advance(due - now)

    def _forget_cancelled(self) -> None:
        scheduled = self._scheduled
        if len(scheduled) > _FEW_TIMERS and 2 * self._cancelled_timers > len(scheduled):
            for entry in scheduled:
                entry[2]._scheduled = not entry[2]._cancelled
            scheduled[:] = [entry for entry in scheduled if not entry[2]._cancelled]
            heapify(scheduled)
            self._cancelled_timers = 0
        while scheduled and scheduled[0][2]._cancelled:
            self._cancelled_timers -= 1
            heappop(scheduled)[2]._scheduled = False

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that would have to wake the loop."""

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated loop has no threads: use Runtime.threads")
