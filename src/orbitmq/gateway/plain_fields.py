# cython: annotation_typing=False
"""Reads and writes the fields of protobuf messages in place, for all plain calls.

A message with an unusual field is refused; the caller then takes the ordinary path, which uses protobuf.

Typed in ``plain_fields.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import copy, put_i32

# The most bytes that are written for one message.
MAX_BYTES = 8192
_SECOND = 0x12


class PlainFields:
    """A place in a received message, the spans of its parts, and a buffer for the bytes made from it.

    Args:
        parts: how many parts have a span.
    """

    def __init__(self, parts: int) -> None:
        self.at = 0
        self.count = parts
        self.parts = array("q", bytes(8 * 2 * parts))
        self.data = bytearray(MAX_BYTES)
        self.view = self.data
        self.used = 0

    def _forget(self) -> None:
        """Forget the spans of all parts."""
        for part in range(self.count):
            self.parts[2 * part] = -1
            self.parts[2 * part + 1] = 0

    def _varint(self, buf: Readable, end: int) -> int:
        """Read the varint at the place; -1 if it is cut or larger than 56 bits."""
        value = 0
        shift = 0
        while self.at < end and shift < 56:
            byte = buf[self.at]
            self.at += 1
            value |= cython.cast(cython.longlong, byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        return -1

    def _tag(self, buf: Readable, end: int) -> int:
        """Read a field's tag (number and type); -1 if it is longer than two bytes: no known tag is."""
        start = self.at
        tag = self._varint(buf, end)
        return tag if self.at - start <= 2 else -1

    def _length(self, buf: Readable, end: int) -> int:
        """Read the length of the bytes at the place; -1 if they are cut."""
        start = self.at
        length = self._varint(buf, end)
        if length < 0 or length > end - self.at or self.at - start > 4:
            return -1
        return length

    def _span(self, buf: Readable, end: int, part: int) -> bool:
        """Note the bytes at the place as a part, and move behind them; False if the part came before."""
        length = self._length(buf, end)
        if length < 0 or self.parts[2 * part] >= 0:
            return False
        self.parts[2 * part] = self.at
        self.parts[2 * part + 1] = length
        self.at += length
        return True

    def _name(self, buf: Readable, part: int) -> bool:
        """Narrow the span of a resource to the name in it; False if it has a namespace, too."""
        parts = self.parts
        self.at = parts[2 * part]
        end = self.at + parts[2 * part + 1]
        parts[2 * part] = -1
        return self._tag(buf, end) == _SECOND and self._span(buf, end, part) and self.at == end

    # -- writing -----------------------------------------------------------------------------------------

    def _put(self, text: bytes) -> None:
        if cython.compiled:
            copy(cython.address(self.view[0]), self.used, cython.cast(bytes_in, text), 0, len(text))
        else:
            copy(self.data, self.used, text, 0, len(text))
        self.used += len(text)

    def _copy(self, buf: Readable, start: int, length: int) -> None:
        if cython.compiled:
            copy(cython.address(self.view[0]), self.used, buf, start, length)
        else:
            copy(self.data, self.used, buf, start, length)
        self.used += length

    def _byte(self, value: int) -> None:
        self.view[self.used] = value
        self.used += 1

    def _number(self, value: int) -> None:
        while value >= 0x80:
            self._byte((value & 0x7F) | 0x80)
            value >>= 7
        self._byte(value)

    def _begin_answer(self, length: int) -> None:
        """Write gRPC's prefix of an uncompressed message of this length."""
        if cython.compiled:
            put_i32(cython.address(self.view[0]), 1, length)
        else:
            put_i32(self.data, 1, length)
        self.view[0] = 0
        self.used = 5

    def _made(self) -> bytes:
        """The bytes that were written."""
        if cython.compiled:
            return cython.address(self.view[0])[: self.used]
        return bytes(self.data[: self.used])


def varint_bytes(value: int) -> int:
    count = 1
    while value >= 0x80:
        value >>= 7
        count += 1
    return count


def is_plain(buf: Readable, start: int, length: int) -> bool:
    """Whether all bytes are printable ASCII."""
    odd = 0
    for i in range(start, start + length):
        # This loop has no branch, so that the compiler takes many bytes at a time.
        odd |= (buf[i] < 0x20) | (buf[i] > 0x7E)
    return odd == 0
