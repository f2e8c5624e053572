"""The blocking client, against the real server in another thread and against a scripted stream."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Iterator

import pytest

from orbitmq.runtime import system_runtime
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.endpoint import Limits
from orbitmq.transport.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame

ECHO, SLOW, SILENT, CLOSE, ASK_FIRST, LAST = range(10, 16)
LIMIT_MS = 30_000


# Requests that are answered when the next one comes.
held: list[Command] = []


def handle(connection: ServerConnection, command: Command) -> Command | Awaitable[Command | None] | None:
    if command.code == SLOW:
        return slow(command)
    if command.code == SILENT:
        return None
    if command.code == CLOSE:
        connection.abort()
        return None
    if command.code == LAST:
        held.append(command)
        return None
    if command.code == ASK_FIRST:
        connection.send(Command(40, opaque=command.opaque))
    while held:
        connection.send(held.pop().reply(remark="late"))
    return command.reply(body=command.body)


async def slow(command: Command) -> Command:
    await asyncio.sleep(0.05)
    return command.reply(remark="slept")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a thread of its own."""
    started = threading.Event()
    state: dict[str, object] = {}

    async def main() -> None:
        stop = asyncio.Event()
        server = RemotingServer(system_runtime(), handle, limits=Limits(high_water_bytes=50_000))
        state["port"] = await server.start("127.0.0.1", 0)
        state["stop"] = stop
        state["loop"] = asyncio.get_running_loop()
        started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(60)
    yield f"127.0.0.1:{state['port']}"
    loop, stop = state["loop"], state["stop"]
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert isinstance(stop, asyncio.Event)
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)


