# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: annotation_typing=False
"""XXH64, a fast hash of 64 bits, by its published description. Its values are well spread; it is not
cryptographic.

Ordinary Python that also compiles with Cython (``xxh64.pxd`` holds the types); both give the same numbers.
"""

from __future__ import annotations

import cython

# C integers in the compiled module.
MASK = 0xFFFFFFFFFFFFFFFF
PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
PRIME_4 = 0x85EBCA77C2B2AE63
PRIME_5 = 0x27D4EB2F165667C5


def _u64(data: memoryview, at: int) -> int:
    value = 0
    if cython.compiled:
        memcpy(cython.address(value), cython.address(data[at]), 8)  # type: ignore[name-defined]  # noqa: F821
    else:
        value = int.from_bytes(data[at : at + 8], "little")
    return value


def _u32(data: memoryview, at: int) -> int:
    value = data[at + 3]
    value = (value << 8) | data[at + 2]
    value = (value << 8) | data[at + 1]
    return (value << 8) | data[at]


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def _round(lane: int, value: int) -> int:
    lane = (lane + value * PRIME_2) & MASK
    return (_rotated(lane, 31) * PRIME_1) & MASK


def _merged(hashed: int, lane: int) -> int:
    hashed = hashed ^ _round(0, lane)
    return (hashed * PRIME_1 + PRIME_4) & MASK


def xxh64(data: memoryview, at: int, size: int, seed: int) -> int:
    """The hash of ``size`` bytes at ``at``; numbers are read as on a little-endian machine."""
    end = at + size
    if size >= 32:
        a = (seed + PRIME_1 + PRIME_2) & MASK
        b = (seed + PRIME_2) & MASK
        c = seed
        d = (seed - PRIME_1) & MASK
        while at + 32 <= end:
            a = _round(a, _u64(data, at))
            b = _round(b, _u64(data, at + 8))
            c = _round(c, _u64(data, at + 16))
            d = _round(d, _u64(data, at + 24))
            at += 32
        h = (_rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)) & MASK
        h = _merged(h, a)
        h = _merged(h, b)
        h = _merged(h, c)
        h = _merged(h, d)
    else:
        h = (seed + PRIME_5) & MASK
    h = (h + size) & MASK
    while at + 8 <= end:
        h = h ^ _round(0, _u64(data, at))
        h = (_rotated(h, 27) * PRIME_1 + PRIME_4) & MASK
        at += 8
    if at + 4 <= end:
        h = (h ^ (_u32(data, at) * PRIME_1)) & MASK
        h = (_rotated(h, 23) * PRIME_2 + PRIME_3) & MASK
        at += 4
    while at < end:
        h = (h ^ (data[at] * PRIME_5)) & MASK
        h = (_rotated(h, 11) * PRIME_1) & MASK
        at += 1
    h = ((h ^ (h >> 33)) * PRIME_2) & MASK
    h = ((h ^ (h >> 29)) * PRIME_3) & MASK
    return h ^ (h >> 32)
