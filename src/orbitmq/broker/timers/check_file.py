"""``config/timercheck`` on disk."""

from __future__ import annotations

import asyncio
import logging

from orbitmq.broker.timers.progress import FILE_BYTES, Check, TimerProgress, decode_file, encode_file
from orbitmq.runtime.seam import Runtime, Segment

log = logging.getLogger(__name__)


class CheckFile:
    """The file, written in place, as by Apache's broker, which maps the file and never replaces it."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._files = runtime.files
        self._threads = runtime.threads
        self._path = path
        self._segment: Segment | None = None
        self._syncing = False
        self._idle = asyncio.Event()
        # Whether there was a write since the last sync began.
        self._written = False

    def load(self) -> tuple[Check, TimerProgress] | None:
        """The file's content; ``None`` when there is no file."""
        return decode_file(self._files.read_bytes(self._path)) if self._files.exists(self._path) else None

    def write(self, check: Check, progress: TimerProgress) -> None:
        """Write the file, and let the bytes go to the device meanwhile.

        Raises:
            OSError: the disk refused.
        """
        if self._segment is None:
            self._segment = self._files.open_segment(self._path, FILE_BYTES, create=True)
        self._segment.pwrite(encode_file(check, progress), 0)
        self._written = True
        if not self._syncing:
            self._sync(self._segment)

    def _sync(self, segment: Segment) -> None:
        self._written = False
        self._threads.sync([segment], self._synced)
        self._syncing = True
        self._idle.clear()

    def _synced(self, error: BaseException | None) -> None:
        self._syncing = False
        if error is not None:
            log.error("the progress of timers is not on the device: %s", error)
        elif self._written and self._segment is not None:
            self._sync(self._segment)
        if not self._syncing:
            self._idle.set()

    async def close(self) -> None:
        """Bring the file to the device and release it."""
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                await self._threads.run(segment.sync)
                if self._syncing:
                    await self._idle.wait()  # an earlier sync still uses the file
            finally:
                segment.close()
