"""Hands the written log to the message index: in order, in pieces of limited size, with pauses between
them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Protocol

from orbitmq.runtime import Runtime
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.store.errors import LogDamagedError
from orbitmq.store.log.files import LogFiles
from orbitmq.store.ports import LogPiece

logger = logging.getLogger(__name__)

PIECE_BYTES = 4 << 20
# The pause between two pieces: without it each message would be a piece, which costs more than storing it.
PAUSE_SECONDS = 0.005
RETRY_SECONDS = 10.0
# A follower that keeps failing is logged this often.
FAILURES_LOGGED_SECONDS = 600.0
# :meth:`catch_up` waits for at most this many pieces.
CATCH_UP_PIECES = 64


class LogFollower(Protocol):
    """A structure that is derived from the log, piece by piece."""

    async def take(self, piece: LogPiece) -> int:
        """Take the records from the piece's start on; returns the log offset to continue at.

        The next call comes only after this one has returned. Long work belongs in a thread.

        Raises:
            OSError: the disk refused; :meth:`failed` gives the place to continue at, ten seconds later.
            LogDamagedError: no record begins where one should: the follower continues with the next file of
                the log.
        """
        ...

    def failed(self) -> int:
        """Return the log offset to continue at, after the disk has refused :meth:`take`."""
        ...

    async def truncate(self, to: int) -> int:
        """Forget everything made of records behind ``to``, durably: the log is about to be cut there.

        Returns:
            The log offset to continue at: ``to`` or lower.
        """
        ...


class LogFeed:
    """Feeds the follower. While no message is written, nothing runs.

    Args:
        name: for log lines.
        end: gives the log offset up to which pieces may be handed out.

    Attributes:
        position: the log offset below which the follower has taken everything. Set it before the start.
    """

    def __init__(
        self,
        runtime: Runtime,
        follower: LogFollower,
        log: LogFiles,
        end: Callable[[], int],
        *,
        name: str,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.name = name
        self.position = 0
        self._follower = follower
        # While the log is being truncated no piece is handed out.
        self._limit: int | None = None
        self._runtime = runtime
        self._log = log
        self._end = end
        self._piece_bytes = piece_bytes
        self._failures_log = LogLimiter(logger, FAILURES_LOGGED_SECONDS)
        # After a failure, monotonic seconds before which no piece is handed out; 0: no failure.
        self._retry_at = 0.0
        # One piece at a time, and none while the log is being truncated.
        self._busy = asyncio.Lock()
        self._grown = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Feed the follower in the background from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"store-{self.name}")

    async def stop(self) -> None:
        """Return when the piece under way has ended."""
        self._stopping.set()
        self._grown.set()
        if self._task is not None:
            await self._task
            self._task = None

    def wake(self) -> None:
        """Look for a piece, since bytes were written."""
        self._grown.set()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self._grown.clear()
            try:
                worked = await self.step()
            except Exception as error:
                # A bug: log it, and keep the follower running.
                self._failures_log.write(
                    logging.ERROR,
                    "mistake",
                    "follower %s of the log failed at %d",
                    self.name,
                    self.position,
                    error=error,
                )
                self._try_again_later()
                worked = False
            if worked:
                if self._end() - self.position < self._piece_bytes:
                    await self._pause(self._stopping, PAUSE_SECONDS)
            else:
                await self._pause(self._grown, self._retry_in_s())

    async def _pause(self, event: asyncio.Event, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def _try_again_later(self) -> None:
        self._retry_at = self._runtime.clock.monotonic() + RETRY_SECONDS

    def _retry_in_s(self) -> float | None:
        """Seconds until a failed piece is tried again; ``None``: no piece has failed."""
        if self._retry_at in (0.0, math.inf):
            return None
        return max(0.001, self._retry_at - self._runtime.clock.monotonic())

    async def step(self) -> bool:
        """Hand out the next piece; ``False``: there is no piece, or a retry is not due yet."""
        async with self._busy:
            piece = self._next_piece()
            if piece is None:
                return False
            try:
                self.position = await self._follower.take(piece)
                return True
            except LogDamagedError as error:
                logger.error("%s follows the log: %s; the rest of that file is left out", self.name, error)
                return self._skip_file(piece)
            except OSError as error:
                self._failures_log.write(
                    logging.ERROR,
                    "disk refused",
                    "%s follows the log: the disk refused, it is tried again: %s",
                    self.name,
                    error,
                )
                self.position = self._follower.failed()
                self._try_again_later()
                return False

    def _next_piece(self) -> LogPiece | None:
        if self._runtime.clock.monotonic() < self._retry_at:
            return None
        self._retry_at = 0.0
        self.position = max(self.position, self._log.first)
        end = min(self._end(), self.position + self._piece_bytes)
        if self._limit is not None:
            end = min(end, self._limit)
        segment = self._log.segment(self.position)
        if self.position >= end or segment is None:
            return None
        base = self._log.start_of(self.position)
        return LogPiece(self.position, min(end, base + self._log.file_bytes), segment.view(), base)

    def _skip_file(self, piece: LogPiece) -> bool:
        """Continue with the file after the damaged one; after the newest file there is none."""
        if self._log.segment(piece.file_end) is None:
            self._retry_at = math.inf
            return False
        self.position = piece.file_end
        return True

    async def catch_up(self, up_to: int) -> None:
        """Return when the follower has taken everything below ``up_to``, at most :data:`CATCH_UP_PIECES`
        pieces."""
        for _ in range(CATCH_UP_PIECES):
            if self.position >= up_to or self._stopping.is_set() or not await self.step():
                break

    async def truncate(self, to: int) -> None:
        """Let the follower forget records behind ``to``, durably; call :meth:`truncated` after the log was
        cut there.

        Raises:
            OSError: the disk refused.
        """
        self._limit = to
        async with self._busy:
            if self.position > to:
                self.position = await self._follower.truncate(to)
            self._retry_at = 0.0

    def truncated(self) -> None:
        """Hand out pieces again, after the cut."""
        self._limit = None
        self._grown.set()
