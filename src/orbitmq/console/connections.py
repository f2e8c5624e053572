"""The console's HTTP connections: those of uvicorn, with limits on their number and on the time of a request.

uvicorn answers requests above a number of connections with 503, but it lets a connection send its request for
as long as it likes, and wait for a minute in the middle of its TLS handshake. So clients that send nothing,
or a byte now and then, would hold all of them. It also logs a line for each broken request, and a traceback
where one breaks while it is answered.
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

# A request, its body included, has to be whole within this time of its first byte, and the first one within
# this time of the connection's beginning. A body is a form of at most 1 MiB.
REQUEST_S: Final = 20.0
# Above uvicorn's own limit, so that some clients still get the 503 that says why.
MOST: Final = 600
_UNFINISHED: Final = (h11.IDLE, h11.SEND_BODY)
# Our states in which an answer may begin.
_UNANSWERED: Final = (h11.IDLE, h11.SEND_RESPONSE)


class LimitedConnection(H11Protocol):
    """One connection; it is aborted when a request takes too long, or when there are too many."""

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
            # Its answer is not for this client any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A request that came behind the answered one may have begun.
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
    """A server of uvicorn's whose TLS handshakes end in time; uvicorn has no setting for that."""

    async def startup(self, sockets: Any = None) -> None:
        """Serve at sockets that listen already."""
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
    """Lets pass one line a second of each kind: clients cause them. For a logger of uvicorn's."""

    def __init__(self) -> None:
        super().__init__()
        # By the text before its values are put in, of which a program has few.
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        kind = str(record.msg)
        if 0 <= record.created - self._last.get(kind, 0.0) < 1:
            return False
        self._last[kind] = record.created
        return True
