# cython: annotation_typing=False
"""A column of texts that is written row by row, in Arrow's layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import cython

from orbitmq.message.columns import Text

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable, Writable

if not cython.compiled:
    from orbitmq.message.octets import copy, move, same

# Returns writable memory of a size in bytes, with any content.
Allocate: TypeAlias = "Callable[[int], Writable]"


class TextColumn:
    """One column; it may be used again and again.

    Args:
        nullable: whether an empty text counts as null.
    """

    def __init__(self, nullable: bool = False) -> None:
        self.nullable = nullable
        self.reserve(0, 0, bytearray)

    def reserve(self, rows: int, size_bytes: int, allocate: Allocate) -> None:
        """Begin anew, with room for this many rows and bytes; the caller writes no more."""
        self.rows = 0
        self.used = 0
        self.offset_bytes = bytearray(4 * (rows + 1))
        self.data_bytes = allocate(size_bytes)
        self.bit_bytes = bytearray((rows + 7) // 8)
        self.offsets = memoryview(self.offset_bytes).cast("i")
        self.data = memoryview(self.data_bytes).cast("B")
        self.bits = self.bit_bytes

    def finish(self) -> Text:
        """The column as it was written."""
        bits = self.bit_bytes if self.nullable else None
        return Text(self.offset_bytes, self.data_bytes, self.used, bits)

    def add(self, src: Readable, at: int, size: int) -> None:
        """Add one row."""
        if cython.compiled:
            copy(cython.address(self.data[0]), self.used, src, at, size)
        else:
            copy(self.data, self.used, src, at, size)
        self.used += size
        if self.nullable and size > 0:
            self.bits[self.rows >> 3] |= 1 << (self.rows & 7)
        self.rows += 1
        self.offsets[self.rows] = self.used

    def put_hex(self, src: Readable, at: int, size: int) -> None:
        """Begin the next row with ``size`` bytes as upper-case hexadecimal digits."""
        for i in range(at, at + size):
            high = src[i] >> 4
            low = src[i] & 15
            self.data[self.used] = high + 48 if high < 10 else high + 55
            self.data[self.used + 1] = low + 48 if low < 10 else low + 55
            self.used += 2

    def is_at(self, row: int, src: Readable, at: int, size: int) -> bool:
        """Whether a row holds these bytes."""
        start = self.offsets[row]
        if self.offsets[row + 1] - start != size:
            return False
        if cython.compiled:
            return same(cython.address(self.data[0]), start, src, at, size)
        return same(self.data, start, src, at, size)

    def drop(self, row: int) -> None:
        """Take a row out of a column that is not nullable; later rows move up."""
        start = self.offsets[row]
        size = self.offsets[row + 1] - start
        rest = self.used - start - size
        if cython.compiled:
            move(cython.address(self.data[0]), start, start + size, rest)
        else:
            move(self.data, start, start + size, rest)
        for i in range(row + 1, self.rows):
            self.offsets[i] = self.offsets[i + 1] - size
        self.used -= size
        self.rows -= 1
