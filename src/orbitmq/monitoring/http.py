"""A small HTTP listener over the runtime's network: GET and HEAD of pages, one request per connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from typing import TypeAlias, cast

import h11

from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Listener, Network

# The longest life of a connection, also of one whose client sends or reads slowly.
CONNECTION_SECONDS = 10.0
MAX_CONNECTIONS = 64
# The most bytes of the request line and all headers.
MAX_HEAD_BYTES = 16 * 1024
# The most bytes of bodies that slow clients have not read yet, in all connections together.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
# The bytes of a body that are written in one turn of the event loop: about a tenth of a millisecond.
WRITTEN_BYTES = 256 * 1024
# The path of the page that shows only that the server is alive, and needs no token.
ALIVE = "/healthz"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status and the body of an answer; the parts of a large body are sent one by one."""

    status: int
    body: Sequence[bytes]
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


# Makes the answer of a page; an awaitable one if that takes long.
Page: TypeAlias = Callable[[], HttpAnswer | Awaitable[HttpAnswer]]


def text(status: int, body: str, *headers: tuple[str, str]) -> HttpAnswer:
    """An answer of one line."""
    return HttpAnswer(status, [f"{body}\n".encode()], headers=headers)


def as_json(status: int, value: object) -> HttpAnswer:
    """An answer of one JSON value."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return HttpAnswer(status, [body + b"\n"], "application/json")


class HttpListener:
    """Serves pages on one port.

    Args:
        pages: the page of each path.
        token: the bearer token that all requests except those for ``/healthz`` need; empty if none is needed.
    """

    def __init__(self, network: Network, pages: Mapping[str, Page], token: bytes = b"") -> None:
        self._network = network
        self._token = token
        self._pages = pages
        self._listener: Listener | None = None
        self._connections: set[_Connection] = set()
        self._unsent = 0
        self._limiter = LogLimiter(log)

    async def start(self, host: str, port: int) -> int:
        """Listen on ``host:port`` (0: any free port) and return the port.

        Raises:
            OSError: the address is in use, or not one of this machine.
        """
        self._listener = await self._network.listen(lambda: _Connection(self), host, port)
        return self._listener.port

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        for connection in list(self._connections):
            connection.abort()

    def opened(self, connection: _Connection) -> bool:
        """Add a new connection; returns False if there is no room for it."""
        if self._listener is None:
            return False
        if len(self._connections) >= MAX_CONNECTIONS:
            self._limiter.write(
                logging.WARNING,
                "connection refused",
                "refusing an HTTP connection: all %d are in use",
                MAX_CONNECTIONS,
            )
            return False
        self._connections.add(connection)
        return True

    def lost(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)

    def reserve(self, body_bytes: int) -> bool:
        """Whether a body of this size may be sent now; if so, it counts until :meth:`release`."""
        if self._unsent and self._unsent + body_bytes > MAX_UNSENT_BYTES:
            return False
        self._unsent += body_bytes
        return True

    def release(self, body_bytes: int) -> None:
        """Stop counting a body, whose connection has ended."""
        self._unsent -= body_bytes

    def answer(self, request: h11.Request) -> HttpAnswer | Awaitable[HttpAnswer]:
        """The answer to a request, by its headers."""
        path = request.target.partition(b"?")[0].decode("latin-1")
        if self._token and path != ALIVE and not _has_token(request, self._token):
            self._limiter.write(
                logging.WARNING, "token", "an HTTP request for %r has no valid token", path[:100]
            )
            return text(401, "a valid bearer token is needed", ("WWW-Authenticate", "Bearer"))
        if request.method not in (b"GET", b"HEAD"):
            return text(405, "only GET and HEAD are served", ("Allow", "GET, HEAD"))
        if _has_body(request):
            return text(400, "a request takes no body here")
        page = self._pages.get(path)
        if page is None:
            return text(404, f"no such page; there are {', '.join(sorted(self._pages))}")
        try:
            answer = page()
        except Exception:
            return _failed(path)
        return answer if isinstance(answer, HttpAnswer) else _awaited(path, answer)


async def _awaited(path: str, answer: Awaitable[HttpAnswer]) -> HttpAnswer:
    try:
        return await answer
    except Exception:
        return _failed(path)


def _failed(path: str) -> HttpAnswer:
    log.exception("the page %s failed", path)
    return text(500, "the page failed; the server's log has the reason")


def _has_token(request: h11.Request, token: bytes) -> bool:
    # h11 gives the names in lower case.
    given = [value for name, value in request.headers if name == b"authorization"]
    if len(given) != 1:
        return False
    scheme, _, value = given[0].partition(b" ")
    return scheme.lower() == b"bearer" and compare_digest(value.strip(), token)


def _has_body(request: h11.Request) -> bool:
    # h11 has checked that a length is a number.
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0)
        for name, value in request.headers
    )


class _Connection(asyncio.Protocol):
    """A connection with one request and its answer, which ends within ``CONNECTION_SECONDS`` in any case."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answered = False
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._reserved = 0
        self._rest: Iterator[bytes] = iter(())
        self._paused = False
        self._next: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.opened(self):
            self._answered = True
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._listener.release(self._reserved)
        self._reserved = 0
        self._listener.lost(self)

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return  # bytes after the request are ignored
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            self._send(text(status, f"this is no HTTP request that is served here: {error}"))
            return
        if isinstance(event, h11.Request):
            self._answer(event)
        elif event is not h11.NEED_DATA:
            self._answered = True
            self.abort()

    def eof_received(self) -> bool:
        # A client may close its side after the whole request; a request sent only in part gets no answer.
        return self._answered

    def _answer(self, request: h11.Request) -> None:
        head_only = request.method == b"HEAD"
        answer = self._listener.answer(request)
        if isinstance(answer, HttpAnswer):
            self._send(answer, head_only=head_only)
            return
        self._answered = True

        def given(done: asyncio.Future[HttpAnswer]) -> None:
            self._waiting = None
            if not done.cancelled():
                self._send(done.result(), head_only=head_only)

        self._waiting = asyncio.ensure_future(answer)
        self._waiting.add_done_callback(given)

    def _send(self, answer: HttpAnswer, *, head_only: bool = False) -> None:
        self._answered = True
        transport, http = self._transport, self._http
        if transport is None:
            return
        size = sum(map(len, answer.body))
        if self._listener.reserve(size):
            self._reserved = size
        else:
            answer = text(503, f"answers of more than {MAX_UNSENT_BYTES} bytes wait for slow readers")
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(sum(map(len, answer.body)))),
            ("Connection", "close"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
        ]
        reason = HTTPStatus(answer.status).phrase
        transport.write(http.send(h11.Response(status_code=answer.status, headers=headers, reason=reason)))
        self._rest = iter(() if head_only else answer.body)
        self._write_on()

    def _write_on(self) -> None:
        """Write the next parts of the body; the rest follows in later turns of the event loop."""
        self._next = None
        transport = self._transport
        if transport is None or self._paused:
            return
        parts, size = [], 0
        for part in self._rest:
            parts.append(part)
            size += len(part)
            if size >= WRITTEN_BYTES:
                break
        if not parts:
            transport.close()
            return
        self._next = asyncio.get_running_loop().call_soon(self._write_on)
        # The head has the body's length, so the body needs no framing.
        transport.writelines(parts)

    def pause_writing(self) -> None:
        """Stop writing until the client has read more."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continue writing."""
        self._paused = False
        if self._next is None:
            self._write_on()
