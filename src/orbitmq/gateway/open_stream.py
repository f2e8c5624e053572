# cython: annotation_typing=False
"""One open stream of HTTP/2: its windows, and how much data the client has sent on it.

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
        window: how many bytes may be sent.
        come: bytes received since the client's window was last given back.
        length: the content-length; -1 without one.
        taken: bytes of data received in all.
        ended: whether the client has ended its side.
        untold: the headers, while the call may be plain and has made no event.
        kind, timeout_ms: of a call that may be plain.
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
            Http2Error: the data is longer or shorter than the content-length.
        """
        self.taken += size
        if self.length >= 0 and (self.taken > self.length or (ended and self.taken < self.length)):
            raise wrong_length(self.length, self.taken)

    def grow(self, more: int) -> bool:
        """Add to the window, which a number below 0 shrinks; False if it is larger than HTTP/2 allows."""
        self.window += more
        return self.window <= _MOST_WINDOW
