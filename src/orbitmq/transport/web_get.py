"""Fetches one small text from a web server by HTTP/1.0 GET, over the runtime's network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from orbitmq.errors import OrbitError
from orbitmq.wire.addresses import joined

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime

MAX_ANSWER_BYTES = 64 * 1024
OK = b"200"


class WebError(OrbitError):
    """The web server gave no text; the message has the reason."""


async def get_text(runtime: Runtime, host: str, port: int, path: str, timeout_s: float) -> str:
    """The body of the answer to GET.

    Raises:
        WebError: no answer in time, a status other than 200, or a body that is not text of at most 64 KiB.
    """
    where = f"http://{joined(host, port)}{path}"
    answer = _Answer()
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await runtime.network.connect(lambda: answer, host, port)
            try:
                # In HTTP/1.0 the body is not cut into chunks, and ends with the connection.
                request = f"GET {path} HTTP/1.0\r\nHost: {joined(host, port)}\r\nAccept: */*\r\n\r\n"
                transport.write(request.encode("ascii"))
                await answer.ended
            finally:
                transport.abort()
    except TimeoutError as error:
        raise WebError(f"{where} does not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise WebError(f"{where} cannot be reached: {error.strerror or error}") from error
    return _body(bytes(answer.data), where)


def _body(answer: bytes, where: str) -> str:
    head, blank_line, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(answer) > MAX_ANSWER_BYTES:
        raise WebError(f"{where} answers more than {MAX_ANSWER_BYTES} bytes")
    if not blank_line or len(status) < 2 or not status[0].startswith(b"HTTP/"):
        raise WebError(f"{where} answers something that is not HTTP")
    if status[1] != OK:
        raise WebError(f"{where} answers with status {status[1].decode('latin-1')[:20]}, not 200")
    length = _content_length(head)
    if length is not None and len(body) < length:
        raise WebError(f"{where} closed the connection in the middle of its answer")
    try:
        return body[:length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise WebError(f"{where} answers bytes that are not UTF-8") from error


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


class _Answer(asyncio.Protocol):
    """Collects the answer until the server closes, or the answer is too long."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > MAX_ANSWER_BYTES:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
