"""Background work with an owner: every task is named, its crash is logged, and its end is awaited."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from orbitmq.runtime.seam import Clock

log = logging.getLogger("orbitmq.runtime")

T = TypeVar("T")

MAX_TASKS = 10_000
CANCEL_AGAIN_S = 5.0


class Background:
    """The background tasks of one component.

    Args:
        name: the component's, for log lines and task names.
        max_tasks: tasks alive at a time. One that has ended counts until the event loop's next turn, so work
            that ends and begins again must not rely on a limit of 1.
    """

    def __init__(self, name: str, *, max_tasks: int = MAX_TASKS) -> None:
        self._name = name
        self._max_tasks = max_tasks
        # A dict keeps the order of starting; the order of a set would differ from run to run.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stopped = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "task") -> asyncio.Task[Any]:
        """Start ``work``. When it fails, the error is logged; the other tasks go on.

        Raises:
            RuntimeError: stopped already, or ``max_tasks`` are alive.
        """
        if self._stopped or len(self._tasks) >= self._max_tasks:
            work.close()
            reason = "it is stopped" if self._stopped else f"{self._max_tasks} tasks are alive"
            raise RuntimeError(f"{self._name} cannot start {name}: {reason}")
        task = asyncio.ensure_future(work)
        task.set_name(f"{self._name}:{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task %s crashed", task.get_name(), exc_info=error)

    async def quiet(self, limit_s: float | None = None) -> None:
        """Return when the present tasks have ended, or after this many seconds."""
        pending = [task for task in self._tasks if task is not asyncio.current_task()]
        if pending:
            await asyncio.wait(pending, timeout=limit_s)

    async def ended(self, limit_s: float) -> None:
        """Return when the present tasks have ended, or after this many seconds; then stop."""
        await self.quiet(limit_s)
        await self.stop()

    async def stop(self) -> None:
        """Cancel all tasks and return when they have ended. A task that calls this is not cancelled."""
        self._stopped = True
        pending = {task: None for task in self._tasks if task is not asyncio.current_task()}
        while pending:
            for task in pending:
                task.cancel()
            # Look again: before Python 3.12 asyncio.wait_for may lose a cancellation.
            done, _ = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
            pending = {task: None for task in pending if task not in done}


async def in_slices(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """The items of a long loop; after every ``size`` items the event loop does its other work.

    State that the loop relies on may have changed after a slice. ``size`` items should take a few
    milliseconds.
    """
    for number, item in enumerate(items, start=1):
        yield item
        if number % size == 0:
            await asyncio.sleep(0)


async def in_batches(items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
    """The items of a long loop in lists of ``size``; after each the event loop does its other work.

    As :func:`in_slices`, for work on many items at once.
    """
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
        await asyncio.sleep(0)


async def every(
    clock: Clock,
    seconds: float,
    function: Callable[[], Awaitable[object] | object],
    *,
    first_s: float | None = None,
) -> None:
    """Call ``function`` for ever, with ``seconds`` between the end of a call and the next.

    Args:
        first_s: seconds before the first call; ``seconds`` when None. An error of a call is logged, and the
            calls go on.
    """
    await clock.sleep(seconds if first_s is None else first_s)
    while True:
        try:
            result = function()
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("periodic work %s failed", getattr(function, "__qualname__", function))
        await clock.sleep(seconds)


def failed_itself(error: BaseException) -> bool:
    """Whether an error that user code raised is that code's own failure.

    A :class:`asyncio.CancelledError` is one too when the task that runs here was not cancelled: the code
    awaited something else that was cancelled. When this task itself was cancelled, its end is no failure.
    """
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, Exception)
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # a thread without an event loop cannot be cancelled
    return task is None or task.cancelling() == 0


def outcome(task: asyncio.Task[T]) -> T | None:
    """The result of a task; None when it has not ended, was cancelled or failed."""
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


def as_exception(error: BaseException, function: Callable[..., object]) -> Exception:
    """The error that a thread's ``function`` raised, in a form that a future can hold.

    A future refuses StopIteration, which a bare ``next()`` raises, and would be left open for ever. Errors
    that are no Exception (``sys.exit()``, a cancellation) would end the thread or the event loop.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    name = getattr(function, "__qualname__", function)
    advice = "give next() a default" if isinstance(error, StopIteration) else "raise an Exception instead"
    wrapped = RuntimeError(f"{name} raised {error!r} in its thread; {advice}")
    wrapped.__cause__ = error
    return wrapped


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine; of an object with ``__call__``, that method decides."""
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
