"""Bugs that a loss of power must show: each is called in a broker's process before it starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from orbitmq.runtime import system
from orbitmq.runtime.seam import Segment
from orbitmq.runtime.threads import SystemThreads


def content_not_synced() -> None:
    """A file that is written anew (``write_atomic``) has its name before its content."""
    sync = os.fsync

    def folders_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            sync(descriptor)

    os.fsync = folders_only  # type: ignore[assignment]


def folders_not_synced() -> None:
    """A file that is made is not found again."""
    system._sync_folder = lambda path: None


def last_segment_only() -> None:
    """A flush over two log files leaves the end of the first one behind."""
    flush = SystemThreads.sync

    def sync(
        self: SystemThreads, segments: Sequence[Segment], done: Callable[[BaseException | None], object]
    ) -> None:
        flush(self, segments[-1:], done)

    SystemThreads.sync = sync  # type: ignore[method-assign]
