# cython: annotation_typing=False
"""Writes HTTP/2 frames into a buffer. The states of streams and windows are kept elsewhere.

Typed in ``frame_writer.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

import struct

import cython

from orbitmq.gateway.frames import FRAME_BYTES, HEAD_BYTES, Kind

if not cython.compiled:
    from orbitmq.message.octets import put_i32

# Dynamic table size update to 0 (RFC 7541, 6.3), at the beginning of a block: the client need keep no table.
_NO_TABLE = b"\x20"

# C integers in the compiled module.
_DATA = int(Kind.DATA)
_HEADERS = int(Kind.HEADERS)
_WINDOW_UPDATE = int(Kind.WINDOW_UPDATE)
_CONTINUATION = int(Kind.CONTINUATION)
_END_STREAM = 0x1
_END_HEADERS = 0x4
_FRAME_BYTES = FRAME_BYTES


class FrameWriter:
    """Makes frames.

    Attributes:
        tells_table: whether the next block of headers begins with the size update to 0.
    """

    def __init__(self) -> None:
        self.tells_table = False
        self._out = bytearray()
        # Scratch space for a frame's head.
        self._nine = bytearray(HEAD_BYTES)

    def frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._head(len(payload), kind, flags, stream)
        self._out += payload

    def headers(self, stream: int, block: bytes, end: bool) -> None:
        """Write a block of headers, in as many frames as it needs."""
        if self.tells_table:
            self.tells_table = False
            block = _NO_TABLE + block
        flags = _END_STREAM if end else 0
        if len(block) <= _FRAME_BYTES:
            self.frame(_HEADERS, flags | _END_HEADERS, stream, block)
            return
        kind = _HEADERS
        for at in range(0, len(block), _FRAME_BYTES):
            part = block[at : at + _FRAME_BYTES]
            last = _END_HEADERS if at + len(part) == len(block) else 0
            self.frame(kind, flags | last, stream, part)
            kind, flags = _CONTINUATION, 0

    def data(self, stream: int, part: bytes | memoryview, size: int) -> None:
        """Write one frame of data that does not end its stream."""
        self._head(size, _DATA, 0, stream)
        self._out += part

    def window(self, stream: int, size: int) -> None:
        """Give a window back by WINDOW_UPDATE: the stream's, or for stream 0 the connection's."""
        self._out += struct.pack(">IBII", 4 << 8 | _WINDOW_UPDATE, 0, stream, size)

    def _head(self, length: int, kind: int, flags: int, stream: int) -> None:
        head = self._nine
        put_i32(head, 0, length << 8 | kind)
        head[4] = flags
        put_i32(head, 5, stream)
        self._out += head

    def take(self) -> bytes:
        """The bytes to send now."""
        data = bytes(self._out)
        self._out.clear()
        return data
