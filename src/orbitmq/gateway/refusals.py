# cython: annotation_typing=False
"""Checks HTTP/2 frames and header lists, and words the refusal of each fault.

Typed in ``refusals.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.gateway.frames import (
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    PROTOCOL_ERROR,
    STREAM_CLOSED,
    Http2Error,
)

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

# C integers in the compiled module.
_PADDED = 0x8
_NEEDED = 7
_MOST_DIGITS = 15

_PSEUDO = {":method": 1, ":scheme": 2, ":path": 4, ":authority": 8}
# Connection-specific headers, which HTTP/2 forbids (RFC 9113, 8.2.2), and the body's length.
_JUDGED = frozenset(
    {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "content-length"}
)


def check_headers(headers: list[tuple[str, str]], trailers: bool) -> int:
    """Refuse a list of headers that HTTP/2 calls malformed; returns the content-length, or -1 without one."""
    seen = 0
    length = -1
    behind = trailers
    for name, value in headers:
        if name[0] == ":":
            bit = _PSEUDO.get(name, 0)
            if behind or not bit or seen & bit or (bit == 4 and not value):
                raise malformed(f"header {name[:64]!r} is unknown, empty, twice, or in the wrong place")
            seen |= bit
        else:
            behind = True
            if name in _JUDGED:
                if name != "content-length":
                    raise _out_of_place(name, value)
                if length >= 0 or not (value.isascii() and value.isdigit()) or len(value) > _MOST_DIGITS:
                    raise malformed(f"header content-length: {value[:64]!r} is no number, or is there twice")
                length = int(value)
            elif name == "te" and value != "trailers":
                raise _out_of_place(name, value)
    if not trailers and seen & _NEEDED != _NEEDED:
        raise malformed("a request needs :method, :scheme and :path")
    return length


def check_connection(name: str, stream: int) -> None:
    """Refuse a frame whose kind belongs to the connection, but which names a stream."""
    if stream:
        raise wrong("a frame of a stream", f"{name} of stream {stream}: it is the connection's")


def check_stream(name: str, stream: int) -> None:
    """Refuse a frame whose kind belongs to a stream, but which names none."""
    if not stream:
        raise wrong("a frame of no stream", f"{name} of stream 0")


def padding_of(buf: Readable, pos: int, end: int, flags: int) -> int:
    """How many bytes at the end of a payload are padding."""
    if not flags & _PADDED:
        return 0
    if end == pos or buf[pos] > end - pos - 1:
        raise wrong("padding beyond its frame", "padding is longer than its frame")
    return buf[pos]


def wrong(kind: str, text: str) -> Http2Error:
    return Http2Error(f"HTTP/2 that breaks its rules ({kind})", text, PROTOCOL_ERROR)


def malformed(text: str) -> Http2Error:
    return wrong("malformed headers", text)


def _out_of_place(name: str, value: str) -> Http2Error:
    return malformed(f"header {name}: {value[:64]!r} has no place in HTTP/2")


def wrong_length(length: int, come: int) -> Http2Error:
    return malformed(f"content-length {length}, but {come} bytes of data")


def wrong_size(name: str, size: int) -> Http2Error:
    text = f"a {name} frame of {size} bytes"
    return Http2Error("HTTP/2 that breaks its rules (length of a frame)", text, FRAME_SIZE_ERROR)


def overflow(what: str) -> Http2Error:
    text = f"{what} is exceeded"
    return Http2Error("HTTP/2 that breaks its rules (windows)", text, FLOW_CONTROL_ERROR)


def closed(name: str, stream: int) -> Http2Error:
    text = f"{name} of stream {stream}, which has ended"
    return Http2Error("HTTP/2 that breaks its rules (a stream that has ended)", text, STREAM_CLOSED)
