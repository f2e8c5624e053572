"""Copies a follower's records that its master's log lacks to a file, then cuts them from the log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from orbitmq.runtime.seam import Runtime
from orbitmq.store import StoreError
from orbitmq.store.ports import CopiedLog

log = logging.getLogger(__name__)

COPY_BYTES = 1 << 20


class TailTruncation:
    """Cuts the end of the log.

    Args:
        before_cut: awaited before each cut, with where the log is to end and where it ends.
        on_cut: awaited after each cut, with the new end.

    Attributes:
        times, size_bytes: how often the log was cut since the start, and how many bytes were set aside.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: CopiedLog,
        before_cut: Callable[[int, int], Awaitable[None]],
        on_cut: Callable[[int], Awaitable[None]],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self.times = 0
        self.size_bytes = 0
        self._before_cut = before_cut
        self._on_cut = on_cut

    async def cut(self, start: int, end: int, master: str) -> None:
        """Copy the log from ``start`` to ``end`` into a file, then cut the log at ``start``, durably.

        Raises:
            OSError, StoreError: the disk refused; nothing is removed before it is set aside.
        """
        self._store.check_flush()
        path = f"{self._store.config.root}/aside/{start:020d}-{self._runtime.clock.now_ms()}.log"
        try:
            await self._runtime.threads.run(self._copy, path, start, end)
            await self._before_cut(start, end)
            await self._store.truncate(start)
        except (OSError, StoreError):
            # The link is retried for ever: without this each try would leave a copy, until the disk is full.
            # A cut that failed half way keeps its copy, which may be all that is left of the removed records.
            if self._store.flush_error is None:
                await self._runtime.threads.run(self._remove, path)
            raise
        self.times += 1
        self.size_bytes += end - start
        log.warning(
            "the master %s does not have what this log holds from %d to %d: set aside in %s, copied anew",
            master, start, end, path,
        )  # fmt: skip
        await self._on_cut(start)

    def _remove(self, path: str) -> None:
        try:
            self._runtime.files.remove(path)
        except OSError as error:
            log.warning("%s, a copy that is not needed, cannot be removed: %s", path, error)

    def _copy(self, path: str, start: int, end: int) -> None:
        segment = self._runtime.files.open_segment(path, end - start, create=True)
        try:
            at = start
            while at < end and (data := self._store.raw.data(at, min(COPY_BYTES, end - at))) is not None:
                segment.pwrite(data, at - start)
                at += len(data)
            segment.sync()
        finally:
            segment.close()
