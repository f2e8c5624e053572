"""Group commit: one ``fdatasync`` for everything that was written while the last one ran."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from orbitmq.runtime import Runtime, Segment
from orbitmq.runtime.again import write_again
from orbitmq.runtime.histogram import Histogram
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.log.files import place_in, sync_all

logger = logging.getLogger(__name__)

FLUSH_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class FlushListener(Protocol):
    """The receiver of the flusher's progress."""

    @property
    def waits(self) -> bool:
        """Whether the listener waits for more bytes to be safe: then new bytes are flushed at once."""
        ...

    def advance(self) -> None:
        """Called when :attr:`Flusher.safe` may have grown."""
        ...

    def abandon(self) -> None:
        """Called when a flush has failed: :attr:`Flusher.safe` grows no more."""
        ...


class Flusher:
    """Holds the offsets up to which the log is written and up to which it is on the device.

    With ``sync`` the log is safe up to where the device has it, else up to where it is written. A flush
    starts when a caller waits for written bytes, see :meth:`request_safe`. If the last flush carried more
    bytes than are written now, the next one waits until the current iteration of the event loop has written
    its messages: fewer flushes carry more, and the loop works while a flush is under way.

    Args:
        segments: gives the files that hold the bytes between two offsets.
        failed: called once when a flush failed; nothing becomes safe after that.
        end_batch_soon: ends the write batch when the current iteration of the event loop ends; that calls
            :meth:`advance`.

    Attributes:
        written, flushed: up to where the log is in its files, and on the device.
        safe: up to where it is safe.
        times: how long flushes took, in seconds.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        sync: bool,
        segments: Callable[[int, int], list[Segment]],
        failed: Callable[[BaseException], None],
        end_batch_soon: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self.sync = sync
        self._segments = segments
        self._failed = failed
        self._listener: FlushListener | None = None
        self._end_batch_soon = end_batch_soon
        self.times = Histogram(FLUSH_BOUNDS_S)
        self._began = 0.0
        self._wanted = 0
        self._running = False
        # Futures that wait for the log to be safe, or for the end of the run under way.
        self._passes: list[asyncio.Future[None]] = []
        # Called when a flush has ended, well or not.
        self.watchers: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        self.written = 0
        self.flushed = 0
        self.safe = 0

    def attach(self, listener: FlushListener) -> None:
        """Call ``listener`` from now on when :attr:`safe` may have grown."""
        self._listener = listener

    def begin(self, offset: int) -> None:
        """Begin with a log that is written and on the device up to ``offset``."""
        self.written = self.flushed = self.safe = offset

    def request_safe(self, offset: int) -> None:
        """Note that a caller waits for the log to be safe up to ``offset``; start a flush if none runs."""
        if offset > self._wanted:
            self._wanted = offset
        # A waiter that arrives after its bytes were written must start the flush itself.
        if self.sync and offset <= self.written and not self._running and self.error is None:
            self._start()

    def advance(self, written: int) -> None:
        """Note that the log is written up to ``written``."""
        self.written = written
        if not self.sync:
            self.safe = written
            self._report_safe()
        elif not self._running and self._is_wanted() and self.error is None:
            self._start()

    def _is_wanted(self) -> bool:
        return self._wanted > self.flushed or (self._listener is not None and self._listener.waits)

    def _report_safe(self) -> None:
        if self._listener is not None:
            self._listener.advance()
        if self._passes:
            self._wake()

    def _start(self) -> None:
        """Bring the bytes written by now to the device, in a thread; one such run at a time."""
        target = self.written
        self._began = self._runtime.clock.monotonic()
        try:
            self._runtime.threads.sync(self._segments(self.flushed, target), partial(self._ended, target))
        except OSError as error:
            self.fail(error)
        else:
            self._running = True

    def _ended(self, target: int, error: BaseException | None) -> None:
        self._running = False
        self.times.note(self._runtime.clock.monotonic() - self._began)
        if error is not None:
            self.fail(error)
        elif self.error is None:
            carried = target - self.flushed
            self.flushed = max(self.flushed, target)
            if self.sync:
                self.safe = self.flushed
                self._report_safe()
                if self.flushed < self.written and not self._running and self._is_wanted():
                    self._go_on(carried)
        self._wake()
        for watch in self.watchers:
            watch()

    def _go_on(self, carried: int) -> None:
        """Begin the next flush, at once or after this iteration's batch; the last one carried ``carried``
        bytes."""
        if self.written - self.flushed < carried:
            self._end_batch_soon()
        else:
            self._start()

    def _wake(self) -> None:
        passes, self._passes = self._passes, []
        for ended in passes:
            if not ended.done():
                ended.set_result(None)

    async def flush(self) -> None:
        """Return when all bytes written by now are on the device, or a flush failed (:attr:`error`)."""
        target = self.written
        while self.flushed < target and self.error is None:
            if not self._running:
                self._start()
            if self._running:
                ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._passes.append(ended)
                await ended

    def flush_blocking(self) -> None:
        """Bring all written bytes to the device on the calling thread; a failure is final as always."""
        segments = self._segments(self.flushed, self.written)
        try:
            if self._running:
                self._write_again(segments)
            else:
                sync_all(segments)
        except OSError as error:
            self.fail(error)

    def _write_again(self, segments: list[Segment]) -> None:
        """Bring files to the device while another run is under way, whose result only the loop gets.

        The system reports an error once for each descriptor, so the files are opened once more. Bytes that
        the other run failed to write are written again, because the system counts their pages as clean.
        """
        for segment in segments:
            again = self._runtime.files.open_segment(segment.path, segment.size_bytes)
            try:
                write_again(again, place_in(segment, self.flushed))
            finally:
                again.close()

    def sync_now(self, segments: list[Segment]) -> None:
        """Bring files of the log to the device on the calling thread.

        Raises:
            OSError: the device refused. The error is final: the system reports it once, so a later flush of
                these files would succeed although bytes are lost.
        """
        try:
            sync_all(segments)
        except OSError as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Give up flushing until a new start: from now on the content of the device is unknown."""
        # After a failed fdatasync the kernel may have dropped the pages: a later success would prove nothing.
        if self.error is not None:
            return
        self.error = error
        logger.error("flush of the commit log failed, no message is acknowledged any more: %s", error)
        self._failed(error)
        if self._listener is not None:
            self._listener.abandon()
        self._wake()

    async def stored(self, offset: int) -> None:
        """Return when the log is safe up to ``offset``, however long that takes.

        Raises:
            StoreClosedError: a flush failed.
        """
        while self.error is None and self.safe < offset:
            progress: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._passes.append(progress)
            self.request_safe(offset)
            await progress
        self.check()

    def check(self) -> None:
        """Refuse to continue after a failed flush: the content of the device is unknown until a new start.

        Raises:
            StoreClosedError: a flush failed.
        """
        if self.error is not None:
            raise StoreClosedError(f"the commit log could not be flushed: {self.error}")

    async def stop(self) -> None:
        """Flush the remaining bytes."""
        await self.flush()
