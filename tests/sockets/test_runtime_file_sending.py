"""Parts of a file reach the other end of a connection, in one order with what is written beside them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from orbitmq.runtime.file_sending import FileSender, send_at_once
from orbitmq.runtime.seam import Segment
from orbitmq.runtime.sockets import SocketStream
from orbitmq.runtime.store_files import SystemSegment

LOOPS = pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
LIMIT_S = 60.0


class Sending(asyncio.Protocol):
    """Sends a file in parts, each behind a head and before a tail that the transport is given.

    Attributes:
        at_once: of each part, whether all of it went out at once.
        sent: all bytes.
    """

    def __init__(self, segment: Segment, part_bytes: int, *, in_memory: bool, has_file: bool = True) -> None:
        self._segment = segment
        self._has_file = has_file
        self._memory = bytearray(part_bytes) if in_memory else None
        self._part_bytes = part_bytes
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.at_once: list[bool] = []
        self.sent = b""
        self.done: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(high=0)
        self.done = asyncio.ensure_future(self._send(transport))

    def pause_writing(self) -> None:
        self._goes_on.clear()

    def resume_writing(self) -> None:
        self._goes_on.set()

    async def _send(self, transport: Any) -> None:
        sender = FileSender(transport)
        size, parts = self._segment.size_bytes, []
        for start in range(0, size, self._part_bytes):
            await self._goes_on.wait()
            end = min(size, start + self._part_bytes)
            head, tail = b"head %d;" % start, b"tail %d;" % start
            memory = self._in_memory(start, end)
            if self._has_file:
                self.at_once.append(sender.send(head, self._segment, start, end, memory))
            else:
                assert memory is not None
                self.at_once.append(sender.send_memory(head, memory))
            transport.write(tail)
            parts += [head, bytes(self._segment.view()[start:end]), tail]
        sender.close()
        self.sent = b"".join(parts)
        transport.close()

    def _in_memory(self, start: int, end: int) -> memoryview | None:
        """The part in memory that the next one takes."""
        if self._memory is None:
            return None
        part = memoryview(self._memory)[: end - start]
        part[:] = self._segment.view()[start:end]
        return part


async def both_ends(sending: Sending) -> bytes:
    """What comes out at the other end, which begins to read when the sender waits or has sent all."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: sending, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
    while sending.done is None or (all(sending.at_once) and not sending.done.done()):
        await asyncio.sleep(0.001)
    received = await reader.read(-1)
    await sending.done
    writer.close()
    server.close()
    return received


@LOOPS
@pytest.mark.parametrize(("in_memory", "has_file"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize(
    ("size_bytes", "part_bytes"), [(32 << 20, 1_000_003), (3 << 20, 64 * 1024), (500, 7)]
)
def test_a_reader_gets_all_bytes_in_their_order(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
    size_bytes: int,
    part_bytes: int,
    in_memory: bool,
    has_file: bool,
) -> None:
    segment = SystemSegment(str(tmp_path / "file"), size_bytes, create=True)
    segment.pwrite(random.Random(1).randbytes(size_bytes), 0)

    async def main() -> Sending:
        sending = Sending(segment, part_bytes, in_memory=in_memory, has_file=has_file)
        async with asyncio.timeout(LIMIT_S):
            assert await both_ends(sending) == sending.sent
        return sending

    with asyncio.Runner(loop_factory=make_loop) as runner:
        sending = runner.run(main())
    segment.close()
    assert any(sending.at_once)
    if size_bytes > 16 << 20:
        assert not all(sending.at_once), "more than the connection takes waits"


@LOOPS
def test_a_broken_connection_ends_in_the_transport(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    segment = SystemSegment(str(tmp_path / "file"), 1 << 20, create=True)

    async def main() -> BaseException | None:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[BaseException | None] = loop.create_future()

        class End(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.sender = FileSender(transport)
                loop.call_later(0.05, self.send)

            def send(self) -> None:
                if not lost.done():
                    self.sender.send(b"head", segment, 0, 1 << 20)
                    loop.call_later(0.01, self.send)

            def connection_lost(self, exc: Exception | None) -> None:
                self.sender.close()
                lost.set_result(exc)

        server = await loop.create_server(End, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.abort()
        async with asyncio.timeout(LIMIT_S):
            found = await lost
        server.close()
        return found

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
    segment.close()


def algorithm(connection: socket.socket) -> bytes:
    """Of congestion control, by its name."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.parametrize("from_host", ["127.0.0.1", "127.0.0.2"])
def test_a_connection_within_a_machine_is_not_paced_another_is_left_alone(from_host: str) -> None:
    """bbr's pacing timers cost a master more than sending its log to a slave beside it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as far:
        far.bind((from_host, 0))
        far.connect(server.getsockname())
        near, _ = server.accept()
        with near:
            chosen = algorithm(near)

            class Held(asyncio.Transport):
                def get_extra_info(self, name: str, default: Any = None) -> Any:
                    return near if name == "socket" else default

            FileSender(Held()).close()
            assert algorithm(near) == (b"reno" if from_host == "127.0.0.1" else chosen)


def test_a_task_of_spark_sends_unpaced_to_a_broker_within_the_machine() -> None:
    """bbr's pacing timers are an eighth of what a row costs the writer of a sink."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = SocketStream(*server.getsockname(), LIMIT_S)
        assert algorithm(stream._socket) == b"reno"
        stream.close()


def all_sent(
    end: Callable[[], asyncio.Protocol], make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> bytes:
    """All that a server's end of a connection sends until it closes."""

    async def main() -> bytes:
        server = await asyncio.get_running_loop().create_server(end, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(LIMIT_S):
            received = await reader.read(-1)
        writer.close()
        server.close()
        return received

    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(main())


@LOOPS
@pytest.mark.parametrize("size_bytes", [32 << 20, 5000])
def test_what_a_connection_does_not_take_at_once_is_a_copy(
    make_loop: Callable[[], asyncio.AbstractEventLoop], size_bytes: int
) -> None:
    memory = bytearray(random.Random(2).randbytes(size_bytes))
    first = bytes(memory)
    parts = [b"head", memoryview(memory)[: size_bytes // 3], memoryview(memory)[size_bytes // 3 :]]
    lost: list[bool] = []

    class End(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            for number in range(3):
                transport.write(b"%d;" % number)
                if rest := send_at_once(transport, parts):
                    transport.write(rest)
                lost.append(bool(rest))
            memory[:] = bytes(size_bytes)
            transport.close()

    received = all_sent(End, make_loop)
    assert received == b"".join(b"%d;head" % number + first for number in range(3))
    assert any(lost) or size_bytes < 10_000


@LOOPS
def test_nothing_is_sent_at_once_through_a_transport_that_closes(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    class End(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.close()
            self.rest = send_at_once(transport, [b"head", memoryview(b"body")])

    end = End()
    assert all_sent(lambda: end, make_loop) == b""
    assert end.rest == b"headbody"
