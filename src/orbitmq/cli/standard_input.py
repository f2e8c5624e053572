"""Reads standard input without blocking the event loop: sends in flight continue, and Ctrl-C ends the
wait.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

READ_BYTES = 65536


async def lines() -> AsyncIterator[bytes]:
    """The lines as they arrive, without empty ones, since RocketMQ has no empty messages."""
    begun = b""
    while chunk := await _read():
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            if content := line.rstrip(b"\r"):
                yield content
    if content := begun.rstrip(b"\r"):
        yield content


async def answer() -> str:
    """The line that the user types at a terminal, up to Enter or Ctrl-D."""
    return (await _read()).decode(errors="replace").strip()


async def _read() -> bytes:
    """Read as soon as there is input; returns nothing at its end."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return os.read(fd, READ_BYTES)  # a file: it is always ready, and the loop cannot watch it
    except NotImplementedError:
        # Windows: its event loop cannot watch standard input
        return await asyncio.to_thread(os.read, fd, READ_BYTES)
    try:
        await ready.wait()
        return os.read(fd, READ_BYTES)
    finally:
        loop.remove_reader(fd)
