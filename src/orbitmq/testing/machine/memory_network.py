"""A network in memory: ordered byte streams in seeded pieces, with delay, partitions and cut connections."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from orbitmq.runtime.seam import Listener
from orbitmq.testing.machine.virtual_loop import runs_now

LOOPBACK = "127.0.0.1"
_HERE = frozenset({"", "0.0.0.0", "::", "::1", "localhost", LOOPBACK})  # noqa: S104 - names, not a bind
FIRST_EPHEMERAL_PORT = 32768
LAST_PORT = 65535
# The content of the two socket buffers of a real connection at which the writer notices that the reader is
# stuck.
IN_FLIGHT_BYTES = 256 * 1024
MAX_PIECE_BYTES = 256 * 1024  # asyncio reads at most this much at a time
DEFAULT_HIGH_WATER_BYTES = 64 * 1024
CONNECT_GIVE_UP_S = 127.0  # Linux: tcp_syn_retries 6


class _World:
    """The state that all hosts of one simulated network share."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.listeners: dict[tuple[str, int], _MemoryListener] = {}
        self.names: dict[str, str] = {}
        # Names that do not have exactly one address.
        self.lookups: dict[str, list[str]] = {}
        # A dict keeps the order of insertion, while the order of a set would differ from run to run.
        self.transports: dict[_MemoryTransport, None] = {}
        # Pairs of groups of hosts: nothing passes from the first group to the second.
        self.partitions: list[tuple[frozenset[str], frozenset[str]]] = []
        self.healed: list[asyncio.Future[None]] = []
        self.delay_s = (0.0, 0.0)
        # Additional delays, by host, of everything that leaves or reaches the host.
        self.host_delay_s: dict[str, tuple[float, float]] = {}
        self.next_port = FIRST_EPHEMERAL_PORT

    def blocked(self, sender: str, receiver: str) -> bool:
        return bool(self.partitions) and any(
            sender in senders and receiver in receivers for senders, receivers in self.partitions
        )

    def separated(self, one: str, other: str) -> bool:
        """Whether no connection can be made, which needs both directions."""
        return self.blocked(one, other) or self.blocked(other, one)

    def ephemeral_port(self) -> int:
        port = self.next_port
        self.next_port = port + 1 if port < LAST_PORT else FIRST_EPHEMERAL_PORT
        return port

    def draw_delay(self, *hosts: str) -> float:
        low, high = self.delay_s
        for host in hosts if self.host_delay_s else ():
            more_low, more_high = self.host_delay_s.get(host, (0.0, 0.0))
            low, high = low + more_low, high + more_high
        return self.random.uniform(low, high) if high > 0 else 0.0


class _MemoryListener:
    def __init__(
        self, world: _World, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.factory = factory
        # Accepted connections belong to the process that listens.
        self.context = copy_context()
        self._world = world
        self._host = host
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        if self._world.listeners.get((self._host, self._port)) is self:
            del self._world.listeners[self._host, self._port]


class _Pipe:
    """One direction of a connection."""

    def __init__(self, world: _World, writer: _MemoryTransport, reader: _MemoryTransport) -> None:
        self._world = world
        self._writer = writer
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._parts: deque[tuple[float, memoryview]] = deque()
        self._last_due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.queued_bytes = 0

    def put(self, data: bytes) -> None:
        self._last_due = max(self._last_due, self._loop.time() + self._delay())
        self._parts.append((self._last_due, memoryview(data)))
        self.queued_bytes += len(data)
        self.kick()

    def _delay(self) -> float:
        return self._world.draw_delay(self._writer.host, self._reader.host)

    def end(self) -> None:
        self._ended = True
        self.kick()

    def drop(self) -> None:
        self._parts.clear()
        self.queued_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def kick(self) -> None:
        """Schedule a delivery for a later iteration of the loop."""
        if self._timer is None and (self._parts or self._ended):
            due = self._parts[0][0] if self._parts else self._last_due
            self._timer = self._loop.call_at(due, self._deliver, context=self._reader.context)

    def _deliver(self) -> None:
        self._timer = None
        reader = self._reader
        if reader.stopped_reading or self._world.blocked(self._writer.host, reader.host):
            return  # resume_reading or the end of the partition calls kick() again
        if not self._parts:
            if self._ended:
                self._ended = False
                reader.received_eof()
            return
        due, part = self._parts.popleft()
        if due > self._loop.time():
            self._parts.appendleft((due, part))
            self.kick()
            return
        limit = self._piece(len(part))
        try:
            taken = reader.received(part[:limit])
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol failed on received bytes", "exception": error, "transport": reader}
            )
            reader.abort()
            return
        self.queued_bytes = max(0, self.queued_bytes - taken)
        if taken < len(part) and not reader.lost:
            self._parts.appendleft((due, part[taken:]))
        writer = self._writer
        if writer.waits_for_delivery:
            writer.context.run(writer.delivered)
        self.kick()

    def _piece(self, length: int) -> int:
        draw = self._world.random
        length = min(length, MAX_PIECE_BYTES)
        if length < 2 or draw.random() < 0.6:
            return length
        return draw.randrange(1, min(length, draw.choice((4, 64, 1500, 65536))) + 1)


