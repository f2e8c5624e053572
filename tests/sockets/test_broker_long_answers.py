"""Readers that are slow or go away in the midst of long answers, which a broker sends from its log's maps."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.conversation.broker_peer import pull_request, send_request

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime import system_runtime
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers.pull import PullMessageResponse

MESSAGES = 2000
FILE_BYTES = 1 << 20
PULLS = 40
LIMIT_S = 60.0
LOOPS = pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
Loops = Callable[[], asyncio.AbstractEventLoop]


class Reader:
    """A connection that is read when the test says so."""

    def __init__(self, port: int, *, receive_bytes: int = 0) -> None:
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.setblocking(False)
        self._port = port
        self._decoder = FrameDecoder()

    async def connect(self) -> None:
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port))

    async def ask(self, *commands: Command) -> None:
        frames = b"".join(encode_frame(command) for command in commands)
        await asyncio.get_running_loop().sock_sendall(self._socket, frames)

    async def answers(self, count: int, *, piece_bytes: int = 1 << 20) -> list[Command]:
        found: list[Command] = []
        while len(found) < count:
            data = await asyncio.get_running_loop().sock_recv(self._socket, piece_bytes)
            assert data, "the broker closed the connection"
            self._decoder.feed(data)
            found += self._decoder.commands()
        return found

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[Broker]:
    """A broker with messages in several log files, whose fast path knows the queue that they are in."""
    config = BrokerConfig(
        listen_port=0,
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=60_000,
    )
    async with Broker(system_runtime(), config) as broker:
        sender = Reader(broker.port)
        await sender.connect()
        for number in range(MESSAGES):
            command = send_request().command(number.to_bytes(4, "big") * 256)
            command.opaque = number
            await sender.ask(command)
            if number % 100 == 0:
                await sender.answers(1 if number == 0 else 100)
        await sender.answers(MESSAGES - 1 - (MESSAGES - 1) // 100 * 100)
        await sender.ask(pull_request())
        await sender.answers(1)
        sender.close()
        yield broker


def pull(opaque: int, offset: int) -> Command:
    command = pull_request(offset, max_msg_nums=1000, max_msg_bytes=512 << 10)
    command.opaque = opaque
    command.serialization = list(Serialization)[opaque // 2 % 2]
    return command


def largest_offset(opaque: int) -> Command:
    return Command(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=opaque)


def body_of(broker: Broker, offset: int) -> bytes:
    return broker.services.store.get("T", 0, offset, 1000, max_bytes=512 << 10).body


def waits_for_its_reader(broker: Broker) -> bool:
    assert broker.doors.server is not None
    return any(connection.write_paused for connection in broker.doors.server.connections)


def check(answers: list[Command], expected: dict[int, bytes]) -> None:
    """Each pull, of an even number, has its records; what was asked for in between is answered too."""
    assert sorted(answer.opaque for answer in answers) == list(range(2 * PULLS))
    for answer in answers:
        assert answer.code == 0
        if answer.opaque % 2:
            assert answer.ext["offset"] == str(MESSAGES)
        else:
            assert answer.body == expected[answer.opaque]
            assert PullMessageResponse.from_ext(answer.ext).max_offset == MESSAGES


def run(make_loop: Loops, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(limited())


@LOOPS
@pytest.mark.parametrize("deletes", [False, True])
def test_a_slow_reader_gets_whole_frames_even_of_files_that_are_deleted_meanwhile(
    make_loop: Loops, tmp_path: Path, deletes: bool
) -> None:
    async def main() -> None:
        async with filled(tmp_path) as broker:
            reader = Reader(broker.port, receive_bytes=16 << 10)
            await reader.connect()
            expected = {2 * number: body_of(broker, 7 * number) for number in range(PULLS)}
            assert min(map(len, expected.values())) > 500_000
            for number in range(PULLS):
                await reader.ask(pull(2 * number, 7 * number), largest_offset(2 * number + 1))
            while not waits_for_its_reader(broker):
                await asyncio.sleep(0.01)
            received = await reader.answers(3, piece_bytes=50_000)
            assert waits_for_its_reader(broker)
            if deletes:
                # Nothing that waits for the reader may need them: what is asked for anew is not there.
                log = broker.services.store.log
                for _ in range(log.files.count - 1):
                    log.files.remove_first()
                log.refresh_maps()
            received += await reader.answers(2 * PULLS - len(received))
            reader.close()
            if deletes:
                received = [answer for answer in received if answer.code == 0]
                assert len(received) > 10
                for answer in received:
                    assert answer.opaque % 2 or answer.body == expected[answer.opaque]
            else:
                check(received, expected)

    run(make_loop, main)


@LOOPS
def test_a_reader_that_goes_in_the_midst_of_an_answer_leaves_the_others_served(
    make_loop: Loops, tmp_path: Path
) -> None:
    async def main() -> None:
        async with filled(tmp_path) as broker:
            expected = {2 * number: body_of(broker, 7 * number) for number in range(PULLS)}
            for piece_bytes in (1, 300_000):
                gone = Reader(broker.port, receive_bytes=16 << 10)
                await gone.connect()
                await gone.ask(*(pull(2 * number, 7 * number) for number in range(PULLS)))
                await asyncio.get_running_loop().sock_recv(gone._socket, piece_bytes)
                gone.close()
            reader = Reader(broker.port)
            await reader.connect()
            await reader.ask(
                *(
                    command
                    for number in range(PULLS)
                    for command in (pull(2 * number, 7 * number), largest_offset(2 * number + 1))
                )
            )
            check(await reader.answers(2 * PULLS), expected)
            reader.close()

    run(make_loop, main)
