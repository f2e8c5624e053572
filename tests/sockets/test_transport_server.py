"""The server of the remoting protocol: on asyncio, on uvloop, and on the network in memory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct

import pytest
from tests.sockets.transport import (
    ASK_BACK,
    BAD_FIELD,
    ECHO,
    FAIL,
    REFUSE,
    SLOW,
    WORLDS,
    Serving,
    World,
    echo,
    in_memory,
    on_asyncio,
    until,
)

from orbitmq.runtime import Runtime
from orbitmq.runtime.server_tls import ServerTls, TlsMode
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.endpoint import Limits
from orbitmq.transport.seats import Seats
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.addresses import split
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.frame import FrameDecoder, encode_frame


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.param
    return chosen


# -- requests and answers ------------------------------------------------------------------------------


def test_a_request_gets_its_answer(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            answer = await serving.ask(Command(ECHO, ext={"topic": "T"}, body=b"hello"))
            assert (answer.code, answer.ext, answer.body) == (0, {"topic": "T"}, b"hello")
            assert answer.is_response

    world(test)


def test_many_requests_share_one_connection_and_meet_their_answers(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            bodies = [str(number).encode() for number in range(300)]
            codes = [ECHO if number % 3 else SLOW for number in range(300)]
            answers = await asyncio.gather(
                *(serving.ask(Command(code, body=body)) for code, body in zip(codes, bodies, strict=True))
            )
            for code, body, answer in zip(codes, bodies, answers, strict=True):
                assert answer.body == (body if code == ECHO else b"")
                assert answer.remark == (None if code == ECHO else "slept")
            assert len(serving.opened) == 1

    world(test)


def test_frames_larger_than_the_shared_buffer(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            sizes = (31_000, 33_000, 262_144, 300_000, 3_000_000)
            bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
            answers = await asyncio.gather(*(serving.ask(Command(ECHO, body=body)) for body in bodies))
            assert [answer.body for answer in answers] == bodies

    world(test)


def test_a_failing_handler_is_a_system_error_with_its_text(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            answer = await serving.ask(Command(FAIL))
            assert answer.code == 1
            assert answer.remark == "ValueError: queueId is -7"

    world(test)
    assert any("request 12 failed" in record.message for record in caplog.records)


def test_a_refusal_is_its_code_and_remark(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            answer = await serving.ask(Command(REFUSE))
            assert (answer.code, answer.remark) == (17, "topic[T] not exist")

    world(test)


def test_a_bad_header_is_an_answer_and_one_line_without_a_trace(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            answer = await serving.ask(Command(BAD_FIELD))
            assert (answer.code, answer.remark) == (1, "HeaderError: queueId: 'x' is not a number")

    world(test)
    assert all(record.exc_info is None for record in caplog.records)


def test_an_answer_that_has_no_bytes_is_a_system_error(world: World) -> None:
    def surrogate(connection: ServerConnection, command: Command) -> Command:
        return command.reply(remark="\ud800")

    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, handle=surrogate) as serving:
            answer = await serving.ask(Command(ECHO))
            assert answer.code == 1

    world(test)


def test_a_one_way_request_gets_no_answer(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            for code in (ECHO, FAIL, SLOW):
                peer.transport.write(encode_frame(Command(code, opaque=1, flag=FLAG_ONEWAY)))
            peer.transport.write(encode_frame(Command(SLOW, opaque=2)))
            assert [answer.opaque for answer in await peer.answered(1)] == [2]
            await serving.client.oneway(serving.address, Command(ECHO), 30_000)
            await until(lambda: len(serving.opened) == 2)
            peer.transport.abort()

    world(test)


def test_the_server_asks_the_client(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            serving.client = RemotingClient(runtime, handle=lambda _, command: command.reply(body=b"client"))
            assert (await serving.ask(Command(ASK_BACK))).body == b"client"

    world(test)


def test_a_client_without_handler_does_not_support_requests(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            await serving.ask(Command(ECHO))
            answer = await serving.opened[0].request(Command(40), 30_000)
            assert (answer.code, answer.remark) == (3, " request type 40 not supported")

    world(test)


# -- what the other side may do wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x7f\xff\xff\xff" + b"x" * 20, "frame of 2147483647 bytes"),
        (b"\x80\x00\x00\x00" + b"x" * 20, "frame of -2147483648 bytes"),
        (b"\x00\x00\x00\x00", "frame of 0 bytes"),
        (b"\x00\x00\x00\x03abc", "frame of 3 bytes"),
        (struct.pack(">i", 16 * 1024 * 1024 + 5), "frame of 16777221 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame of 1195725856 bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "PROXY protocol"),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11", "PROXY protocol"),
        (struct.pack(">ii", 12, 8) + b"not json", "unreadable frame"),
        (struct.pack(">ii", 8, 100) + b"{}{}", "unreadable frame"),
    ],
)
def test_garbage_is_one_log_line_and_the_end(
    world: World, first: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.transport")
    runs = 0

    async def test(runtime: Runtime) -> None:
        nonlocal runs
        runs += 1
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            peer.transport.write(first)
            await peer.disconnected()
            assert (await serving.ask(Command(ECHO, body=b"others go on"))).body == b"others go on"

    world(test)
    lines = [record.message for record in caplog.records]
    assert len(lines) == runs
    assert all(reason in line for line in lines)


def test_garbage_behind_a_good_frame(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            peer.transport.write(echo(5))
            assert [answer.opaque for answer in await peer.answered(1)] == [5]
            peer.transport.write(echo(6) + b"\xff\xff\xff\xff")
            await peer.disconnected()
            assert len(serving.lost) == 1

    world(test)


def test_byte_by_byte(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            for byte in echo(1, b"abc") + echo(2, b"d"):
                peer.transport.write(bytes([byte]))
                await asyncio.sleep(0)
            assert [answer.body for answer in await peer.answered(2)] == [b"abc", b"d"]
            peer.transport.abort()

    world(test)


def test_several_frames_and_a_half_in_one_chunk(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            half = echo(4, b"x" * 100)
            peer.transport.write(echo(1) + echo(2) + echo(3) + half[:50])
            assert [answer.opaque for answer in await peer.answered(3)] == [1, 2, 3]
            peer.transport.write(half[50:])
            assert [answer.opaque for answer in await peer.answered(4)] == [1, 2, 3, 4]
            peer.transport.abort()

    world(test)


def test_unfinished_frames_of_many_connections_do_not_mix(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peers = [await serving.raw() for _ in range(8)]
            frames = [echo(1, bytes([65 + index]) * (20_000 + 3_000 * index)) for index in range(8)]
            for start in range(0, 50_000, 7_000):
                for peer, frame in zip(peers, frames, strict=True):
                    peer.transport.write(frame[start : start + 7_000])
                    await asyncio.sleep(0)
            for index, peer in enumerate(peers):
                (answer,) = await peer.answered(1)
                assert answer.body == bytes([65 + index]) * (20_000 + 3_000 * index)
                peer.transport.abort()

    world(test)


def test_a_half_frame_then_the_end(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime) as serving:
            peer = await serving.raw()
            peer.transport.write(echo(1, b"x" * 400_000)[:300_000])
            await until(lambda: len(serving.opened) == 1)
            peer.transport.close()
            await until(lambda: len(serving.lost) == 1)

    world(test)


def test_a_peer_that_does_not_read_is_slowed_and_then_disconnected(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(runtime: Runtime) -> None:
        limits = Limits(high_water_bytes=100_000, max_queued_bytes=8_000_000)
        async with Serving(runtime, limits=limits) as serving:
            peer = await serving.raw()
            peer.transport.pause_reading()
            for number in range(300):
                peer.transport.write(echo(number, b"x" * 100_000))
            await until(lambda: serving.opened != [] and serving.opened[0].write_paused)
            # No more is read from it while it does not read: the queue does not grow by its own requests.
            assert not serving.lost
            for _ in range(200):
                serving.opened[0].write(echo(1, b"x" * 100_000))
            assert serving.opened[0].closed
            await until(lambda: len(serving.lost) == 1)
            peer.transport.abort()

    world(test)
    assert any("does not read" in record.message for record in caplog.records)


def test_a_slow_reader_gets_everything(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, limits=Limits(high_water_bytes=50_000)) as serving:
            peer = await serving.raw()
            peer.transport.pause_reading()
            for number in range(200):
                peer.transport.write(echo(number, b"x" * 100_000))
            await until(lambda: serving.opened != [] and serving.opened[0].write_paused)
            peer.transport.resume_reading()
            answers = await peer.answered(200)
            assert [answer.opaque for answer in answers] == list(range(200))
            peer.transport.abort()

    world(test)


def test_too_many_connections(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, seats=Seats(2)) as serving:
            first, second = await serving.raw(), await serving.raw()
            third = await serving.raw()
            await third.disconnected()
            first.transport.abort()
            await until(lambda: len(serving.server.connections) == 1)
            assert (await serving.ask(Command(ECHO))).code == 0
            second.transport.abort()

    world(test)
    assert any("all 2 connections are in use" in record.message for record in caplog.records)


@pytest.mark.behaviour("LM-02")
@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.ENFORCING], ids=lambda mode: mode.value)
def test_too_many_connections_from_one_address(mode: TlsMode, caplog: pytest.LogCaptureFixture) -> None:
    async def test(runtime: Runtime) -> None:
        tls = ServerTls(runtime, mode, made_for=("localhost",))
        tls.check()
        seats = Seats(10, 2)
        async with Serving(runtime, tls=tls, seats=seats) as serving:
            host, port = split(serving.address)

            async def connected(source: str) -> asyncio.StreamReader:
                reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
                writers.append(writer)
                return reader

            writers: list[asyncio.StreamWriter] = []
            for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
                await connected(source)
            await until(lambda: seats.taken == 3)
            refused = await connected("127.0.0.1")
            with contextlib.suppress(ConnectionResetError):
                assert await refused.read() == b""
            writers[0].close()
            await until(lambda: seats.taken == 2)
            await connected("127.0.0.1")
            await until(lambda: seats.taken == 3)
            for writer in writers:
                writer.close()
        await until(lambda: seats.taken == 0)

    on_asyncio(test)
    assert "127.0.0.1 has 2 connections already (maxConnectionsPerAddress)" in caplog.text


def test_too_many_requests_in_handling(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, limits=Limits(max_handling=2)) as serving:
            answers = await asyncio.gather(*(serving.ask(Command(SLOW)) for _ in range(3)))
            assert sorted(answer.code for answer in answers) == [0, 0, 2]

    world(test)


def test_an_idle_connection_is_closed(world: World) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, idle_seconds=0.2) as serving:
            idle, busy = await serving.raw(), await serving.raw()
            for number in range(12):
                busy.transport.write(echo(number))
                await asyncio.sleep(0.03)
            await idle.disconnected()
            # A machine that is busy for 0.2 s makes both of them idle; virtual time does not.
            assert world is not in_memory or not busy.ended.is_set()
            busy.transport.abort()

    world(test)


# -- the hook of the fast path -------------------------------------------------------------------------


def test_the_chunk_hook_takes_what_it_likes(world: World) -> None:
    """It takes frames with even opaque; the others, and every unfinished one, go the ordinary way."""
    taken: list[int] = []

    def hook(connection: ServerConnection, buffer: memoryview, start: int, end: int) -> int:
        while end - start >= 4:
            stop = start + 4 + int.from_bytes(buffer[start : start + 4], "big")
            if stop > end:
                break
            decoder = FrameDecoder()
            decoder.feed(buffer[start:stop])
            (command,) = decoder.commands()
            if command.opaque % 2:
                break
            taken.append(command.opaque)
            connection.write(encode_frame(command.reply(body=b"lane")))
            start = stop
        return start

    async def test(runtime: Runtime) -> None:
        taken.clear()
        async with Serving(runtime, on_chunk=hook) as serving:
            peer = await serving.raw()
            peer.transport.write(b"".join(echo(number, b"x" * 5_000) for number in range(200)))
            answers = {answer.opaque: answer.body for answer in await peer.answered(200)}
            assert answers == {number: b"x" * 5_000 if number % 2 else b"lane" for number in range(200)}
            assert taken == list(range(0, 200, 2))
            peer.transport.abort()

    world(test)


def test_a_failing_chunk_hook_costs_the_connection_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(connection: ServerConnection, buffer: memoryview, start: int, end: int) -> int:
        raise ZeroDivisionError("in the fast path")

    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, on_chunk=hook) as serving:
            peer = await serving.raw()
            peer.transport.write(echo(1))
            await peer.disconnected()

    world(test)
    assert any("receiving failed" in record.message for record in caplog.records)
