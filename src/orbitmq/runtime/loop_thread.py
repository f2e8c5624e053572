"""An event loop in a thread of its own, for code that is not asynchronous itself."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from orbitmq import _streams

T = TypeVar("T")
P = ParamSpec("P")

# Time in which cancelled tasks, and threads that hand work over, must end when the loop stops.
LAST_S = 1.0


class LoopThread:
    """Runs coroutines on an event loop in a background thread.

    Uses uvloop when it is installed. The thread is a daemon, so a program that forgets :meth:`stop` ends.

    Args:
        name: of the thread.

    Attributes:
        ending: the lock of the thread that ends the loop's tasks; reentrant, for signal handlers.
    """

    def __init__(self, name: str = "orbitmq-loop") -> None:
        self._loop = _new_loop()
        self.ending = threading.RLock()
        # This lock is held while work is handed over, so that the loop ends all of it. It is reentrant: a
        # signal handler, or a generator that is collected, may hand over work or stop the thread in the
        # middle of that.
        self._handing_over = threading.RLock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # Wait with a limit: the holder may be interrupted by a signal handler that waits for this thread.
            held = self._handing_over.acquire(timeout=LAST_S)
            self._open = False
            if held:
                self._handing_over.release()
            self._loop.run_until_complete(self._end_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _end_tasks(self) -> None:
        """Cancel the tasks that are left: a caller that waits for one, as after an interrupted close, must
        not wait for ever."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_S)

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread, where it may not wait."""
        return threading.current_thread() is self._thread

    @property
    def open(self) -> bool:
        """Whether the thread takes work; not after :meth:`stop`, nor when the process ends or was forked."""
        return self._open and self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop; the future gives its result.

        Raises:
            RuntimeError: the thread is stopped, or it is the caller's own (waiting would never end).
        """
        # Checked before the lock: a forked process has no such thread, and its copy of the lock may be held
        # for ever.
        if self._thread.is_alive() and not self.here:
            with self._handing_over:
                if self._open:
                    with contextlib.suppress(RuntimeError):  # a signal handler has stopped it in between
                        future = asyncio.run_coroutine_threadsafe(work, self._loop)
                        if not self.open:
                            future.cancel()  # the loop runs nothing more
                        return future
        work.close()
        raise RuntimeError("the event loop thread is stopped (a fork has none), or calls itself")

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Ctrl-C cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop, where it may use the objects of the loop."""

        async def run() -> T:
            return function(*args, **kwargs)

        return self.wait(run())

    def stop(self) -> None:
        """Stop the loop and wait for the thread. Idempotent."""
        if self._thread.is_alive() and not self.here:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


class _UntilTheEnd(ThreadPoolExecutor):
    """Resolves host names in threads of its own, so that it also works while the program ends.

    The standard library's executors refuse work then, and a closing client could not resolve its brokers.
    """

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="orbitmq-lookup", daemon=True).start()
        return future


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        plain = asyncio.new_event_loop()
        plain.set_default_executor(_UntilTheEnd())
        return plain
    _streams.reserve()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
