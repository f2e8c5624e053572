"""A small thread pool that returns results to the event loop at little cost."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.runtime.seam import Segment
from orbitmq.runtime.tasks import as_exception

if TYPE_CHECKING:
    from orbitmq.runtime.flush_thread import FlushThread

T = TypeVar("T")

MAX_THREADS = 8

_Work = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class SystemThreads:
    """Up to ``max_threads`` threads, started when they are needed; work beyond that waits in order.

    The queue is as long as the number of callers that wait for their results.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._busy = 0
        self._closed = False
        self._flush_thread: FlushThread | None = None

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """See ``seam.Threads``.

        Raises:
            RuntimeError: the pool is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the runtime's threads are closed")
            self._busy += 1
            if self._busy > len(self._threads) < self._max_threads:
                name = f"orbitmq-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._work.put((function, args, loop, future))
        return future

    def sync(self, segments: Sequence[Segment], done: Callable[[BaseException | None], object]) -> None:
        """See ``seam.Threads``. The files have a thread of their own, started by the first call.

        Raises:
            OSError: a segment is closed.
            RuntimeError: the pool is closed.
        """
        descriptors = [segment.descriptor for segment in segments]
        with self._lock:
            if self._closed:
                raise RuntimeError("the runtime's threads are closed")
            if self._flush_thread is None:
                # Only servers flush, and the thread needs Linux.
                from orbitmq.runtime.flush_thread import FlushThread

                self._flush_thread = FlushThread()
        self._flush_thread.sync(descriptors, done)

    def mutex(self) -> AbstractContextManager[object]:
        """See ``seam.Threads``."""
        return threading.RLock()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            function, args, loop, future = work
            try:
                if not self._closed and not future.cancelled():
                    self._do(function, args, loop, future)
            finally:
                with self._lock:
                    self._busy -= 1

    def _do(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        try:
            try:
                result = function(*args)
            except BaseException as error:
                # Catch every error: otherwise the caller would wait for ever, and the thread would be lost.
                loop.call_soon_threadsafe(_fail, future, as_exception(error, function))
            else:
                loop.call_soon_threadsafe(_give, future, result)
        except RuntimeError:
            # The loop was closed meanwhile: no task waits for the result any more.
            return

    def pool(self, max_threads: int) -> SystemThreads:
        """See ``seam.Threads``."""
        return SystemThreads(max_threads)

    def close(self, *, wait: bool = True) -> None:
        """See ``seam.Threads``."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            if wait and thread is not threading.current_thread():
                thread.join()
        if self._flush_thread is not None:
            self._flush_thread.close()


def _give(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
