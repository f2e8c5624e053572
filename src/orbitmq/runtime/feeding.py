"""Passes bytes that one protocol received to another one."""

from __future__ import annotations

import asyncio
from typing import Any


def feed(protocol: asyncio.BufferedProtocol | asyncio.Protocol, data: memoryview) -> memoryview:
    """Give a protocol as many bytes as it has room for; returns the rest, for the next call."""
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(bytes(data))
        return data[len(data) :]
    room: Any = protocol.get_buffer(len(data))
    count = min(len(room), len(data))
    room[:count] = data[:count]
    protocol.buffer_updated(count)
    return data[count:]
