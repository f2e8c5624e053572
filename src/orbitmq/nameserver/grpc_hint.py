"""Answers gRPC clients that use the name server's address with a broker's address, with TLS or without."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from orbitmq.message.reserved import MASTER_ID
from orbitmq.nameserver.routes import RouteTable
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.turns import Turns
from orbitmq.transport.farewell import Farewell
from orbitmq.wire.addresses import joined
from orbitmq.wire.connection import OTHER_PROTOCOLS, TLS

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("orbitmq.nameserver")

ALPN: Final = "h2"


class GrpcHint:
    """Answers gRPC clients on the name server's port."""

    def __init__(self, runtime: Runtime, routes: RouteTable) -> None:
        self._runtime = runtime
        self._routes = routes
        self._log = LogLimiter(log)
        self._context: ssl.SSLContext | None = None
        self._turns = Turns()

    def take_plain(self, transport: asyncio.Transport, _received: bytes) -> None:
        """Answer a client without TLS."""
        Farewell(self._sentence()).begin(transport)

    def take_tls(self, transport: asyncio.Transport, received: bytes) -> None:
        """Answer a client with TLS; a client that does not speak gRPC is refused."""
        try:
            context = self._certified()
            from orbitmq.runtime.tls import TlsLayer
        except ImportError:
            self._refuse(transport)
            return

        def failed(kind: str, text: str) -> None:
            self._log.write(logging.WARNING, kind, "disconnecting %s: %s: %s", _client(transport), kind, text)

        TlsLayer(context, _Encrypted(self), failed, turns=self._turns).begin(transport, received)

    def greet(self, transport: asyncio.Transport) -> None:
        """Answer a client whose TLS handshake is done."""
        session = transport.get_extra_info("ssl_object")
        if session is None or session.selected_alpn_protocol() != ALPN:
            self._refuse(transport)
            return
        Farewell(self._sentence()).begin(transport)

    def _sentence(self) -> str:
        brokers = self._routes.cluster_info().broker_addr_table.values()
        masters = sorted(each.broker_addrs[MASTER_ID] for each in brokers if MASTER_ID in each.broker_addrs)
        where = f"give it a broker's address: {masters[0]}" if masters else "no broker is registered here yet"
        sentence = f"this is the name server's port, a gRPC client does not need it: {where}"
        self._log.write(logging.WARNING, "gRPC at the name server", "a gRPC client came: %s", sentence)
        return sentence

    def _certified(self) -> ssl.SSLContext:
        """The TLS context for that answer; its certificate is made for the first client and kept in memory.

        Raises:
            ImportError: ``cryptography`` is not installed.
        """
        if self._context is None:
            from orbitmq.runtime.certificates import self_signed
            from orbitmq.runtime.tls import server_context

            names = (self._runtime.host.name or "localhost", "localhost", "127.0.0.1")
            pem = self_signed(names, self._runtime.clock.now_ms())
            self._context = server_context(pem, pem, [ALPN])
        return self._context

    def _refuse(self, transport: asyncio.Transport) -> None:
        reason, kind = OTHER_PROTOCOLS[TLS]
        self._log.write(logging.WARNING, kind, "disconnecting %s: %s: %s", _client(transport), kind, reason)
        transport.close()


class _Encrypted(asyncio.BufferedProtocol):
    """A client with TLS; it is answered when its handshake is done."""

    def __init__(self, hint: GrpcHint) -> None:
        self._hint = hint

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._hint.greet(transport)


def _client(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername") or ("", 0)
    return joined(str(peer[0]), int(peer[1]))
