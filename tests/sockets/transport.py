"""A server and its client on asyncio, on uvloop and on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import uvloop

from orbitmq.runtime import Runtime, system_runtime
from orbitmq.testing.machine.simulated import run as run_simulated
from orbitmq.testing.machine.simulated import simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError, RemotingError
from orbitmq.wire.frame import FrameDecoder, encode_frame

ECHO, SLOW, FAIL, REFUSE, SILENT, ASK_BACK, NEVER, BAD_FIELD, LATE = range(10, 19)

LIMIT_S = 60.0

World = Callable[[Callable[[Runtime], Coroutine[Any, Any, None]]], None]


def on_asyncio(test: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(system_runtime()))


def on_uvloop(test: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(test(system_runtime()))


def in_memory(test: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(simulated_runtime())

    for seed in range(5):
        run_simulated(main(), seed=seed)


WORLDS = [on_asyncio, on_uvloop, in_memory]


def handle(connection: ServerConnection, command: Command) -> Command | Awaitable[Command | None] | None:
    if command.code == ECHO:
        return command.reply(ext=command.ext, body=command.body)
    if command.code == FAIL:
        raise ValueError("queueId is -7")
    if command.code == REFUSE:
        raise RemotingError(17, "topic[T] not exist")
    if command.code == BAD_FIELD:
        raise HeaderError("queueId: 'x' is not a number")
    if command.code == SILENT:
        return None
    return slow(connection, command)


async def slow(connection: ServerConnection, command: Command) -> Command | None:
    if command.code == NEVER:
        await asyncio.Event().wait()
    if command.code == ASK_BACK:
        answer = await connection.request(Command(ECHO, body=b"who are you?"), 30_000)
        return command.reply(body=answer.body)
    await asyncio.sleep(0.3 if command.code == LATE else 0.02)
    return command.reply(remark="slept")


class Serving:
    """A server and a client of it, both closed at the end.

    Attributes:
        asked: the requests that have come to the server.
    """

    def __init__(self, runtime: Runtime, **options: Any) -> None:
        self.runtime = runtime
        self.opened: list[ServerConnection] = []
        self.lost: list[ServerConnection] = []
        self.asked = 0
        answer = options.pop("handle", handle)

        def counted(
            connection: ServerConnection, command: Command
        ) -> Command | Awaitable[Command | None] | None:
            self.asked += 1
            result: Command | Awaitable[Command | None] | None = answer(connection, command)
            return result

        self.server = RemotingServer(
            runtime,
            counted,
            on_open=self.opened.append,
            on_close=self.lost.append,
            **options,
        )
        self.client = RemotingClient(runtime)
        self.address = ""

    async def __aenter__(self) -> Serving:
        port = await self.server.start("127.0.0.1", 0)
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.server.stop()

    async def ask(self, command: Command, timeout_ms: int = 30_000) -> Command:
        return await self.client.request(self.address, command, timeout_ms)

    async def raw(self) -> RawPeer:
        _, peer = await self.runtime.network.connect(
            RawPeer, "127.0.0.1", int(self.address.rpartition(":")[2])
        )
        assert isinstance(peer, RawPeer)
        return peer


class RawPeer(asyncio.Protocol):
    """Sends any bytes and collects the commands that come back."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder(32 * 1024 * 1024)
        self.answers: list[Command] = []
        self.ended = asyncio.Event()
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.decoder.feed(data)
        self.answers.extend(self.decoder.commands())
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    async def answered(self, count: int) -> list[Command]:
        while len(self.answers) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), LIMIT_S)
        return self.answers

    async def disconnected(self) -> None:
        await asyncio.wait_for(self.ended.wait(), LIMIT_S)


def echo(opaque: int, body: bytes = b"") -> bytes:
    return encode_frame(Command(ECHO, opaque=opaque, body=body))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT_S / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")
