"""Files of which the system may count pages as written that the device has refused."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.runtime.seam import Segment

_COPY_BYTES = 1 << 20
# This much is written again before it goes to the device: a start that is broken off waits for no more.
_AGAIN_BYTES = 64 << 20


def write_again(segment: Segment, start: int, ended: Callable[[], bool] = lambda: False) -> None:
    """Bring the file from ``start`` on to the device, also what counts as being there already.

    When the device refused pages the system counts them as clean all the same: a sync of what is read from
    memory then writes nothing. Writing the same bytes makes it write them.

    Args:
        ended: asked between two pieces; ``True``: leave the rest.

    Raises:
        OSError: the disk refused.
    """
    view, end = segment.view(), segment.data_end(start)
    unsynced = 0
    for at in range(start, end, _COPY_BYTES):
        if ended():
            return
        # A copy: a write whose source is the page that it goes to would be the system's to sort out.
        piece = view[at : min(at + _COPY_BYTES, end)].tobytes()
        segment.pwrite(piece, at)
        unsynced += len(piece)
        if unsynced >= _AGAIN_BYTES:
            segment.sync()
            unsynced = 0
    segment.sync()
