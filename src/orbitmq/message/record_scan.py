# cython: annotation_typing=False
"""Walks over the records of one queue by their sizes and offsets, without decoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import cython

from orbitmq.message import record_layout
from orbitmq.message.errors import RecordError

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import get_i32, get_i64

# C integers in the compiled module.
QUEUE_OFFSET_AT = record_layout.QUEUE_OFFSET_AT
# How many bytes of each record the walk reads.
SEEN_BYTES = record_layout.PHYSICAL_OFFSET_AT


class Scan(NamedTuple):
    """The result of :func:`scan_range`.

    Attributes:
        records: how many were accepted.
        end_position: bytes they take from the start of the buffer.
        next_offset: queue offset after the last accepted record.
        found: the queue offset that broke the continuity, or -1.
    """

    records: int
    end_position: int
    next_offset: int
    found: int


def scan_range(src: Readable, expected: int, end: int, strict: bool) -> Scan:
    """Walk the records of one queue in ``src`` that lie in ``[expected, end)``.

    Args:
        src: concatenated records of one queue, as a pull response carries them.
        expected: the first queue offset wanted; earlier records are an error of the sender.
        end: the first queue offset not wanted.
        strict: whether every offset must be there (no filter at the broker).

    Raises:
        RecordError: the bytes are not whole records.
    """
    size = len(src)
    if cython.compiled:
        buf = cython.address(src[0])
    else:
        buf = src
    at = 0
    count = 0
    found = -1
    while at < size:
        total = get_i32(buf, at) if at + SEEN_BYTES <= size else 0
        if total < SEEN_BYTES or total > size - at:
            raise RecordError(f"record at byte {at} has size {total}, {size - at} bytes are left")
        offset = get_i64(buf, at + QUEUE_OFFSET_AT)
        if offset >= end:
            if strict and expected < end:
                found = offset
            break
        if offset < expected or (strict and offset != expected):
            found = offset
            break
        expected = offset + 1
        count += 1
        at += total
    return Scan(count, at, expected, found)
