"""Bugs that a loss of power must reveal: each function here runs in a broker's process before it starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from orbitmq.runtime import system
from orbitmq.runtime.seam import Segment
from orbitmq.runtime.threads import SystemThreads


def content_not_synced() -> None:
    """A rewritten file (``write_atomic``) gets its name before its content is flushed."""
    sync = os.fsync

    def folders_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            sync(descriptor)

    os.fsync = folders_only  # type: ignore[assignment]


def folders_not_synced() -> None:
    """The name of a new file is not flushed."""
    system._sync_folder = lambda path: None


def last_segment_only() -> None:
    """A flush over two log files leaves out the end of the first one."""
    flush = SystemThreads.sync

    def sync(
        self: SystemThreads, segments: Sequence[Segment], done: Callable[[BaseException | None], object]
    ) -> None:
        flush(self, segments[-1:], done)

    SystemThreads.sync = sync  # type: ignore[method-assign]
