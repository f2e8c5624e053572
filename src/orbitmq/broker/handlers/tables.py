"""Whole tables as bodies: to encode 50,000 topics at once would stop the event loop for half a second."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from orbitmq.wire.bodies.base import Body, encode_object

SLICE = 500


async def encode_with_table(body: Body, name: str, table: Mapping[str, object]) -> bytes:
    """``body`` as JSON with ``table`` as its object ``name``, which is empty in it.

    Other work of the event loop goes on in between. A change that comes meanwhile may be in the answer or
    not: the answer has the version from before, so that the peer asks again.
    """
    empty = b'"%s":{}' % name.encode()
    head, found, tail = body.encode().partition(empty)
    if not found:
        raise ValueError(f"{type(body).__name__} has no empty {name}")
    parts = []
    keys = sorted(table)
    for at in range(0, len(keys), SLICE):
        if at:
            await asyncio.sleep(0)
        parts.append(encode_object({key: table[key] for key in keys[at : at + SLICE]})[1:-1])
    return b"".join([head, empty[:-1], b",".join(parts), b"}", tail])
