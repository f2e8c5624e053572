"""Finds out whether a server speaks HTTP/2: only such a server answers the preface and a PING."""

from __future__ import annotations

import asyncio
import struct
from enum import Enum
from typing import Final, cast

from orbitmq.errors import ValidationError
from orbitmq.gateway.frames import PREFACE
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import Network
from orbitmq.wire.addresses import joined

PROBE_SECONDS: Final = 1.0
# The most bytes that are kept of an answer; an HTTP/2 server's is a few dozen bytes long.
_MAX_ANSWER_BYTES = 16 * 1024
_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_ACK = 1
_HEAD_BYTES = 9
_ASKED = b"orbitmq?"
QUESTION: Final = (
    PREFACE + struct.pack(">HBBBI", 0, 0, _SETTINGS, 0, 0) + struct.pack(">HBBBI", 0, 8, _PING, 0, 0) + _ASKED
)


class ServerKind(Enum):
    """The kind of server at an address."""

    HTTP2 = "HTTP/2"
    OTHER = "another protocol"
    NOTHING = "nothing"


def found_in(received: bytes) -> ServerKind | None:
    """The kind of server, by the first bytes of its answer; None if more bytes are needed."""
    at = 0
    while len(received) - at >= _HEAD_BYTES:
        high, low, kind, flags, _ = struct.unpack_from(">HBBBI", received, at)
        if (at == 0 and kind != _SETTINGS) or kind == _GOAWAY:
            # A broker that cannot load the gRPC libraries sends a GOAWAY after its settings.
            return ServerKind.OTHER
        end = at + _HEAD_BYTES + (high << 8 | low)
        if end > len(received):
            break
        if kind == _PING and flags & _ACK and received[at + _HEAD_BYTES : end] == _ASKED:
            return ServerKind.HTTP2
        at = end
    return ServerKind.OTHER if len(received) > _MAX_ANSWER_BYTES else None


class _Asking(asyncio.Protocol):
    """The connection of one probe."""

    def __init__(self) -> None:
        self.found: asyncio.Future[ServerKind] = asyncio.get_running_loop().create_future()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        cast("asyncio.Transport", transport).write(QUESTION)

    def data_received(self, data: bytes) -> None:
        self._received += data
        found = found_in(self._received)
        if found is not None:
            self._end(found)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ServerKind.OTHER)

    def _end(self, found: ServerKind) -> None:
        if not self.found.done():
            self.found.set_result(found)


async def probe(network: Network, host: str, port: int, tls: Tls | None = None) -> ServerKind:
    """Probe the server at this address; a server that does not answer in time counts as absent.

    Args:
        tls: the TLS between brokers; None without it.
    """
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            asking = _Asking()
            if tls is None:
                transport, _ = await network.connect(lambda: asking, host, port)
                return await asking.found
            # Imported here, so that only brokers with TLS load this module.
            from orbitmq.runtime.tls import ClientTlsLayer

            layer = ClientTlsLayer(tls, asking, joined(host, port), host)
            transport, _ = await network.connect(lambda: layer, host, port)
            await layer.opened
            return await asking.found
    except (OSError, TimeoutError, ValidationError):
        return ServerKind.NOTHING
    finally:
        if transport is not None:
            transport.abort()
