"""Encodes whole tables in slices: 50,000 topics at once would stop the event loop for half a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from orbitmq.wire.bodies.base import Body, encode_object

# Entries that are encoded in one turn of the event loop: half a millisecond for topics, one for groups.
SLICE = 100
# Makes the JSON of some entries of a table.
Encode: TypeAlias = Callable[[Mapping[str, object]], bytes]
# The keys of a table in order, and the function that returns a key's value (``None``: removed meanwhile).
LongTable: TypeAlias = tuple[Iterable[Any], Callable[[Any], object]]


async def encode_with_table(
    body: Body, name: str, table: Mapping[Any, object], encode: Encode = encode_object
) -> bytes:
    """``body`` as JSON like :func:`encode_with_tables`, with one table that does not change.

    Args:
        encode: makes the JSON of some entries.
    """
    encoded = body.encode()
    return _filled(encoded, name, b"{", b"}", await _entries(sorted(table), table.get, encode))


def table_of(table: Mapping[Any, object]) -> LongTable:
    """A table that does not change, in the form for :func:`encode_with_tables`."""
    return sorted(table), table.get


async def encode_with_tables(body: Body, **tables: LongTable) -> bytes:
    """``body`` as JSON, with the empty objects named in ``tables`` filled from these tables.

    The event loop does other work in between. A change made meanwhile may be in the answer or not: the answer
    has the version from before the change, so that the peer fetches the table again.
    """
    encoded = body.encode()
    for name, (keys, value_of) in tables.items():
        encoded = _filled(encoded, name, b"{", b"}", await _entries(list(keys), value_of, encode_object))
    return encoded


async def _entries(keys: list[Any], value_of: Callable[[Any], object], encode: Encode) -> list[bytes]:
    parts = []
    for at in range(0, len(keys), SLICE):
        if at:
            await asyncio.sleep(0)
        parts.append(encode({key: value_of(key) for key in keys[at : at + SLICE]})[1:-1])
    return [part for part in parts if part]


async def encode_with_list(body: Body, name: str, items: Iterable[tuple[Mapping[str, object], int]]) -> bytes:
    """``body`` as JSON, with the empty list ``name`` filled with ``items``, in slices.

    Args:
        items: each with its weight: the number of table entries that take as long to encode.
    """
    parts, entries = [], 0
    for item, weight in items:
        parts.append(encode_object(item))
        entries += weight
        if entries >= SLICE:
            entries = 0
            await asyncio.sleep(0)
    return _filled(body.encode(), name, b"[", b"]", parts)


def _filled(encoded: bytes, name: str, opening: bytes, closing: bytes, parts: list[bytes]) -> bytes:
    field = b'"%s":' % name.encode()
    head, found, tail = encoded.partition(field + opening + closing)
    if not found:
        raise ValueError(f"the body has no empty {name}")
    return b"".join([head, field, opening, b",".join(parts), closing, tail])
