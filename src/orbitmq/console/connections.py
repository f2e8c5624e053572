"""The console's HTTP connections: uvicorn's, with limits for their number and for the time of a request.

Above a number of connections uvicorn answers requests with 503, but it sets no limit to the time of a
request, and one of a minute to a TLS handshake: clients that send nothing, or a byte now and then, would hold
all connections. It also logs a line for each malformed request, and a traceback for one that becomes
malformed while it is being answered.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbitmq.runtime.tls import HANDSHAKE_SECONDS

# The time from the first byte of a request (for the first request: from the connection's beginning) to its
# end, body included. A body is a form of at most 1 MiB.
REQUEST_S: Final = 20.0
# The most connections: more than uvicorn's own limit, so that some clients still get its 503 with the reason.
MOST: Final = 600
_UNFINISHED: Final = (h11.IDLE, h11.SEND_BODY)
# h11's states of the server's side in which an answer may begin.
_UNANSWERED: Final = (h11.IDLE, h11.SEND_RESPONSE)


class LimitedConnection(H11Protocol):
    """One connection, which is aborted if a request takes too long, or if there are too many connections."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.abort()
        else:
            self._begin_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            # The answer under way is dropped, since the client has broken HTTP meanwhile.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The client may have begun its next request while this one was being answered.
        self._look()

    def _look(self) -> None:
        if self.transport.is_closing() or self.conn.their_state not in _UNFINISHED:
            self._end_request()
        elif self._deadline is None:
            self._begin_request()

    def _begin_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_S, self._too_slow)

    def _end_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.abort()


class LimitedServer(uvicorn.Server):
    """uvicorn's server with a time limit for TLS handshakes, for which uvicorn has no setting."""

    async def startup(self, sockets: Any = None) -> None:
        """Serve on these listening sockets."""
        config, tls = self.config, self.config.ssl
        make = partial(
            LimitedConnection,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self.servers = [
            await asyncio.get_running_loop().create_server(
                make,
                sock=one,
                ssl=tls,
                backlog=config.backlog,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
            )
            for one in sockets or ()
        ]
        self.started = True


class OneASecond(logging.Filter):
    """A filter for uvicorn's loggers: it passes one line a second of each kind, as clients cause them."""

    def __init__(self) -> None:
        super().__init__()
        # When each kind of line was last written. A kind is the text without its values, of which there are
        # few.
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        kind = str(record.msg)
        if 0 <= record.created - self._last.get(kind, 0.0) < 1:
            return False
        self._last[kind] = record.created
        return True
