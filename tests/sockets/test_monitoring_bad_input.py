"""The HTTP listener of the metrics against bad clients, on real sockets and on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.sockets.transport import LIMIT_S, on_asyncio, on_uvloop

from orbitmq.monitoring import http
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import Runtime

TOKEN = "0123456789abcdef-token"
RIGHT = f"Authorization: Bearer {TOKEN}"
both_loops = pytest.mark.parametrize("on", [on_asyncio, on_uvloop])


@contextlib.asynccontextmanager
async def served(runtime: Runtime, folder: Path) -> AsyncIterator[int]:
    """The port of a name server's metrics, which need a token."""
    (folder / "token").write_text(TOKEN)
    config, _ = NameServerConfig.load(
        "",
        {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "kvConfigPath": f"{folder}/kv.json",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": "0",
            "metricsTokenFile": f"{folder}/token",
        },
    )
    async with NameServer(runtime, config) as server:
        yield server.monitoring.port


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def told(port: int, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """What comes back up to the end of the connection, which the listener ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
    received = b""
    # A client that still sends when the listener closes is reset, and may lose the answer.
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(LIMIT_S):
            while data := await reader.read(1 << 16):
                received += data
    writer.close()
    return received


def status(received: bytes) -> int:
    """0: the connection was closed without an answer."""
    return int(received.split(b" ", 2)[1]) if received else 0


CASES = [
    ("half a request line", (b"GET /heal",), {0}),
    ("half a request", (get("/metrics", RIGHT)[:-2],), {0}),
    ("nothing", (), {0}),
    ("1 MB of headers", (get("/metrics", RIGHT, "X: " + "x" * 1_000_000),), {0, 431}),
    ("1 MB without a line end", (b"G" * 1_000_000,), {0, 400, 431}),
    ("a body on GET", (get("/metrics", RIGHT, "Content-Length: 5"), b"hello"), {400}),
    ("a chunked body", (get("/metrics", RIGHT, "Transfer-Encoding: chunked"), b"0\r\n\r\n"), {400}),
    ("two lengths", (get("/metrics", RIGHT, "Content-Length: 0", "Content-Length: 5"),), {400}),
    ("another folder", (get("/../../etc/passwd", RIGHT),), {404}),
    ("dots behind a page", (get("/metrics/../../etc/passwd", RIGHT),), {404}),
    ("escaped dots", (get("/%2e%2e/etc/passwd", RIGHT),), {404}),
    ("POST", (get("/metrics", RIGHT, method="POST"),), {405}),
    ("no token", (get("/metrics"),), {401}),
    ("a wrong token", (get("/metrics", f"Authorization: Bearer {TOKEN[:-1]}"),), {401}),
    ("two tokens", (get("/metrics", RIGHT, RIGHT),), {401}),
    ("a token in the query", (get(f"/metrics?token={TOKEN}"),), {401}),
    ("TLS", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n" * 9,), {0, 400}),
    ("HTTP/2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), {401}),
]


@pytest.mark.behaviour("MX-03")
@both_loops
def test_bad_requests_are_refused_or_closed(
    on: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 2.0)

    async def test(runtime: Runtime) -> None:
        async with served(runtime, tmp_path) as port:
            for name, pieces, allowed in CASES:
                assert status(await told(port, *pieces)) in allowed, name
            # A byte of a header every now and then does not make the time longer.
            assert await told(port, b"GET /healthz HTTP/1.1\r\n", *(b"x",) * 100, pause_s=0.05) == b""
            assert status(await told(port, get("/healthz"))) == 200
            answer = await told(port, get("/metrics", RIGHT))
            assert (status(answer), b"orbitmq_" in answer) == (200, True)

    on(test)
    assert "Traceback" not in caplog.text
    assert TOKEN[:-1] not in caplog.text


@pytest.mark.behaviour("MX-03")
@both_loops
def test_500_connections_leave_nothing_behind(
    on: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 2.0)

    async def test(runtime: Runtime) -> None:
        async with served(runtime, tmp_path) as port:
            said = await asyncio.gather(*(told(port, b"GET /healthz HTTP/1.1\r\n") for _ in range(500)))
            assert set(said) == {b""}
            assert status(await told(port, get("/healthz"))) == 200

    on(test)
    assert f"refusing an HTTP connection: all {http.MAX_CONNECTIONS} are in use" in caplog.text
