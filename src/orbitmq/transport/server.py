"""The server's side of the remoting protocol: listens, hands requests to one handler, sends its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.transport.connection import Answer, Connection, Endpoint, Handler, Limits, close_all
from orbitmq.transport.peer_clock import PeerClock
from orbitmq.wire.connection import ChunkHook
from orbitmq.wire.frame import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime
    from orbitmq.runtime.seam import Listener

log = logging.getLogger("orbitmq.transport")

IDLE_SECONDS = 120.0  # NettyServerConfig.serverChannelMaxIdleTimeSeconds
IDLE_CHECKS = 4

ConnectionCallback: TypeAlias = Callable[["ServerConnection"], None]
# Given a transport and what has come on it, it takes both: another protocol on the same port.
Taker: TypeAlias = Callable[[asyncio.Transport, bytes], None]


class ServerConnection(Connection):
    """One client, as the server sees it.

    Attributes:
        born: a place for the broker to keep the client's address as records have it; empty until it does.
        clock: how far the client's clock is from ours, for requests that say when they were made.
        idle_checks: how often in a row it was found idle.
        number: how many the server had accepted when this one was opened.
    """

    __slots__ = ("_server", "born", "clock", "idle_checks", "number")

    pauses_reading = True

    def __init__(self, server: RemotingServer, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._server = server
        self.born = b""
        self.clock = PeerClock()
        self.idle_checks = 0
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._server.lost(self)

    def hand_over(self, first: bytes, received: bytes) -> bool:
        taker, transport = self._server.takers.get(first), self._transport
        if taker is None or transport is None:
            return False
        # For the server this connection is gone; the transport is open, and its end is not told here again.
        self.connection_lost(None)
        transport.set_protocol(asyncio.Protocol())
        taker(transport, received)
        return True


class RemotingServer:
    """Serves the remoting protocol on one port.

    Args:
        handle: called with (connection, command) for every request. Its answer, or what its awaitable
            gives, is sent; None sends nothing. A RemotingError becomes its code and remark, any other
            exception SYSTEM_ERROR. Answers to one-way requests are dropped.
        on_open, on_close: called once for every accepted connection.
        on_chunk: called with (connection, buffer, start, end) for received bytes that begin at a frame
            border; returns the position up to which it used whole frames. It stops before a frame it does
            not take: a whole one is then handled the ordinary way (and the hook called again behind it), a
            part is kept for the next read. The buffer is valid during the call only.
        max_connections: more are refused with a log line; 0 means no limit.
        takers: of connections that begin with these bytes instead of a frame (:data:`OTHER_PROTOCOLS`); may
            change at any time.
        idle_seconds: a connection without any traffic for so long is closed (within a quarter more).
    """

    def __init__(
        self,
        runtime: Runtime,
        handle: Handler,
        *,
        on_open: ConnectionCallback | None = None,
        on_close: ConnectionCallback | None = None,
        on_chunk: ChunkHook | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        limits: Limits | None = None,
        max_connections: int = 0,
        idle_seconds: float = IDLE_SECONDS,
        takers: Mapping[bytes, Taker] | None = None,
    ) -> None:
        self._runtime = runtime
        self._endpoint = Endpoint(
            runtime, handle, on_chunk, limits or Limits(max_frame_bytes=max_frame_bytes)
        )
        self.takers: Mapping[bytes, Taker] = {} if takers is None else takers
        self._on_open = on_open
        self._on_close = on_close
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._connections: dict[ServerConnection, None] = {}
        self._listener: Listener | None = None
        self._accepting = False
        self._accepted = 0
        self._idle_task: asyncio.Task[None] | None = None

    @property
    def connections(self) -> frozenset[ServerConnection]:
        """The connections open now."""
        return frozenset(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen on ``host:port`` (0: any free port) and return the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._accepting = True
        self._listener = await self._runtime.network.listen(self._connection, host, port)
        self._idle_task = asyncio.ensure_future(self._close_idle())
        return self._listener.port

    async def stop(self) -> None:
        """Stop listening, cancel what is being handled, close all connections (forced after a second)."""
        self._accepting = False
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        if self._idle_task is not None:
            self._idle_task.cancel()
            await asyncio.gather(self._idle_task, return_exceptions=True)
            self._idle_task = None
        await close_all(self._connections)

    def _connection(self) -> ServerConnection:
        return ServerConnection(self, self._endpoint)

    def opened(self, connection: ServerConnection) -> None:
        """A connection tells that it is open."""
        if not self._accepting:
            # Accepted in the iteration of the loop in which the server stopped.
            connection.abort()
            return
        if self._max_connections and len(self._connections) >= self._max_connections:
            self._endpoint.peers_log.write(
                logging.WARNING,
                "connection refused",
                "refusing %s: all %d connections are in use",
                connection.remote_address,
                self._max_connections,
            )
            connection.abort()
            return
        self._accepted += 1
        connection.number = self._accepted
        self._connections[connection] = None
        self._notify(self._on_open, connection)

    def lost(self, connection: ServerConnection) -> None:
        """A connection tells that it is gone."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._notify(self._on_close, connection)

    def _notify(self, callback: ConnectionCallback | None, connection: ServerConnection) -> None:
        if callback is None:
            return
        try:
            callback(connection)
        except Exception:
            log.exception("%s: connection callback failed", connection.remote_address)

    async def _close_idle(self) -> None:
        """Looks four times in an idle period, so that the path of a message needs no clock."""
        while True:
            await self._runtime.clock.sleep(self._idle_seconds / IDLE_CHECKS)
            for connection in list(self._connections):
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
