"""A client of a broker's HTTP listener in memory, for tests."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from orbitmq.monitoring.http import CONNECTION_SECONDS
from orbitmq.testing import SimulatedRuntime

HOST, PORT = "127.0.0.1", 5557
ON = {"metrics_exporter": "PROM"}


class Raw(asyncio.Protocol):
    """A client that sends bytes unchanged and keeps the received ones until the connection ends."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def status(self) -> int:
        """The status of the response; 0 if none arrived."""
        return int(self.received.split(b" ", 2)[1]) if self.received else 0

    @property
    def body(self) -> bytes:
        return bytes(self.received).partition(b"\r\n\r\n")[2]

    def json(self) -> Any:
        return json.loads(self.body)


async def opened(runtime: SimulatedRuntime, port: int = PORT) -> Raw:
    _, protocol = await runtime.network.connect(Raw, HOST, port)
    return cast("Raw", protocol)


async def ask(runtime: SimulatedRuntime, request: bytes, port: int = PORT) -> Raw:
    """Send these bytes and wait for the end of the connection."""
    client = await opened(runtime, port)
    assert client.transport is not None
    client.transport.write(request)
    async with asyncio.timeout(2 * CONNECTION_SECONDS):
        await client.ended
    return client


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: broker", *headers, "", ""]
    return "\r\n".join(lines).encode()
