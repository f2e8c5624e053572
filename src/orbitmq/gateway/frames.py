"""The heads of received HTTP/2 frames, read before the library reads the frames: floods end here.

A frame's head is 9 bytes: length, kind, flags, stream. A client that floods sends frames that cost it nothing
and the server much; so those draw on an allowance, and frames that carry work fill it again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
# HTTP/2's default; the library would collect a frame of 16 MiB before it refuses it.
FRAME_BYTES: Final = 16 * 1024
# 16 KiB of headers, in two frames, leave room for clients that cut them smaller.
MAX_CONTINUATIONS: Final = 8
# As many as there are streams, all reset at once: a consumer that stops.
RESETS: Final = 1000
RESETS_PER_SECOND: Final = 100
# gRPC clients measure the line with a PING for each piece of data, and give window back frame by frame.
CONTROLS: Final = 10_000
CONTROLS_PER_SECOND: Final = 500
CONTROLS_OF_A_CALL: Final = 10
# DATA shorter than this carries no work, unless it ends its stream.
SMALL_DATA_BYTES: Final = 16

ENHANCE_YOUR_CALM: Final = 11
_FRAME_SIZE_ERROR = 6
_PROTOCOL_ERROR = 1
_END_STREAM = 1


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


class Http2Error(Exception):
    """A violation of HTTP/2 by the client; the connection has to end.

    Attributes:
        kind: what is wrong, in words that do not come from the client.
        code: HTTP/2's number for it.
    """

    def __init__(self, kind: str, text: str, code: int = _PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


class _Allowance:
    """A limit for frames of one kind: a burst, then a rate per second."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: int, per_second: int) -> None:
        self._most = most
        self._per_second = per_second
        self._left = float(most)
        self._at = 0.0

    def earn(self, count: int) -> None:
        self._left = min(self._most, self._left + count)

    def spend(self, now: float) -> bool:
        """Count one frame; False when the limit is reached."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Frames:
    """Reads the frame heads and passes the payloads on.

    Attributes:
        goaway: the client has sent a GOAWAY. The library does not see it: it would end the connection, and
            the answers to calls under way with it.
    """

    def __init__(self) -> None:
        # Bytes still to come of the preface, or of the frame whose head was read.
        self._left = len(PREFACE)
        self._preface = PREFACE
        self._head = b""
        self._dropping = False
        self._continuations = 0
        self._resets = _Allowance(RESETS, RESETS_PER_SECOND)
        self._controls = _Allowance(CONTROLS, CONTROLS_PER_SECOND)
        self.goaway = False

    def feed(self, data: bytes, now: float) -> bytes:
        """The bytes of ``data`` for the library: frame heads only when they are whole, no GOAWAY.

        Raises:
            Http2Error: a flood, or a frame that is too long.
        """
        if self._preface:
            self._check_preface(data)
        if self._head:
            data = self._head + data
        kept: list[bytes] = []
        begin = position = 0
        while True:
            step = min(self._left, len(data) - position)
            position += step
            self._left -= step
            if self._dropping:
                begin = position
            if self._left:
                self._head = b""
                break
            self._dropping = False
            if len(data) - position < HEAD_BYTES:
                self._head = data[position:]
                break
            length = int.from_bytes(data[position : position + 3], "big")
            kind = data[position + 3]
            self._judge(kind, data[position + 4], length, now)
            if kind == Kind.GOAWAY:
                kept.append(data[begin:position])
                self.goaway = self._dropping = True
            position += HEAD_BYTES
            self._left = length
        if self._dropping:
            begin = position
        rest = data if begin == 0 and position == len(data) else data[begin:position]
        return b"".join((*kept, rest)) if kept else rest

    def _check_preface(self, data: bytes) -> None:
        count = min(len(data), len(self._preface))
        if data[:count] != self._preface[:count]:
            raise Http2Error("no HTTP/2 preface", "it sends something else than HTTP/2")
        self._preface = self._preface[count:]

    def _judge(self, kind: int, flags: int, length: int, now: float) -> None:
        if length > FRAME_BYTES:
            raise Http2Error(
                "HTTP/2 frame too long",
                f"a frame of {length} bytes, at most {FRAME_BYTES} are allowed",
                _FRAME_SIZE_ERROR,
            )
        if kind == Kind.CONTINUATION:
            self._continuations += 1
            if self._continuations > MAX_CONTINUATIONS:
                raise _flood("CONTINUATION", f"more than {MAX_CONTINUATIONS} for one list of headers")
            return
        self._continuations = 0
        if kind == Kind.HEADERS:
            self._controls.earn(CONTROLS_OF_A_CALL)
        elif kind == Kind.RST_STREAM:
            self.reset_here(now)
        elif kind == Kind.DATA and (length > SMALL_DATA_BYTES or (length and flags & _END_STREAM)):
            self._controls.earn(1)
        elif not self._controls.spend(now):
            name = Kind(kind).name if kind in Kind.__members__.values() else "unknown"
            raise _flood(name, f"more than {CONTROLS} without work, and {CONTROLS_PER_SECOND} a second")

    def reset_here(self, now: float) -> None:
        """A stream was reset: by the client, or here because of what it sent.

        Raises:
            Http2Error: too many of them.
        """
        if not self._resets.spend(now):
            raise _flood("RST_STREAM", f"more than {RESETS}, and {RESETS_PER_SECOND} a second")

    def sent(self) -> None:
        """A frame of data went out: the client may answer with windows."""
        self._controls.earn(2)


def _flood(name: str, text: str) -> Http2Error:
    return Http2Error(f"a flood of {name} frames", f"{name} frames: {text}", ENHANCE_YOUR_CALM)
