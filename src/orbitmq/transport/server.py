"""The server's side of the remoting protocol: listens, passes requests to one handler, sends its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from orbitmq.runtime.client_names import NO_NAME, name_in
from orbitmq.runtime.server_tls import ServerTls, TlsMode
from orbitmq.runtime.tasks import in_slices
from orbitmq.transport.connection import Connection, close_all
from orbitmq.transport.endpoint import Answer, Endpoint, Handler, Limits
from orbitmq.transport.entrance import Entrance
from orbitmq.transport.peer_clock import PeerClock
from orbitmq.transport.proxies import Network, Proxies
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import joined
from orbitmq.wire.command import Command
from orbitmq.wire.connection import TLS, ChunkHook
from orbitmq.wire.frame import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime
    from orbitmq.runtime.seam import Listener

log = logging.getLogger("orbitmq.transport")

IDLE_SECONDS = 120.0  # NettyServerConfig.serverChannelMaxIdleTimeSeconds
IDLE_CHECKS = 4
# The longest time from the first byte of a connection to the end of its first frame, in which it is checked
# five times.
FIRST_FRAME_SECONDS = 10.0
FIRST_FRAME_CHECKS = 5
# How many connections are checked in one turn of the event loop: closing so many takes about 2 ms.
CHECKED_AT_ONCE = 100

ConnectionCallback: TypeAlias = Callable[["ServerConnection"], None]
SendCallback: TypeAlias = Callable[["ServerConnection", Command], None]
# Serves another protocol on the same port: gets a transport and the bytes received on it.
Taker: TypeAlias = Callable[[asyncio.Transport, bytes], None]


class Watch(Protocol):
    """Decides what connections may send before their client's keys were checked."""

    @property
    def guards(self) -> bool:
        """Whether clients have to show keys: new connections are restrained until they do."""
        ...

    def knows(self, command: Command) -> bool:
        """Whether a long request is accepted before its sender's keys are checked: it names a known user."""
        ...

    def trusts(self, connection: ServerConnection) -> bool:
        """Whether a new connection may send long requests at once: its certificate names a user."""
        ...

    def pause_s(self, address: str) -> float:
        """For how many seconds a new connection from this address is not read."""
        ...

    def recheck(self, connection: ServerConnection, command: Command) -> None:
        """Check the rights of an accepted request again.

        Raises:
            RemotingError: the request is not permitted any more.
        """
        ...


