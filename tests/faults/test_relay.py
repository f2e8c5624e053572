"""The relay: what goes through when it is open, cut, one way, slow or reset; and what dies is seen to die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from benchmarks.faults.relay import End, Link
from benchmarks.faults.taps import pull_tap
from benchmarks.ports import free_ports

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.headers.pull import PullMessageRequest

SHORT_S = 0.1


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[Link, asyncio.Server]]:
    """A server that answers what it gets, behind a link."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    port = free_ports()
    server = await asyncio.start_server(serve, "127.0.1.9", port)
    link = Link("echo", End("127.0.2.9", port), End("127.0.1.9", port))
    await link.start()
    try:
        yield link, server
    finally:
        link.heal()
        await link.stop()
        server.close()


def play(scene: Callable[[Link, asyncio.Server], Awaitable[None]]) -> None:
    async def main() -> None:
        async with echo() as (link, server), asyncio.timeout(20):
            await scene(link, server)

    asyncio.run(main())


async def silent(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), SHORT_S)


def test_a_cut_holds_everything_back_and_loses_nothing() -> None:
    async def scene(link: Link, _server: asyncio.Server) -> None:
        reader, writer = await asyncio.open_connection(link.listen.host, link.listen.port)
        writer.write(b"a")
        assert await reader.read(10) == b"a"
        link.cut()
        writer.write(b"b")
        late, later = await asyncio.open_connection(link.listen.host, link.listen.port)
        later.write(b"c")
        await silent(reader)
        await silent(late)
        link.heal()
        assert await reader.read(10) == b"b"
        assert await late.read(10) == b"c"
        for each in (writer, later):
            each.close()

    play(scene)


def test_one_way_lets_the_other_way_through() -> None:
    async def scene(link: Link, _server: asyncio.Server) -> None:
        reader, writer = await asyncio.open_connection(link.listen.host, link.listen.port)
        link.back.cut()
        writer.write(b"a")
        await silent(reader)
        link.back.heal()
        assert await reader.read(10) == b"a"
        writer.close()

    play(scene)


def test_a_slow_link_takes_its_time() -> None:
    async def scene(link: Link, _server: asyncio.Server) -> None:
        link.slow(SHORT_S)
        reader, writer = await asyncio.open_connection(link.listen.host, link.listen.port)
        begin = asyncio.get_running_loop().time()
        writer.write(b"a")
        assert await reader.read(10) == b"a"
        assert asyncio.get_running_loop().time() - begin >= 2 * SHORT_S
        writer.close()

    play(scene)


def test_a_target_that_is_gone_resets_who_connects() -> None:
    async def scene(link: Link, server: asyncio.Server) -> None:
        server.close()
        await asyncio.sleep(0)
        reader, _ = await asyncio.open_connection(link.listen.host, link.listen.port)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

    play(scene)


def test_a_tap_sees_each_pull_however_it_is_cut() -> None:
    seen: list[tuple[str, str, int]] = []
    pull = PullMessageRequest(
        consumer_group="g",
        topic="t",
        queue_id=3,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    frames = encode_frame(Command(RequestCode.HEART_BEAT)) + 2 * encode_frame(pull.command())

    async def scene(link: Link, _server: asyncio.Server) -> None:
        link.there.open_tap = pull_tap(lambda *what: seen.append(what))
        reader, writer = await asyncio.open_connection(link.listen.host, link.listen.port)
        for piece in (frames[:3], frames[3:-9], frames[-9:]):
            writer.write(piece)
            await reader.readexactly(len(piece))
        writer.close()

    play(scene)
    assert seen == [("t", "g", 3)] * 2