def test_a_request(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        assert connection.request(Command(ECHO, body=b"hello")).body == b"hello"
        assert connection.request(Command(SLOW)).remark == "slept"


def test_many_requests_in_their_order(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        commands = [
            Command(SLOW if number == 7 else ECHO, body=str(number).encode()) for number in range(500)
        ]
        answers = connection.request_many(commands)
        assert [answer.body for answer in answers if not answer.remark] == [
            str(number).encode() for number in range(500) if number != 7
        ]
        assert answers[7].remark == "slept"
        assert connection.request_many([]) == []


def test_more_than_both_sides_buffer(address: str) -> None:
    """The server stops reading while its answers are not read, so sending and receiving must alternate."""
    with BlockingConnection(address, LIMIT_MS) as connection:
        bodies = [bytes([number]) * 400_000 for number in range(100)]
        answers = connection.request_many([Command(ECHO, body=body) for body in bodies])
        assert [answer.body for answer in answers] == bodies
        assert connection.request(Command(ECHO, body=b"after")).body == b"after"


@pytest.mark.parametrize("size", [0, 1, 262_000, 262_144, 1_000_000, 15_000_000])
def test_answers_of_any_size(address: str, size: int) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        for _ in range(2):
            assert len(connection.request(Command(ECHO, body=bytes(size))).body) == size


def test_bodies_of_long_answers_are_given_where_they_were_received(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        sent = [b"short", b"\x01" * 600_000, b"", b"\x02" * 40_000]
        numbers = [connection.submit(Command(ECHO, body=body)) for body in sent]
        answers: dict[int, Command] = {}
        bodies: dict[int, memoryview] = {}
        while len(answers) < len(sent):
            answers |= connection.poll(5.0, bodies)
        assert [bytes(bodies.get(number, answers[number].body)) for number in numbers] == sent
        assert answers[numbers[1]].body == b""
        assert connection.request(Command(ECHO, body=b"\x03" * 600_000)).body == b"\x03" * 600_000


def test_a_body_is_sent_from_where_it_lies_until_it_is_answered(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        memory = memoryview(bytearray(600_000))
        for fill, size in ((1, 600_000), (2, 40_000), (3, 7), (4, 0), (5, 33_000)):
            memory[:size] = bytes([fill]) * size
            number = connection.submit(Command(ECHO), memory[:size])
            before = connection.submit(Command(ECHO, body=b"whole"))
            answers: dict[int, Command] = {}
            while len(answers) < 2:
                answers |= connection.poll(5.0)
            assert answers[number].body == bytes([fill]) * size
            assert answers[before].body == b"whole"


def test_a_timeout_leaves_the_connection_usable(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        with pytest.raises(RequestTimeoutError, match="of 2 answers missing"):
            connection.request_many([Command(ECHO), Command(SILENT)], 30)
        with pytest.raises(RequestTimeoutError):
            connection.request(Command(LAST), 5)
        assert connection.request(Command(ECHO, body=b"again")).body == b"again"


def test_one_way_and_requests_of_the_server(address: str) -> None:
    with BlockingConnection(address, LIMIT_MS) as connection:
        connection.oneway(Command(ECHO))
        assert connection.request(Command(ASK_FIRST, body=b"x")).body == b"x"


def test_the_server_closes(address: str) -> None:
    connection = BlockingConnection(address, LIMIT_MS)
    with pytest.raises(ConnectionLostError):
        connection.request(Command(CLOSE))
    assert connection.closed
    with pytest.raises(ConnectionLostError, match="is closed"):
        connection.request(Command(ECHO))
    with pytest.raises(ConnectionLostError, match="is closed"):
        connection.oneway(Command(ECHO))
    connection.close()


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectError):
            BlockingConnection(f"127.0.0.1:{port}", 500)
    with pytest.raises(ConnectError, match="not host:port"):
        BlockingConnection("127.0.0.1")


class ScriptedStream:
    """Takes three bytes at a time and gives answers one byte at a time."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self.decoder = FrameDecoder()
        self.incoming = b""
        self.now = 0.0
        self.full = False

    def send(self, data: bytes | bytearray | memoryview, *, more: bool = False) -> int:
        self.full = not self.full
        if self.full:
            return 0
        self.decoder.feed(data[:3])
        for command in self.decoder.commands():
            self.incoming += self.answer(command)
        return min(3, len(data))

    def answer(self, command: Command) -> bytes:
        return encode_frame(command.reply(body=command.body))

    def receive_into(self, buffer: memoryview) -> int:
        count = min(1, len(self.incoming))
        buffer[:count] = self.incoming[:count]
        self.incoming = self.incoming[count:]
        return count

    def wait(self, *, to_send: bool, timeout_s: float) -> bool:
        if to_send or self.incoming:
            return True
        self.now += timeout_s
        return False

    def monotonic(self) -> float:
        return self.now

    def close(self) -> None:
        pass


def test_a_stream_in_crumbs() -> None:
    connection = BlockingConnection("h:1", opener=ScriptedStream)
    answers = connection.request_many([Command(ECHO, body=b"x" * number) for number in range(20)])
    assert [len(answer.body) for answer in answers] == list(range(20))


def test_a_timeout_tells_how_many_answers_are_missing() -> None:
    class Silent(ScriptedStream):
        def answer(self, command: Command) -> bytes:
            return b"" if command.code == SILENT else super().answer(command)

    connection = BlockingConnection("h:1", opener=Silent)
    with pytest.raises(RequestTimeoutError, match="1 of 2 answers missing"):
        connection.request_many([Command(ECHO), Command(SILENT)], 30)


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", struct.pack(">ii", 5, 7) + b"x"]
)
def test_garbage_is_a_lost_connection(garbage: bytes) -> None:
    class Garbage(ScriptedStream):
        def answer(self, command: Command) -> bytes:
            return garbage

    connection = BlockingConnection("h:1", opener=Garbage)
    with pytest.raises(ConnectionLostError):
        connection.request(Command(ECHO))
    assert connection.closed


def test_a_request_sent_by_half_closes() -> None:
    class Full(ScriptedStream):
        def send(self, data: bytes | bytearray | memoryview, *, more: bool = False) -> int:
            return 0

        def wait(self, *, to_send: bool, timeout_s: float) -> bool:
            self.now += timeout_s
            return False

    connection = BlockingConnection("h:1", opener=Full)
    with pytest.raises(RequestTimeoutError):
        connection.request(Command(ECHO))
    assert connection.closed
