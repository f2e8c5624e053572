# cython: annotation_typing=False
"""Numbers as text, and names as numbers.

Typed in ``texts.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable

LOW_32 = 0xFFFFFFFF


def put_decimal(out: Writable, at: int, value: int) -> int:
    """Write ``value``, which is above -2**63, as decimal text; returns the position behind it."""
    if value < 0:
        out[at] = 0x2D
        at += 1
        value = -value
    digits = 1
    rest = value
    while rest >= 10:
        rest = rest // 10
        digits += 1
    end = at + digits
    for i in range(digits):
        out[end - 1 - i] = 0x30 + value % 10
        value = value // 10
    return end


def put_hex(out: Writable, at: int, value: int, digits: int) -> int:
    """Write the lowest ``digits`` hexadecimal digits, upper case; returns the position behind them."""
    for i in range(digits):
        digit = (value >> (4 * (digits - 1 - i))) & 0xF
        out[at + i] = digit + 0x30 if digit < 10 else digit + 0x37
    return at + digits


def hash_bytes(buf: Readable, pos: int, length: int, h: int) -> int:
    """The hash of a name, continuing from ``h``; equal to that of ``wire.scan.field_name``."""
    for i in range(pos, pos + length):
        h = (h * 131 + buf[i]) & LOW_32
    return h


def find_sorted(table: Integers, width: int, number: int) -> int:
    """The row of ``table`` (rows of ``width``, sorted by their first column) with ``number``, or -1."""
    low = 0
    high = len(table) // width
    while low < high:
        middle = (low + high) // 2
        if table[middle * width] < number:
            low = middle + 1
        else:
            high = middle
    if low * width < len(table) and table[low * width] == number:
        return low
    return -1


def decimal(value: int) -> bytes:
    """The text of :func:`put_decimal` as bytes."""
    out = bytearray(24)
    if cython.compiled:
        return bytes(out[: _decimal_view(out, value)])
    return bytes(out[: put_decimal(out, 0, value)])


def _decimal_view(out: Writable, value: int) -> int:
    return put_decimal(cython.address(out[0]), 0, value)
