# cython: annotation_typing=False
"""One stream of HTTP/2 that is open: its window, and how much data it has brought.

Typed in ``open_stream.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from orbitmq.gateway.refusals import wrong_length

MOST_WINDOW = 2**31 - 1
# A C integer in the compiled module.
_MOST_WINDOW = MOST_WINDOW


class OpenStream:
    """The state of a stream.

    Attributes:
        window: what may go out.
        come: bytes that came since window was last given back.
        length: bytes of data that its content-length names; -1: it has none.
        taken: bytes of data that came in all.
        ended: the client has ended its side.
        untold: its headers, while it may be plain and no event tells of it; kind, timeout_ms: of the call.
    """

    def __init__(self, window: int, ended: bool, length: int) -> None:
        self.window = window
        self.come = 0
        self.length = length
        self.taken = 0
        self.ended = ended
        self.untold: list[tuple[str, str]] | None = None
        self.kind = 0
        self.timeout_ms = 0

    def brings(self, size: int, ended: bool) -> None:
        """Count data of the client.

        Raises:
            Http2Error: it is not as long as its content-length says.
        """
        self.taken += size
        if self.length >= 0 and (self.taken > self.length or (ended and self.taken < self.length)):
            raise wrong_length(self.length, self.taken)

    def grow(self, more: int) -> bool:
        """Make the window larger, or smaller by a number below 0; False: larger than HTTP/2 allows."""
        self.window += more
        return self.window <= _MOST_WINDOW
