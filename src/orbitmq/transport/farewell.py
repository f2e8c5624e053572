"""Closes the connection of an HTTP/2 client that is not served, with a GOAWAY that has the reason."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

# How long the client has to close: if this side closed while the client still sends, the sentence would be
# lost.
LINGER_SECONDS: Final = 1.0
_SETTINGS, _GOAWAY = 4, 7
_INTERNAL_ERROR: Final = 2
_IGNORED = bytearray(64 * 1024)


class Farewell(asyncio.BufferedProtocol):
    """Sends the sentence, which gRPC clients show, waits until the client closes, and closes."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Take over a connection from another protocol."""
        transport.set_protocol(self)
        self.connection_made(transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        cast("asyncio.Transport", transport).write(_frames(self._sentence))
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _IGNORED

    def buffer_updated(self, nbytes: int) -> None:
        """Drop the bytes that the client sends before it closes."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _frames(sentence: str) -> bytes:
    """Empty SETTINGS, a server's first frame, and a GOAWAY with the sentence."""
    settings = struct.pack(">HBBBI", 0, 0, _SETTINGS, 0, 0)
    goaway = struct.pack(">II", 0, _INTERNAL_ERROR) + sentence.encode()
    return settings + struct.pack(">HBBBI", *divmod(len(goaway), 256), _GOAWAY, 0, 0) + goaway
