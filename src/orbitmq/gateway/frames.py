# cython: annotation_typing=False
"""HTTP/2's frames: their numbers, and limits for frames that cost a client nothing and the server much.

Such frames use up an allowance, which frames that carry work fill again.

Typed in ``frames.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# A frame's head: length (3 bytes), kind, flags, stream (4).
HEAD_BYTES: Final = 9
# The longest payload of a frame: HTTP/2's default.
FRAME_BYTES: Final = 16 * 1024
# The longest list of headers, 16 KiB, fits in two frames; clients may cut it smaller.
MAX_CONTINUATIONS: Final = 8
# The allowance for RST_STREAM: a consumer that stops resets all of its streams at once.
RESETS: Final = 1000
RESETS_PER_SECOND: Final = 100
# The allowance for PING, WINDOW_UPDATE and the like: gRPC clients measure the bandwidth by a PING for each
# piece of data, and give windows back frame by frame.
CONTROLS: Final = 10_000
CONTROLS_PER_SECOND: Final = 500
CONTROLS_OF_A_CALL: Final = 10
# DATA shorter than this carries no work, unless it ends its stream.
SMALL_DATA_BYTES: Final = 16

# HTTP/2's error codes.
NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11


class Kind(IntEnum):
    """The kinds of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# C integers in the compiled module.
_DATA = int(Kind.DATA)
_HEADERS = int(Kind.HEADERS)
_RST_STREAM = int(Kind.RST_STREAM)
_CONTINUATION = int(Kind.CONTINUATION)
_LONGEST = FRAME_BYTES
_SMALL = SMALL_DATA_BYTES
_OF_A_CALL = CONTROLS_OF_A_CALL
_CONTINUED = MAX_CONTINUATIONS
_END_STREAM = 1


class Http2Error(Exception):
    """A violation of HTTP/2 by the client; the connection has to end.

    Attributes:
        kind: the kind of fault, in words that do not come from the client.
        code: HTTP/2's number for it.
    """

    def __init__(self, kind: str, text: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


class Allowance:
    """A limit for frames of one kind: a burst at most, filled again at a rate per second."""

    def __init__(self, most: float, per_second: float) -> None:
        self.most = most
        self.per_second = per_second
        self.left = most
        self.at = 0.0

    def earn(self, count: int) -> None:
        self.left += count
        if self.left > self.most:
            self.left = self.most

    def spend(self, now: float) -> bool:
        """Count one frame; returns False if the limit is reached."""
        self.left += (now - self.at) * self.per_second
        if self.left > self.most:
            self.left = self.most
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Floods:
    """Detects floods of cheap frames on one connection by the heads of its frames."""

    def __init__(self) -> None:
        self.continuations = 0
        self.resets = Allowance(RESETS, RESETS_PER_SECOND)
        self.controls = Allowance(CONTROLS, CONTROLS_PER_SECOND)

    def judge(self, kind: int, flags: int, length: int, now: float) -> None:
        """Count a frame by its head; its payload may still be on its way.

        Raises:
            Http2Error: an allowance is used up, or the frame is too long.
        """
        if length > _LONGEST:
            raise Http2Error(
                "HTTP/2 frame too long",
                f"a frame of {length} bytes, at most {FRAME_BYTES} are allowed",
                FRAME_SIZE_ERROR,
            )
        if kind == _CONTINUATION:
            self.continuations += 1
            if self.continuations > _CONTINUED:
                raise _flood("CONTINUATION", f"more than {MAX_CONTINUATIONS} for one list of headers")
            return
        self.continuations = 0
        if kind == _HEADERS:
            self.controls.earn(_OF_A_CALL)
        elif kind == _RST_STREAM:
            if not self.resets.spend(now):
                raise _flood("RST_STREAM", f"more than {RESETS}, and {RESETS_PER_SECOND} a second")
        elif kind == _DATA and (length > _SMALL or (length and flags & _END_STREAM)):
            self.controls.earn(1)
        elif not self.controls.spend(now):
            name = Kind(kind).name if kind in Kind.__members__.values() else "unknown"
            raise _flood(name, f"more than {CONTROLS} without work, and {CONTROLS_PER_SECOND} a second")

    def sent(self) -> None:
        """Allow two more frames of the client: it answers each frame of data with WINDOW_UPDATE frames."""
        self.controls.earn(2)


def _flood(name: str, text: str) -> Http2Error:
    return Http2Error(f"a flood of {name} frames", f"{name} frames: {text}", ENHANCE_YOUR_CALM)
