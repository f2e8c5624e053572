"""Standard input, read without holding up the event loop: sends in flight go on, and Ctrl-C ends the wait."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

READ_BYTES = 65536


async def lines() -> AsyncIterator[bytes]:
    """The lines as they come, without empty ones: RocketMQ has no empty messages."""
    begun = b""
    while chunk := await _read():
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            if content := line.rstrip(b"\r"):
                yield content
    if content := begun.rstrip(b"\r"):
        yield content


async def answer() -> str:
    """What the user types at a terminal up to Enter or Ctrl-D."""
    return (await _read()).decode(errors="replace").strip()


async def _read() -> bytes:
    """Read as soon as there is something; nothing at the end of the input."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return os.read(fd, READ_BYTES)  # a file, which cannot be waited for and is always ready
    except NotImplementedError:
        return await asyncio.to_thread(os.read, fd, READ_BYTES)  # an event loop of Windows
    try:
        await ready.wait()
        return os.read(fd, READ_BYTES)
    finally:
        loop.remove_reader(fd)
