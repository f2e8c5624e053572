"""The gRPC door of one broker: its port, connections and stop. The first client loads the libraries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from orbitmq.broker.component import Component
from orbitmq.broker.extension import Host
from orbitmq.errors import StartError
from orbitmq.gateway.call import Service
from orbitmq.gateway.certificate import Certificate
from orbitmq.monitoring.certificates import write_end
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.imports import is_missing
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.transport.entrance import client_of
from orbitmq.transport.farewell import Farewell
from orbitmq.transport.proxies import Proxies, networks_of
from orbitmq.wire.addresses import joined
from orbitmq.wire.connection import TLS

if TYPE_CHECKING:
    from orbitmq.gateway.connection import GrpcConnection
    from orbitmq.gateway.shared import Shared
    from orbitmq.runtime.seam import Listener

log = logging.getLogger("orbitmq.gateway")

MakeService: TypeAlias = Callable[[Host], Service]

INSTALL: Final = "pip install 'orbitmq[server]'"
# How long calls may go on when the broker stops; then they are cancelled.
STOP_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = 1.0
# A connection to the gRPC port that sends nothing within this time is closed.
FIRST_SECONDS: Final = 10.0


class GrpcDoor(Component):
    """Takes connections that begin with HTTP/2 or TLS, at the broker's port and at the gRPC port.

    Args:
        make_service: called for the first connection.

    Attributes:
        seats: limits and counts the connections of all ports of the broker.
    """

    name = "grpc"

    def __init__(self, host: Host, make_service: MakeService) -> None:
        self._host = host
        self._make_service = make_service
        self._runtime = host.services.runtime
        self._config = host.services.config
        self._certificate = Certificate(self._runtime, self._config, host.services.tls)
        self._log = LogLimiter(log)
        self.seats = host.services.seats
        self._path = self._config.tls_cert_path
        trusted = networks_of(self._config.proxy_protocol_trusted)
        self._proxies = Proxies(trusted, self.seats, self._log, self._begin) if trusted else None
        self._shared: Shared | None = None
        self._listener: Listener | None = None
        self._open = False

    @property
    def port(self) -> int:
        """The gRPC port; 0 when it is not open."""
        return 0 if self._listener is None else self._listener.port

    async def figures(self, text: Exposition) -> None:
        """Add the metric of when the certificate of ``tlsCertPath`` expires."""
        write_end(text, self._certificate.ends_ms, self._path)

    # -- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve on the broker's port, and on the gRPC port unless it is in use.

        Raises:
            StartError: the configured certificate cannot be used.
        """
        self._certificate.check()
        self._open = True
        port = self._config.grpc_server_port
        if port and port != self._host.port:
            try:
                self._listener = await self._runtime.network.listen(
                    self._accept, self._config.bind_address, port
                )
            except OSError as error:
                log.warning(
                    "grpcServerPort %d cannot be used (%s): gRPC clients are served at %s",
                    port,
                    error.strerror or error,
                    joined(self._config.broker_ip1, self._host.port),
                )

    async def stop(self) -> None:
        """Send clients elsewhere, let their calls end, and close the connections.

        Each client gets two GOAWAYs. The first one stops new calls (a call that crosses it gets UNAVAILABLE),
        the second one names the last call.
        """
        self._open = False
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        if self._proxies is not None:
            self._proxies.close()
        await self.end_work()
        shared, self._shared = self._shared, None
        if shared is None:
            return
        for connection in list(shared.connections):
            connection.announce_end()
        shared.stopping = True
        await shared.service.stop()
        await shared.quiet(STOP_SECONDS)
        await shared.work.stop()
        every = list(shared.connections)
        for connection in every:
            connection.refuse_waiting()
            connection.close()
        if every:
            await asyncio.wait([connection.gone for connection in every], timeout=CLOSE_SECONDS)
        for connection in list(shared.connections):
            connection.abort()
        shared.deadlines.close()

    # -- connections -------------------------------------------------------------------------------------

    def _accept(self) -> asyncio.BufferedProtocol:
        return _FirstBytes(self) if self._proxies is None else self._proxies.protocol()

    def _begin(self, transport: asyncio.Transport, received: bytes) -> None:
        """Take a new connection at the gRPC port, and the bytes that followed the PROXY protocol header."""
        if not received:
            protocol = _FirstBytes(self)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        elif self.admits(transport):
            self.take_first(transport, received)

    def take_first(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a connection at the gRPC port: its first byte shows whether it speaks TLS."""
        if received[:1] != TLS:
            if self._certificate.enforced:
                self._refuse(transport, "it does not speak TLS", "tls.server.mode is enforcing")
            else:
                self.take_plain(transport, received)
        elif self._certificate.disabled:
            self._refuse(transport, "it starts a TLS handshake", "tls.server.mode is disabled")
        else:
            self.take_tls(transport, received)

    def take_plain(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a connection whose first bytes are an HTTP/2 preface."""
        connection = self._connection(transport)
        if connection is not None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            connection.received(received)

    def take_tls(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a connection whose first byte begins a TLS handshake."""
        connection = self._connection(transport, tls=True)
        if connection is None:
            return
        try:
            context = self._certificate.context()
            from orbitmq.runtime.tls import TlsLayer
        except ImportError as error:
            self._missing(transport, error, tls=True)
            return
        except (StartError, OSError) as error:
            self._note("no certificate for TLS", transport, str(error))
            transport.abort()
            return

        def failed(kind: str, text: str) -> None:
            self._note(kind, transport, f"{kind}: {text}")

        client, _ = client_of(transport)
        self.seats.take(client)
        TlsLayer(
            context,
            connection,
            failed,
            on_end=lambda: self.seats.leave(client),
            turns=self._certificate.turns,
        ).begin(transport, received)

    def _connection(self, transport: asyncio.Transport, *, tls: bool = False) -> GrpcConnection | None:
        """A connection for this transport; None, and the transport is closed, when it is refused."""
        if not self._open:
            transport.abort()
            return None
        if not self.admits(transport):
            return None
        try:
            from orbitmq.gateway.connection import GrpcConnection

            return GrpcConnection(self._ready())
        except ImportError as error:
            self._missing(transport, error, tls=tls)
            return None

    def admits(self, transport: asyncio.Transport) -> bool:
        """Whether there is a seat for a connection of this client; without one the connection is closed."""
        host, _ = client_of(transport)
        why = self.seats.why_not(host)
        if why:
            self._refuse(transport, "connection refused", why)
        return not why

    def _ready(self) -> Shared:
        if self._shared is None:
            from orbitmq.gateway.connection import IDLE_SECONDS
            from orbitmq.gateway.shared import Shared

            self._shared = Shared(
                self._make_service(self._host), self._log, self.seats, self._host.services.tls.names
            )
            self._every(self._runtime.clock, IDLE_SECONDS, self._close_idle)
        return self._shared

    def _close_idle(self) -> None:
        for connection in list(self._shared.connections) if self._shared is not None else ():
            connection.close_idle()

    # -- refusals ----------------------------------------------------------------------------------------

    def _refuse(self, transport: asyncio.Transport, kind: str, text: str) -> None:
        self._note(kind, transport, f"{kind}: {text}")
        transport.abort()

    def _note(self, kind: str, transport: asyncio.Transport, text: str) -> None:
        client = joined(*client_of(transport))
        self._log.write(logging.WARNING, kind, "disconnecting the gRPC client %s: %s", client, text)

    def _missing(self, transport: asyncio.Transport, error: ImportError, *, tls: bool) -> None:
        """Refuse a client because gRPC modules are missing: log it, and send a GOAWAY with the reason."""
        if is_missing(error):
            text = f"gRPC needs {error.name}, which is not installed here: {INSTALL}"
        else:
            text = f"gRPC cannot be served here, as its modules cannot be loaded: {error}"
        self._note("gRPC is not installed", transport, text)
        if tls:
            transport.close()
        else:
            Farewell(text).begin(transport)


class _FirstBytes(asyncio.BufferedProtocol):
    """Waits for the first byte of a new connection at the gRPC port, which shows whether it speaks TLS."""

    def __init__(self, door: GrpcDoor) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Grows with the first byte: a connection is to cost little until then.
        self._buffer = bytearray()
        self._client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        if not self._door.admits(self._transport):
            self._transport = None
            return
        self._client, _ = client_of(transport)
        self._door.seats.take(self._client)
        self._timer = asyncio.get_running_loop().call_later(FIRST_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self._transport is not None:
            self._door.seats.leave(self._client)
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def get_buffer(self, sizehint: int) -> bytearray:
        self._buffer = bytearray(4096)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is not None:
            self._end()
            received = bytes(self._buffer[:nbytes])
            self._door.take_first(transport, received)