class ServerConnection(Connection):
    """The connection of one client.

    Attributes:
        born: the client's address as records have it, which the broker sets; empty until then.
        caller: the sender of the last checked request, which the broker sets; None until then.
        certificate: the user that the client's certificate names.
        idle_checks: how many checks in a row found the connection idle.
        metered: whether the server's ``on_send`` is called for each command sent on it.
        number: the connection's number in the order in which the server accepted connections.
        secured: whether it speaks TLS.
    """

    __slots__ = (
        "_clock", "_rest", "_server", "born", "caller", "certificate", "idle_checks", "metered", "number",
        "secured",
    )  # fmt: skip

    pauses_reading = True

    def __init__(self, server: RemotingServer, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._server = server
        self.born = b""
        self.caller: Any = None
        self.certificate = NO_NAME
        self._clock: PeerClock | None = None
        self.idle_checks = 0
        self.number = 0
        self.secured = False
        self.metered = False
        self._rest: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        session = transport.get_extra_info("ssl_object")
        self.secured = session is not None
        self.certificate = name_in(session, self._server.tls.names)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._server.lost(self)

    def send(self, command: Command) -> None:
        if self.metered:
            self._server.sending(self, command)
        super().send(command)

    @property
    def clock(self) -> PeerClock:
        """The difference between the client's and the server's clock, for requests that carry their time."""
        if self._clock is None:
            self._clock = PeerClock()
        return self._clock

    def restrain(self, allows_long: Callable[[Command], bool]) -> None:
        """Until :meth:`trust`, accept a long frame only if this function allows it for the frame's header."""
        self._protocol.restrain(allows_long)

    def recheck(self, command: Command) -> None:
        """Check the rights of an accepted request again.

        Raises:
            RemotingError: it is not permitted any more.
        """
        self._server.recheck(self, command)

    def trust(self) -> None:
        """Accept all frames: the client's keys were checked."""
        self._protocol.restrain(None)

    def rest(self, seconds: float) -> None:
        """Pause reading for this time, or until a later end set before; received requests are handled."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        until = self._loop.time() + seconds
        if self._rest is not None:
            if self._rest.when() >= until:
                return
            self._rest.cancel()
        else:
            transport.pause_reading()
        self._rest = self._loop.call_at(until, self._rested)

    @property
    def resting(self) -> bool:
        return self._rest is not None

    def _rested(self) -> None:
        self._rest = None
        self.active = True  # nothing was read meanwhile, so the client does not count as idle
        if not self._write_paused:
            self._read_on()

    def hand_over(self, first: bytes, received: bytes) -> bool:
        taker, transport = self._server.taker(self, first), self._transport
        if taker is None or transport is None:
            return False
        # For the server this connection has ended. The transport stays open, and reports its end elsewhere.
        self.connection_lost(None)
        transport.set_protocol(asyncio.Protocol())
        taker(transport, received)
        return True

    @property
    def framed(self) -> bool:
        """Whether a complete frame was received."""
        return self._protocol.framed

    @property
    def half_framed(self) -> bool:
        """Whether a frame was received in part."""
        return self._protocol.half_framed

    def end_half_frame(self) -> None:
        """Close the connection because its first frame takes too long."""
        self._refuse("its first frame does not end", f"not whole within {FIRST_FRAME_SECONDS:g} s")


class RemotingServer:
    """Serves the remoting protocol on one port.

    Args:
        handle: called with (connection, command) for every request. Its answer, or the result of its
            awaitable, is sent; None sends nothing. A RemotingError becomes its code and remark, any other
            exception SYSTEM_ERROR. Answers to one-way requests are dropped.
        on_open, on_close: called once for every accepted connection.
        on_send: called with (connection, command) before a command is sent on a metered connection.
        on_chunk: called with (connection, buffer, start, end) for received bytes that begin at a frame
            border; returns the position up to which it used complete frames. It stops before a frame that it
            does not take: if that frame is complete, ``handle`` gets it, and the hook is called again for the
            bytes behind it; an incomplete one is kept for the next read. The buffer is valid only during the
            call.
        seats: limits and counts the connections, also those of the server's other ports; further connections
            are refused with a log line. None: no limit.
        takers: serve connections that begin with these bytes instead of a frame (:data:`OTHER_PROTOCOLS`);
            may change at any time.
        idle_seconds: a connection without any traffic for this time is closed (at most a quarter later).
        proxies: addresses of proxies, whose connections begin with a PROXY protocol header.
        watch: decides what each new connection may send before its client's keys were checked.
        tls: whether clients with and without TLS are served. Frames inside TLS have the same handler, other
            protocols inside TLS the same takers. Without a certificate a taker of TLS gets the connection.
    """

    def __init__(
        self,
        runtime: Runtime,
        handle: Handler,
        *,
        on_open: ConnectionCallback | None = None,
        on_close: ConnectionCallback | None = None,
        on_send: SendCallback | None = None,
        on_chunk: ChunkHook | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        limits: Limits | None = None,
        seats: Seats | None = None,
        idle_seconds: float = IDLE_SECONDS,
        takers: Mapping[bytes, Taker] | None = None,
        proxies: Iterable[Network] = (),
        watch: Watch | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._runtime = runtime
        self._endpoint = Endpoint(
            runtime, handle, on_chunk, limits or Limits(max_frame_bytes=max_frame_bytes)
        )
        self.takers: Mapping[bytes, Taker] = {} if takers is None else takers
        self._on_open = on_open
        self._on_close = on_close
        self._on_send = on_send
        self._seats = seats or Seats()
        self._idle_seconds = idle_seconds
        self._connections: dict[ServerConnection, None] = {}
        self._listener: Listener | None = None
        self._accepting = False
        self._accepted = 0
        self._watch = watch
        self._idle_task: asyncio.Task[None] | None = None
        # Connections whose first frame is not complete, and how many checks found it begun.
        self._unframed: dict[ServerConnection, int] = {}
        self._unframed_task: asyncio.Task[None] | None = None
        self.tls = tls or ServerTls(runtime)
        self._entrance = Entrance(
            self.tls,
            lambda: ServerConnection(self, self._endpoint),
            self._endpoint.peers_log,
            self._admits,
            self._seats,
        )
        self._proxies = (
            Proxies(proxies, self._seats, self._endpoint.peers_log, self._entrance.begin) if proxies else None
        )

    @property
    def connections(self) -> frozenset[ServerConnection]:
        """The open connections."""
        return frozenset(self._connections)

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def failures(self) -> Mapping[tuple[int, int], int]:
        """The number of failed requests, by the codes of request and answer."""
        return self._endpoint.failures

    async def start(self, host: str, port: int) -> int:
        """Listen on ``host:port`` (0: any free port) and return the port.

        Raises:
            OSError: the address is in use, or not one of this machine.
        """
        self._accepting = True
        self._listener = await self._runtime.network.listen(self._connection, host, port)
        self._idle_task = asyncio.ensure_future(self._close_idle())
        return self._listener.port

    async def stop(self) -> None:
        """Stop listening, cancel requests being handled, close all connections (forced after a second)."""
        self._accepting = False
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        checks = [task for task in (self._idle_task, self._unframed_task) if task is not None]
        self._idle_task = self._unframed_task = None
        for task in checks:
            task.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        if self._proxies is not None:
            self._proxies.close()
        self._entrance.close()
        await close_all(self._connections)

    def _connection(self) -> asyncio.BufferedProtocol:
        if self._proxies is not None:
            return self._proxies.protocol()
        if self._entrance.enforces:
            return self._entrance.protocol()
        return ServerConnection(self, self._endpoint)

    def taker(self, connection: ServerConnection, first: bytes) -> Taker | None:
        """The taker of a connection that begins with these bytes; None without one."""
        if first != TLS:
            return self.takers.get(first)
        if connection.secured or self.tls.mode is TlsMode.DISABLED:
            return None
        return self._entrance.secure if self.tls.serves else self.takers.get(first)

    def _admits(self, host: str, port: int) -> bool:
        """Whether there is room for a connection of this client; logs the reason if not."""
        if not self._accepting:
            return False  # accepted in the turn of the event loop in which the server stopped
        why = self._seats.why_not(host)
        if why:
            text = "refusing %s: %s"
            self._endpoint.peers_log.write(
                logging.WARNING, "connection refused", text, joined(host, port), why
            )
        return not why

    def opened(self, connection: ServerConnection) -> None:
        """Count a new connection, or close it if there is no room."""
        if not self._admits(*connection.remote):
            connection.abort()
            return
        self._seats.take(connection.remote[0])
        self._accepted += 1
        connection.number = self._accepted
        self._connections[connection] = None
        if self._watch is not None and self._watch.guards:
            if not self._watch.trusts(connection):
                connection.restrain(self._watch.knows)
            pause_s = self._watch.pause_s(connection.remote[0])
            if pause_s:
                connection.rest(pause_s)
        self._unframed[connection] = 0
        if self._unframed_task is None and self._accepting:
            self._unframed_task = asyncio.ensure_future(self._check_first_frames())
        self._notify(self._on_open, connection)

    async def _check_first_frames(self) -> None:
        """Close connections whose first frame takes too long. Connections without a byte are left to the
        idle check."""
        while self._unframed:
            await self._runtime.clock.sleep(FIRST_FRAME_SECONDS / FIRST_FRAME_CHECKS)
            async for connection in in_slices(list(self._unframed), CHECKED_AT_ONCE):
                if connection.framed:
                    self._unframed.pop(connection, None)
                elif connection.half_framed and connection in self._unframed:
                    self._unframed[connection] += 1
                    if self._unframed[connection] >= FIRST_FRAME_CHECKS:
                        connection.end_half_frame()
        self._unframed_task = None

    def recheck(self, connection: ServerConnection, command: Command) -> None:
        """See :meth:`Watch.recheck`."""
        if self._watch is not None:
            self._watch.recheck(connection, command)

    def sending(self, connection: ServerConnection, command: Command) -> None:
        """Call ``on_send`` before a metered connection sends a command."""
        if self._on_send is not None:
            self._on_send(connection, command)

    def lost(self, connection: ServerConnection) -> None:
        """Forget a connection that has ended."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._seats.leave(connection.remote[0])
        self._unframed.pop(connection, None)
        self._notify(self._on_close, connection)

    def _notify(self, callback: ConnectionCallback | None, connection: ServerConnection) -> None:
        if callback is None:
            return
        try:
            callback(connection)
        except Exception:
            log.exception("%s: connection callback failed", connection.remote_address)

    async def _close_idle(self) -> None:
        """Close idle connections. Four checks in an idle period spare every message a look at the clock."""
        while True:
            await self._runtime.clock.sleep(self._idle_seconds / IDLE_CHECKS)
            async for connection in in_slices(list(self._connections), CHECKED_AT_ONCE):
                if connection.closed:
                    continue
                if connection.active:
                    connection.active = False
                    connection.idle_checks = 0
                    continue
                connection.idle_checks += 1
                if connection.idle_checks >= IDLE_CHECKS:
                    self._endpoint.peers_log.write(
                        logging.INFO,
                        "idle connection closed",
                        "closing %s: idle for %d s",
                        connection.remote_address,
                        self._idle_seconds,
                    )
                    connection.abort()


__all__ = ["Answer", "Limits", "RemotingServer", "ServerConnection", "Taker"]
