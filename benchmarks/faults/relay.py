"""A TCP relay that can be cut, stalled and slowed down while it has open connections.

Every broker listens on its own loopback address and announces the relay's, with the same port. Clients must
notice a dead target: if it refuses the connection, the relay resets the client's. The relay connects from the
client's own address, because RocketMQ's brokers identify each other by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

CHUNK_BYTES = 16 * 1024
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class End:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Way:
    """One direction of a link: open or cut, with a delay for each piece of data and a limit of bytes a
    second.
    """

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        self.open_tap: Callable[[], Callable[[bytes], None]] | None = None
        """Called for each new connection; the function that it returns is called with each piece that
        passes.
        """

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self.delay_s = self.bytes_per_s = 0.0
        self._open.set()

    async def passes(self, size_bytes: int) -> None:
        """Wait until this many bytes may pass."""
        await self._open.wait()
        pause_s = self.delay_s + (size_bytes / self.bytes_per_s if self.bytes_per_s else 0.0)
        if pause_s:
            await asyncio.sleep(pause_s)
            await self._open.wait()


class Link:
    """Forwards connections from ``listen`` to ``target``.

    A cut link loses nothing, like a network under TCP: data sent meanwhile passes after the link is healed. A
    connection that is opened meanwhile hangs.
    """

    def __init__(self, name: str, listen: End, target: End) -> None:
        self.name = name
        self.listen = listen
        self.target = target
        self.there = Way()
        self.back = Way()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address is taken.
        """
        self._server = await asyncio.start_server(self._accept, self.listen.host, self.listen.port)

    async def stop(self) -> None:
        """Stop listening, and reset open connections."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Let nothing pass in either direction."""
        self.there.cut()
        self.back.cut()

    def slow(self, delay_s: float, bytes_per_s: float = 0.0) -> None:
        """Delay every piece of data."""
        for way in (self.there, self.back):
            way.delay_s, way.bytes_per_s = delay_s, bytes_per_s

    def heal(self) -> None:
        """Let everything pass again."""
        self.there.heal()
        self.back.heal()

    def reset(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            _reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Otherwise asyncio, which started this task, would print that it was cancelled.
        with contextlib.suppress(asyncio.CancelledError):
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.there.passes(0)
        source = writer.get_extra_info("peername")[0]
        try:
            onward = await asyncio.open_connection(
                self.target.host, self.target.port, local_addr=(source, 0), limit=CHUNK_BYTES
            )
        except OSError:
            _reset(writer)
            return
        pair = (writer, onward[1])
        self._writers.update(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, onward[1], self.there))
                group.create_task(_pump(onward[0], writer, self.back))
        finally:
            self._writers.difference_update(pair)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    tap = way.open_tap() if way.open_tap is not None else None
    try:
        while data := await reader.read(CHUNK_BYTES):
            await way.passes(len(data))
            if tap is not None:
                tap(data)
            writer.write(data)
            await writer.drain()
        await way.passes(0)
        writer.close()
    except (ConnectionError, OSError):
        # A reset is passed on as a reset, but not before the link is open.
        await way.passes(0)
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