class _MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, world: _World, protocol: asyncio.BaseProtocol, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__({"peername": there, "sockname": here})
        # Everything that the network delivers runs in the process to which this end belongs.
        self.context = copy_context()
        self.host = here[0]
        self.peer_host = there[0]
        self.peer: _MemoryTransport | None = None
        self.outgoing: _Pipe | None = None
        self.incoming: _Pipe | None = None
        self.stopped_reading = False
        self.lost = False
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._closing = False
        self._eof_sent = False
        self._protocol_paused = False
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._high_water = DEFAULT_HIGH_WATER_BYTES
        self._low_water = DEFAULT_HIGH_WATER_BYTES // 4

    # -- from the network ------------------------------------------------------------------------------

    @property
    def waits_for_delivery(self) -> bool:
        """Whether this end has work to do when its peer has read more."""
        return self._protocol_paused or self._closing

    def received(self, data: memoryview) -> int:
        if self.lost or self._closing:
            return len(data)  # a kernel accepts the bytes, too, and no program reads them
        protocol: Any = self._protocol
        if self._buffered:
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            return count
        protocol.data_received(bytes(data))
        return len(data)

    def received_eof(self) -> None:
        if self.lost or self._closing:
            return
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not protocol.eof_received():
            self.close()

    def delivered(self) -> None:
        """Handle the delivery of bytes that this end wrote."""
        size = self.get_write_buffer_size()
        if self._protocol_paused and not self.lost and size <= self._low_water:
            self._protocol_paused = False
            self._protocol.resume_writing()
        if self._closing and not self.lost and size == 0:
            self._finish(None)

    def reset(self) -> None:
        """Handle a cut connection at this end."""
        self._closing = True
        if not self.lost:
            self._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _finish(self, error: Exception | None) -> None:
        if self.outgoing is not None and not self._eof_sent:
            self._eof_sent = True
            self.outgoing.end()
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        self.lost = True
        self._world.transports.pop(self, None)
        if self.incoming is not None:
            self.incoming.drop()
        self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)

    # -- the transport ---------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or not data or self.outgoing is None:
            return
        if self._eof_sent:
            raise RuntimeError("cannot write after write_eof")
        self.outgoing.put(bytes(data))
        if not self._protocol_paused and self.get_write_buffer_size() > self._high_water:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        if self.outgoing is None:
            return 0
        return max(0, self.outgoing.queued_bytes - IN_FLIGHT_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = DEFAULT_HIGH_WATER_BYTES if low is None else 4 * low
        self._high_water = high
        self._low_water = high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing and self.outgoing is not None:
            self._eof_sent = True
            self.outgoing.end()

    def pause_reading(self) -> None:
        self.stopped_reading = True

    def resume_reading(self) -> None:
        self.stopped_reading = False
        if self.incoming is not None:
            self.incoming.kick()

    def is_reading(self) -> bool:
        return not self.stopped_reading and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.stopped_reading = False
        if self.get_write_buffer_size() == 0:
            self._finish(None)

    def abort(self) -> None:
        if self.lost:
            return
        self._closing = True
        if self.outgoing is not None:
            self.outgoing.drop()
        if self.peer is not None and not self._world.blocked(self.host, self.peer_host):
            delay = self._world.draw_delay(self.host, self.peer_host)
            self._loop.call_later(delay, self.peer.reset, context=self.peer.context)
        self._end(None)


class MemoryNetwork:
    """The network as one host sees it; :meth:`on_host` gives the view of another.

    Attributes:
        host: this host's address; loopback names stand for it, too.
    """

    def __init__(self, source: random.Random, host: str = LOOPBACK, world: _World | None = None) -> None:
        self.host = host
        self._world = world if world is not None else _World(source)

    def on_host(self, host: str) -> MemoryNetwork:
        """The same network, seen from ``host``."""
        return MemoryNetwork(self._world.random, host, self._world)

    # -- switches --------------------------------------------------------------------------------------

    def set_delay(self, low_s: float, high_s: float) -> None:
        """Delay every write by ``low_s`` to ``high_s`` seconds; the order within a connection is kept."""
        self._world.delay_s = (low_s, high_s)

    def slow(self, low_s: float, high_s: float) -> None:
        """Delay everything that leaves or reaches this host; 0 and 0 end the delay."""
        self._world.host_delay_s[self.host] = (low_s, high_s)

    def partition(
        self, one_side: Iterable[str], other_side: Iterable[str], *, one_way: bool = False
    ) -> Callable[[], None]:
        """Block all traffic between two groups of hosts. Connections stay open, and their bytes wait.

        Args:
            one_way: block only the direction from the first group to the second; new connections are
                impossible in both.

        Returns:
            A function that ends this partition only.
        """
        one, other = frozenset(one_side), frozenset(other_side)
        made = [(one, other)] if one_way else [(one, other), (other, one)]
        self._world.partitions += made

        def end() -> None:
            self._world.partitions = [
                each for each in self._world.partitions if all(each is not m for m in made)
            ]
            self._pass_again()

        return end

    def heal(self) -> None:
        """End all partitions; waiting bytes arrive."""
        self._world.partitions.clear()
        self._pass_again()

    def _pass_again(self) -> None:
        waiting, self._world.healed = self._world.healed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for transport in list(self._world.transports):
            if transport.incoming is not None:
                transport.incoming.kick()

    def cut(self, one: str | None = None, other: str | None = None) -> int:
        """Reset the connections between two hosts (None: any host); returns their number."""
        hosts = {one or self.host} if other is None else {one or self.host, other}
        count = 0
        for transport in list(self._world.transports):
            ends = {transport.host, transport.peer_host}
            if transport.lost or not (hosts <= ends):
                continue
            count += 1
            if transport.outgoing is not None:
                transport.outgoing.drop()
            if transport.peer is not None:
                transport.peer.reset()
            transport.reset()
        return count

    def crash(self) -> None:
        """End this host's processes: its ports close and its connections are reset."""
        for key in [key for key in self._world.listeners if key[0] == self.host]:
            del self._world.listeners[key]
        self.cut(self.host)

    # -- the seam --------------------------------------------------------------------------------------

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        host = self._resolve(host)
        if host != self.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL), f"{host}:{port}")
        if port == 0:
            port = self._world.ephemeral_port()
            while (host, port) in self._world.listeners:
                port = self._world.ephemeral_port()
        if (host, port) in self._world.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}")
        listener = _MemoryListener(self._world, host, port, factory)
        self._world.listeners[host, port] = listener
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, local_host: str = ""
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        world = self._world
        host = self._resolve(host)
        if local_host and self._resolve(local_host) != self.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL), local_host)
        await asyncio.sleep(world.draw_delay(self.host, host))
        if world.separated(self.host, host):
            await self._reachable(host, port)
        listener = world.listeners.get((host, port))
        if listener is None:
            text = f"{os.strerror(errno.ECONNREFUSED)}: {host}:{port}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        here, there = (self.host, world.ephemeral_port()), (host, port)
        near = _MemoryTransport(world, factory(), here, there)
        far = listener.context.run(lambda: _MemoryTransport(world, listener.factory(), there, here))
        near.peer, far.peer = far, near
        near.outgoing = far.incoming = _Pipe(world, near, far)
        far.outgoing = near.incoming = _Pipe(world, far, near)
        world.transports[near] = world.transports[far] = None
        if runs_now(far.context):
            far.context.run(far.get_protocol().connection_made, far)
        else:  # the kernel of a frozen process accepts connections, too
            asyncio.get_running_loop().call_soon(far.get_protocol().connection_made, far, context=far.context)
        near.get_protocol().connection_made(near)
        await asyncio.sleep(0)
        return near, near.get_protocol()

    async def _reachable(self, host: str, port: int) -> None:
        async def wait() -> None:
            while self._world.separated(self.host, host):
                future = asyncio.get_running_loop().create_future()
                self._world.healed.append(future)
                await future

        try:
            await asyncio.wait_for(wait(), CONNECT_GIVE_UP_S)
        except TimeoutError:
            text = f"{os.strerror(errno.ETIMEDOUT)}: {host}:{port}"
            raise TimeoutError(errno.ETIMEDOUT, text) from None

    @property
    def names(self) -> dict[str, str]:
        """Host addresses by name."""
        return self._world.names

    @property
    def lookups(self) -> dict[str, list[str]]:
        """Host names for which the simulated DNS has none or several addresses, each with its addresses."""
        return self._world.lookups

    async def resolve_all(self, host: str) -> list[str]:
        if host in self._world.lookups:
            return sorted(self._world.lookups[host])
        return [await self.resolve(host)]

    async def resolve(self, host: str) -> str:
        found = self._resolve(host)
        if not (":" in found or found.replace(".", "").isdecimal()):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    def _resolve(self, host: str) -> str:
        return self.host if host in _HERE else self._world.names.get(host, host)
