"""Takes new connections of a port with TLS: the first byte shows whether the client speaks TLS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from orbitmq.runtime.feeding import feed
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.server_tls import ServerTls, TlsMode
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import joined
from orbitmq.wire.connection import TLS

# The time that a connection has for its first byte if TLS is enforced: a client with TLS sends first.
FIRST_SECONDS: Final = 10.0
_FIRST_BYTES = 16 * 1024

MakeProtocol: TypeAlias = Callable[[], asyncio.BufferedProtocol | asyncio.Protocol]


class Entrance:
    """Holds new connections until their first byte comes, and those with TLS until the handshake is done.

    Args:
        make: makes the protocol of one connection, whose ``connection_made`` is called after the handshake,
            or after the first byte of a connection without TLS.
        log: gets a line for each refused connection.
        admits: whether there is room for a new connection of a client (host, port); logs the reason if not.
        seats: counts the waiting connections.
        first_s: how many seconds the first byte may take; 0: :data:`FIRST_SECONDS`.

    Attributes:
        waiting: the connections that their protocol has not got yet, with the client's host.
    """

    def __init__(
        self,
        tls: ServerTls,
        make: MakeProtocol,
        log: LogLimiter,
        admits: Callable[[str, int], bool],
        seats: Seats,
        first_s: float = 0.0,
    ) -> None:
        self.tls = tls
        self.admits = admits
        self.first_s = first_s or FIRST_SECONDS
        self._make = make
        self._log = log
        self._seats = seats
        self.waiting: dict[asyncio.BaseTransport, str] = {}

    @property
    def enforces(self) -> bool:
        """Whether a connection without TLS is refused."""
        return self.tls.mode is TlsMode.ENFORCING

    def protocol(self) -> asyncio.BufferedProtocol:
        """The protocol of a new connection, which waits for the first byte."""
        return _FirstByte(self)

    def begin(self, transport: asyncio.Transport, received: bytes) -> None:
        """Take a new connection, and the bytes that were received on it, if any."""
        if not received:
            protocol = self.protocol() if self.enforces else self._make()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        elif self.admits(*client_of(transport)):
            self.first(transport, received)
        else:
            transport.abort()

    def first(self, transport: asyncio.Transport, received: bytes) -> None:
        """Handle the first bytes of a connection, which show whether it speaks TLS."""
        if received[:1] == TLS:
            self.secure(transport, received)
        elif self.enforces:
            self.refuse(transport, "it does not speak TLS", "tls.server.mode is enforcing")
        else:
            protocol = self._make()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            data = memoryview(received)
            while data and not transport.is_closing():
                data = feed(protocol, data)

    def secure(self, transport: asyncio.Transport, received: bytes) -> None:
        """Begin the TLS handshake on a connection whose first byte is TLS's."""
        # Imported for the first connection with TLS: most servers never need this module.
        from orbitmq.runtime.tls import TlsLayer

        inner = self._make()
        self.enter(transport)

        def failed(kind: str, text: str) -> None:
            self._note(transport, kind, text)

        def ended() -> None:
            self.leave(transport)

        TlsLayer(self.tls.context(), inner, failed, on_end=ended, turns=self.tls.turns).begin(
            transport, received
        )

    def enter(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection as waiting."""
        host, _ = client_of(transport)
        self._seats.take(host)
        self.waiting[transport] = host

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Stop counting a connection, which has ended, or which its protocol counts."""
        host = self.waiting.pop(transport, None)
        if host is not None:
            self._seats.leave(host)

    def refuse(self, transport: asyncio.Transport, kind: str, text: str) -> None:
        """Close a connection that this port does not serve, with a log line."""
        self._note(transport, kind, text)
        transport.abort()

    def close(self) -> None:
        """Close the waiting connections."""
        for transport in list(self.waiting):
            cast("asyncio.Transport", transport).abort()
            self.leave(transport)

    def _note(self, transport: asyncio.Transport, kind: str, text: str) -> None:
        client = joined(*client_of(transport))
        self._log.write(logging.WARNING, kind, "disconnecting %s: %s: %s", client, kind, text)


def client_of(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Host and port of a connection's peer."""
    peer = transport.get_extra_info("peername") or ("", 0)
    # The zone of a link-local address ("fe80::1%eth0") is cut off: records have no place for it.
    return str(peer[0]).partition("%")[0], int(peer[1])


class _FirstByte(asyncio.BufferedProtocol):
    """A connection that waits for its first byte."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Grows with the first byte: a connection is to cost little until then.
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        if not self._entrance.admits(*client_of(transport)):
            self._transport.abort()
            return
        self._entrance.enter(transport)
        self._timer = asyncio.get_running_loop().call_later(self._entrance.first_s, self._silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> bytearray:
        self._buffer = bytearray(_FIRST_BYTES)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is not None:
            self._end()
            self._entrance.first(transport, bytes(self._buffer[:nbytes]))

    def _silent(self) -> None:
        transport = self._transport
        if transport is not None:
            self._end()
            self._entrance.refuse(
                transport, "it says nothing", f"no byte came within {self._entrance.first_s:g} s"
            )

    def _end(self) -> None:
        if self._transport is not None:
            self._entrance.leave(self._transport)
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
