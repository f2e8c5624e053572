"""The one way to follow the log: bounded pieces, in order, once they are written or flushed, at a pace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import struct
import zlib
from collections.abc import Callable

from orbitmq.runtime import Runtime
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.store.errors import LogDamagedError
from orbitmq.store.log.files import LogFiles
from orbitmq.store.ports import LogFollower, LogPiece

logger = logging.getLogger(__name__)

PIECE_BYTES = 4 << 20
# Between two pieces: a piece for each message would cost more than taking the message.
PAUSE_SECONDS = 0.005
IDLE_SECONDS = 0.2
RETRY_SECONDS = 10.0
# A follower that fails with each retry says so this often.
FAILURES_LOGGED_SECONDS = 600.0
# The progress of a follower that works is written down so often.
PROGRESS_SECONDS = 5.0
# A caller that waits for the follower does not wait for more pieces than this.
CATCH_UP_PIECES = 64

_PROGRESS = struct.Struct(">8sqI")
_MAGIC = b"orbitlf1"


class Progress:
    """A file with the log offset below which a follower has everything on the device."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._files = runtime.files
        self._path = path

    def load(self) -> int:
        """The offset, -1 when it is unknown."""
        if not self._files.exists(self._path):
            return -1
        data = self._files.read_bytes(self._path)
        if len(data) != _PROGRESS.size:
            return -1
        magic, offset, crc = _PROGRESS.unpack(data)
        return int(offset) if magic == _MAGIC and crc == zlib.crc32(data[:-4]) else -1

    def save(self, offset: int) -> None:
        """Write the offset durably."""
        head = _PROGRESS.pack(_MAGIC, offset, 0)[:-4]
        self._files.write_atomic(self._path, head + zlib.crc32(head).to_bytes(4, "big"))


class Following:
    """Feeds one follower.

    Args:
        name: for log lines.
        end: gives the log offset up to which pieces may be handed out.
        progress: where the position is written down; ``None``: the follower knows it by itself.
        at_once: hand out what is new when :meth:`wake` is called, without a pause.

    Attributes:
        position: the follower has taken everything below.
    """

    def __init__(
        self,
        runtime: Runtime,
        follower: LogFollower,
        log: LogFiles,
        end: Callable[[], int],
        *,
        name: str,
        progress: Progress | None = None,
        piece_bytes: int = PIECE_BYTES,
        at_once: bool = False,
    ) -> None:
        self.follower = follower
        self.name = name
        self.position = 0
        self.at_once = at_once
        # While the log is truncated nothing behind is handed out.
        self.limit: int | None = None
        self._runtime = runtime
        self._log = log
        self._end = end
        self._progress = progress
        self._piece_bytes = piece_bytes
        self._failures_log = LogLimiter(logger, FAILURES_LOGGED_SECONDS)
        self._noted = -1
        self._noted_at = 0.0
        # Monotonic seconds: no piece before.
        self._retry_at = 0.0
        # One piece at a time, and none while the log is truncated.
        self._busy = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Feed the follower in the background from now on."""
        if self._progress is not None:
            self._noted = self._progress.load()
            self.position = self._noted if self._noted >= 0 else self._log.first
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"store-{self.name}")

    async def stop(self) -> None:
        """End the piece under way; write the progress down.

        Raises:
            OSError: the disk refused; the follower goes on from the last progress.
        """
        self._stopped = True
        self._wanted.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._note(now=True)

    def wake(self) -> None:
        """There may be something new."""
        self._wanted.set()

    async def _run(self) -> None:
        while not self._stopped:
            self._wanted.clear()
            try:
                worked = await self.step()
            except Exception as error:
                # A mistake of ours: it must be seen, and must not end the follower for good.
                self._failures_log.write(
                    logging.ERROR,
                    "mistake",
                    "follower %s of the log failed at %d",
                    self.name,
                    self.position,
                    error=error,
                )
                self._retry_at = self._runtime.clock.monotonic() + RETRY_SECONDS
                worked = False
            if worked and (self.at_once or self._end() - self.position >= self._piece_bytes):
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS if worked else IDLE_SECONDS):
                    await self._wanted.wait()

    async def step(self) -> bool:
        """Hand out the next piece; ``False`` when there is none, or none now."""
        async with self._busy:
            piece = self._next_piece()
            if piece is None:
                return False
            try:
                self.position = await self.follower.take(piece)
                await self._note()
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
                self.position = self.follower.failed()
                self._retry_at = self._runtime.clock.monotonic() + RETRY_SECONDS
                return False

    def _next_piece(self) -> LogPiece | None:
        if self._runtime.clock.monotonic() < self._retry_at:
            return None
        self.position = max(self.position, self._log.first)
        end = min(self._end(), self.position + self._piece_bytes)
        if self.limit is not None:
            end = min(end, self.limit)
        segment = self._log.segment(self.position)
        if self.position >= end or segment is None:
            return None
        base = self._log.start_of(self.position)
        return LogPiece(self.position, min(end, base + self._log.file_bytes), segment.view(), base)

    def _skip_file(self, piece: LogPiece) -> bool:
        """Go on with the file behind the damaged one; in the newest file there is nothing to go on with."""
        if self._log.segment(piece.file_end) is None:
            self._retry_at = math.inf
            return False
        self.position = piece.file_end
        return True

    async def _note(self, *, now: bool = False) -> None:
        progress, position = self._progress, self.position
        clock = self._runtime.clock.monotonic()
        if progress is None or position == self._noted:
            return
        if now or clock - self._noted_at >= PROGRESS_SECONDS:
            await self.follower.flush()
            await self._runtime.threads.run(progress.save, position)
            self._noted, self._noted_at = position, clock

    async def catch_up(self, up_to: int) -> None:
        """Return when the follower has taken what is below ``up_to``, as far as that goes in a few pieces."""
        for _ in range(CATCH_UP_PIECES):
            if self.position >= up_to or self._stopped or not await self.step():
                break

    async def truncate(self, to: int) -> None:
        """The log is about to end at ``to``; durable on return. Set :attr:`limit` to ``None`` when it does.

        Raises:
            OSError: the disk refused.
        """
        self.limit = to
        async with self._busy:
            if self.position > to:
                self.position = await self.follower.truncate(to)
            self._retry_at = 0.0
            if self._progress is not None and self._noted > self.position:
                self._progress.save(self.position)
                self._noted = self.position
