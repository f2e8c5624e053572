"""Group commit: one ``fdatasync`` for all that was written meanwhile, and who waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from orbitmq.runtime import Runtime, Segment
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.log.files import sync_all
from orbitmq.store.model import PutStatus

logger = logging.getLogger(__name__)

Release = Callable[[Any], object]
GiveUp = Callable[[], object]


class Flusher:
    """Knows how far the log is written and how far it is on the device.

    What must not happen before a log offset is safe (a response, a future) waits in one ordered queue. With
    ``sync`` a thing is released when the device has it, else as soon as it is written.

    Args:
        segments: gives the files that hold the bytes between two offsets.
        failed: told once when a flush failed; nothing is released after that.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        sync: bool,
        timeout_ms: int,
        segments: Callable[[int, int], list[Segment]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self.sync = sync
        self._timeout_s = timeout_ms / 1000
        self._segments = segments
        self._failed = failed
        self._waiting: deque[tuple[int, Release, Any, GiveUp]] = deque()
        self._running = False
        # Of those who wait for the end of the run under way.
        self._passes: list[asyncio.Future[None]] = []
        self.error: BaseException | None = None
        self.written = 0
        self.flushed = 0

    def begin(self, offset: int) -> None:
        """All below ``offset`` is written and on the device."""
        self.written = self.flushed = offset

    def when_safe(self, offset: int, release: Release, argument: Any, give_up: GiveUp) -> None:
        """Call ``release(argument)`` when the log is safe up to ``offset``, or ``give_up()`` if it never is.

        Offsets never go down from call to call.
        """
        self._waiting.append((offset, release, argument, give_up))
        # Who comes after the end of its turn finds no flush under way.
        if self.sync and offset <= self.written and not self._running and self.error is None:
            self._start()

    def advance(self, written: int) -> None:
        """The log is written up to ``written``."""
        self.written = written
        if not self.sync:
            self._release(written)
        elif self._waiting and not self._running and self.error is None:
            self._start()

    def _start(self) -> None:
        """Bring what is written now to the device, off the loop; one such run at a time."""
        target = self.written
        try:
            self._runtime.threads.sync(self._segments(self.flushed, target), partial(self._ended, target))
        except OSError as error:
            self._fail(error)
        else:
            self._running = True

    def _ended(self, target: int, error: BaseException | None) -> None:
        self._running = False
        if error is not None:
            self._fail(error)
        elif self.error is None:
            self.flushed = max(self.flushed, target)
            if self.sync:
                self._release(self.flushed)
                if self._waiting and self.flushed < self.written and not self._running:
                    self._start()
        self._wake()

    def _wake(self) -> None:
        passes, self._passes = self._passes, []
        for ended in passes:
            if not ended.done():
                ended.set_result(None)

    async def flush(self) -> None:
        """Return when all that is written by now is on the device, or a flush failed (:attr:`error`)."""
        target = self.written
        while self.flushed < target and self.error is None:
            if not self._running:
                self._start()
            if self._running:
                ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._passes.append(ended)
                await ended

    def flush_blocking(self) -> None:
        """Bring all that is written to the device on the calling thread; a failure is final as ever."""
        try:
            sync_all(self._segments(self.flushed, self.written))
        except OSError as error:
            self._fail(error)

    def _release(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, release, argument, _ = waiting.popleft()
            release(argument)

    def _fail(self, error: BaseException) -> None:
        # After a failed fdatasync the kernel may have dropped the pages: a later success would prove nothing.
        if self.error is not None:
            return
        self.error = error
        logger.error("flush of the commit log failed, no message is acknowledged any more: %s", error)
        self._failed(error)
        self.abandon()

    def abandon(self) -> None:
        """Give up what waits: no response may say that these messages are safe."""
        while self._waiting:
            self._waiting.popleft()[3]()

    async def stored(self, offset: int) -> PutStatus:
        """Return when the log is safe up to ``offset``, or FLUSH_DISK_TIMEOUT after the configured time.

        Raises:
            StoreClosedError: the flush failed.
        """
        if self.error is not None:
            raise StoreClosedError(f"the commit log could not be flushed: {self.error}")
        if offset <= (self.flushed if self.sync else self.written):
            return PutStatus.OK
        loop = asyncio.get_running_loop()
        done: asyncio.Future[PutStatus] = loop.create_future()
        self.when_safe(offset, _set_ok, done, partial(self._set_failed, done))
        timer = loop.call_later(self._timeout_s, _set_timeout, done)
        try:
            return await done
        finally:
            timer.cancel()

    def _set_failed(self, done: asyncio.Future[PutStatus]) -> None:
        if not done.done():
            done.set_exception(StoreClosedError(f"the commit log could not be flushed: {self.error}"))

    async def stop(self) -> None:
        """Flush the rest and let what waits go."""
        await self.flush()


def _set_ok(done: asyncio.Future[PutStatus]) -> None:
    if not done.done():
        done.set_result(PutStatus.OK)


def _set_timeout(done: asyncio.Future[PutStatus]) -> None:
    if not done.done():
        done.set_result(PutStatus.FLUSH_DISK_TIMEOUT)
