"""Writes pages of files again that the device has refused and the system counts as written."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.runtime.seam import Segment

_COPY_BYTES = 1 << 20
# How many bytes are written again before each sync: a start that is cancelled waits for no more.
_AGAIN_BYTES = 64 << 20


def write_again(segment: Segment, start: int, ended: Callable[[], bool] = lambda: False) -> None:
    """Bring the file from ``start`` on to the device, including pages that count as written already.

    The system counts pages as clean even if the device has refused them, so a sync does not write them.
    Writing the same bytes again makes the next sync write them.

    Args:
        ended: called between two pieces; ``True``: leave the rest.

    Raises:
        OSError: the disk refused.
    """
    view, end = segment.view(), segment.data_end(start)
    unsynced = 0
    for at in range(start, end, _COPY_BYTES):
        if ended():
            return
        # The bytes are copied first: otherwise the source of the write would be the page that it changes.
        piece = view[at : min(at + _COPY_BYTES, end)].tobytes()
        segment.pwrite(piece, at)
        unsynced += len(piece)
        if unsynced >= _AGAIN_BYTES:
            segment.sync()
            unsynced = 0
    segment.sync()
