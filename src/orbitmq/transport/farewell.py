"""How a server that speaks no HTTP/2 tells an HTTP/2 client why it closes: a GOAWAY with a sentence."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

# How long to wait for the client to close: closing while it still sends would lose the sentence.
LINGER_SECONDS: Final = 1.0
_SETTINGS, _GOAWAY = 4, 7
_INTERNAL_ERROR: Final = 2
_IGNORED = bytearray(64 * 1024)


class Farewell(asyncio.BufferedProtocol):
    """Says the sentence, which gRPC's clients show, waits until the client closes, and closes."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Take over a connection from another protocol."""
        transport.set_protocol(self)
        self.connection_made(transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        cast("asyncio.Transport", transport).write(_frames(self._sentence))
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _IGNORED

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes that the client sends meanwhile are dropped."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _frames(sentence: str) -> bytes:
    """Empty settings, with which a server begins, and a GOAWAY that says why."""
    settings = struct.pack(">HBBBI", 0, 0, _SETTINGS, 0, 0)
    goaway = struct.pack(">II", 0, _INTERNAL_ERROR) + sentence.encode()
    return settings + struct.pack(">HBBBI", *divmod(len(goaway), 256), _GOAWAY, 0, 0) + goaway
