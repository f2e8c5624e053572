# cython: annotation_typing=False
"""Comparisons of single values, called by the matcher: texts within texts, fractions, long numbers.

Typed in ``comparing.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from math import copysign


def find_text(source: Readable, start: int, length: int, other: Readable, place: int, wanted: int) -> bool:
    """Whether ``wanted`` bytes of ``other`` from ``place`` on occur in ``source[start : start + length]``."""
    if cython.compiled:
        found = cython.cast(
            bytes_in,
            memmem(cython.address(source[start]), length, cython.address(other[place]), wanted),
        )
        return found != cython.NULL
    return bytes(other[place : place + wanted]) in bytes(source[start : start + length])


def order_doubles(left: float, right: float) -> int:
    """As Double.compare: -0.0 is below 0.0, not-a-number above all."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    left_rank = _rank(left)
    right_rank = _rank(right)
    if left_rank == right_rank:
        return 0
    return -1 if left_rank < right_rank else 1


def _rank(value: float) -> int:
    if value != value:
        return 2
    if value == 0.0:
        return 0 if copysign(1.0, value) < 0.0 else 1
    return 1


def slow_double(source: Readable, at: int, length: int) -> float:
    """The value of a text with many digits or a large exponent that was found to be a number."""
    return float(bytes(source[at : at + length]))
