# cython: annotation_typing=False
"""Reads, writes and compares numbers and bytes inside buffers, and computes the checksum of a record.

Typed in ``octets.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Nothing here
checks a bound: the callers know that what they read and write is inside their buffers.
"""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable


if not cython.compiled:
    # Compiled modules use the functions of ``octets.h`` instead, which the C compiler inlines.

    def copy(out: Writable, at: int, source: Readable, pos: int, length: int) -> None:
        out[at : at + length] = source[pos : pos + length]

    def same(buf: Readable, pos: int, other: Readable, at: int, length: int) -> bool:
        return buf[pos : pos + length] == other[at : at + length]

    def find(buf: Readable, byte: int, start: int, end: int) -> int:
        found = bytes(buf[start:end]).find(byte)
        return end if found < 0 else start + found

    def fetch(_buf: Readable, _at: int, _length: int) -> None:
        """Prefetch bytes that are read soon; only the compiled form does anything."""

    def put_i16(out: Writable, at: int, value: int) -> None:
        out[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")

    def put_i32(out: Writable, at: int, value: int) -> None:
        out[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")

    def put_i64(out: Writable, at: int, value: int) -> None:
        out[at : at + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")

    def get_i16(buf: Readable, pos: int) -> int:
        return int.from_bytes(buf[pos : pos + 2], "big", signed=True)

    def get_i32(buf: Readable, pos: int) -> int:
        return int.from_bytes(buf[pos : pos + 4], "big", signed=True)

    def get_i64(buf: Readable, pos: int) -> int:
        return int.from_bytes(buf[pos : pos + 8], "big", signed=True)


def _crc_table() -> Integers:
    table = array("I", bytes(4 * 256 * 8))
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        table[n] = c
    for n in range(256):
        c = table[n]
        for k in range(1, 8):
            c = table[c & 0xFF] ^ (c >> 8)
            table[k * 256 + n] = c
    return table


_TABLE = _crc_table()
# From this many bytes on the checksum folds sixteen bytes at a time, where the processor can
# (``crc32_fold.h``).
FOLD_BYTES = 64


def crc32(buf: Readable, pos: int, length: int) -> int:
    """CRC-32 of ``length`` bytes at ``pos`` with the sign bit cleared, as RocketMQ keeps it."""
    if cython.compiled:
        return _crc32_by_eight(_TABLE, buf, pos, length)
    return zlib.crc32(buf[pos : pos + length]) & 0x7FFFFFFF


def _crc32_by_eight(t: Integers, buf: Readable, pos: int, length: int) -> int:
    c = 0xFFFFFFFF
    end = pos + length
    if cython.compiled and length >= FOLD_BYTES and folds():
        folded = length & -16
        c = fold(c, cython.address(buf[pos]), folded)
        pos += folded
    while end - pos >= 8:
        c ^= (
            buf[pos]
            | (buf[pos + 1] << 8)
            | (buf[pos + 2] << 16)
            | (cython.cast(cython.uint, buf[pos + 3]) << 24)
        )
        c = (
            t[1792 + (c & 0xFF)]
            ^ t[1536 + ((c >> 8) & 0xFF)]
            ^ t[1280 + ((c >> 16) & 0xFF)]
            ^ t[1024 + (c >> 24)]
            ^ t[768 + buf[pos + 4]]
            ^ t[512 + buf[pos + 5]]
            ^ t[256 + buf[pos + 6]]
            ^ t[buf[pos + 7]]
        )
        pos += 8
    while pos < end:
        c = t[(c ^ buf[pos]) & 0xFF] ^ (c >> 8)
        pos += 1
    return ~c & 0x7FFFFFFF


def crc32_of(data: bytes) -> int:
    """:func:`crc32` of a whole object."""
    if cython.compiled:
        return _crc32_of_view(data or b"\0", len(data))
    return crc32(data, 0, len(data))


def _crc32_of_view(data: Readable, length: int) -> int:
    return crc32(cython.address(data[0]), 0, length)


def move(out: Writable, to: int, at: int, length: int) -> None:
    """Move bytes inside ``out``; the two places may overlap."""
    if cython.compiled:
        memmove(cython.address(out[to]), cython.address(out[at]), length)
    else:
        out[to : to + length] = out[at : at + length]


def is_ascii(buf: Readable, pos: int, length: int) -> bool:
    if not cython.compiled:
        return bytes(buf[pos : pos + length]).isascii()
    seen = 0
    for i in range(pos, pos + length):
        seen |= buf[i]
    return seen < 0x80


def text_kind(buf: Readable, pos: int, length: int) -> int:
    """What kind of text the bytes are: 1 when one is below U+0020, plus 128 when one is not ASCII."""
    if not cython.compiled:
        part = bytes(buf[pos : pos + length])
        return (0 if part.isascii() else 0x80) | (1 if part and min(part) < 0x20 else 0)
    seen = 0
    for i in range(pos, pos + length):
        # Without a branch, so that the compiled loop handles many bytes at a time.
        seen |= (buf[i] & 0x80) | (buf[i] < 0x20)
    return seen


def is_utf8(buf: Readable, pos: int, length: int) -> bool:
    """Whether the bytes are well-formed UTF-8, as Python's decoder accepts it."""
    if not cython.compiled:
        try:
            bytes(buf[pos : pos + length]).decode()
        except UnicodeDecodeError:
            return False
        return True
    end = pos + length
    while pos < end:
        c = buf[pos]
        pos += 1
        if c < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= c <= 0xDF:
            more = 1
        elif 0xE0 <= c <= 0xEF:
            more = 2
            if c == 0xE0:
                low = 0xA0
            elif c == 0xED:
                high = 0x9F
        elif 0xF0 <= c <= 0xF4:
            more = 3
            if c == 0xF0:
                low = 0x90
            elif c == 0xF4:
                high = 0x8F
        else:
            return False
        if end - pos < more or buf[pos] < low or buf[pos] > high:
            return False
        for i in range(pos + 1, pos + more):
            if buf[i] < 0x80 or buf[i] > 0xBF:
                return False
        pos += more
    return True


def is_utf8_bytes(data: bytes) -> bool:
    """:func:`is_utf8` of a whole object."""
    if cython.compiled:
        return _is_utf8_view(data or b"a", len(data))
    return is_utf8(data, 0, len(data))


def _is_utf8_view(data: Readable, length: int) -> bool:
    return is_utf8(cython.address(data[0]), 0, length)
