"""A client that blocks: one connection, no event loop, no thread. For Spark's worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeAlias

from orbitmq.runtime.sockets import SocketStream, Stream
from orbitmq.transport.address import parse_address
from orbitmq.transport.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.errors import FrameError
from orbitmq.wire.frame import decode_frame, encode_frame, frame_end

RECEIVE_BUFFER_BYTES = 256 * 1024
# com.rocketmq.remoting.frameMaxLength is 16 MiB; whether that counts the two length words differs by client.
MAX_FRAME_BYTES = 16 * 1024 * 1024 + 8
# Frames joined into one send: enough to save system calls, little enough not to copy megabytes at a time.
SEND_BYTES = 256 * 1024

Opener: TypeAlias = Callable[[str, int, float], Stream]


class BlockingConnection:
    """One connection. Not for use by several threads at a time; it does not reconnect.

    After a ConnectionLostError it is closed. After a RequestTimeoutError it can be used on, unless a request
    was sent by half (then it is closed too); answers that come late are dropped. Requests that the server
    sends are ignored.

    Args:
        address: "host:port".
        timeout_ms: for the connect, and for requests that name no other.

    Raises:
        ConnectError: no connection.
    """

    def __init__(
        self,
        address: str,
        timeout_ms: int = 3000,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        opener: Opener = SocketStream,
    ) -> None:
        host, port = parse_address(address)
        self.address = address
        self.closed = False
        self._timeout_ms = timeout_ms
        self._max_frame_bytes = max_frame_bytes
        self._opaque = 0
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        try:
            self._stream = opener(host, port, timeout_ms / 1000)
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error}", address) from error

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, command: Command, timeout_ms: int | None = None) -> Command:
        """Send one request and wait for its answer, whatever its code. ``command`` gets its opaque here.

        Raises:
            ConnectionLostError: the connection is closed or broke; the server may have done the work.
            RequestTimeoutError: no answer in time.
        """
        return self.request_many((command,), timeout_ms)[0]

    def request_many(self, commands: Sequence[Command], timeout_ms: int | None = None) -> list[Command]:
        """Send all requests at once and wait for all answers; they come back in the order of the requests.

        The time is for all together. Errors as with :meth:`request`, for the whole.
        """
        if self.closed:
            raise ConnectionLostError(f"connection to {self.address} is closed", self.address)
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._stream.monotonic() + timeout_ms / 1000
        frames: deque[bytes] = deque()
        waiting: dict[int, int] = {}
        for index, command in enumerate(commands):
            self._opaque = command.opaque = (self._opaque + 1) & 0x7FFFFFFF
            frames.append(encode_frame(command))
            waiting[command.opaque] = index
        answers: list[Command | None] = [None] * len(commands)
        try:
            self._exchange(frames, waiting, answers, deadline, timeout_ms)
        except (OSError, FrameError) as error:
            self.close()
            raise ConnectionLostError(f"connection to {self.address} lost: {error}", self.address) from error
        return [answer for answer in answers if answer is not None]

    def oneway(self, command: Command, timeout_ms: int | None = None) -> None:
        """Send a request that gets no answer.

        Raises:
            ConnectionLostError, RequestTimeoutError: it was not sent as a whole.
        """
        if self.closed:
            raise ConnectionLostError(f"connection to {self.address} is closed", self.address)
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        self._opaque = command.opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.flag |= FLAG_ONEWAY
        deadline = self._stream.monotonic() + timeout_ms / 1000
        try:
            self._exchange(deque((encode_frame(command),)), {}, [], deadline, timeout_ms)
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"connection to {self.address} lost: {error}", self.address) from error

    @property
    def usable(self) -> bool:
        """Whether the server has not closed the connection as far as can be seen now."""
        if self.closed:
            return False
        try:
            # Late answers may have come; only the end of the stream shows that it is dead.
            self._receive({}, [])
        except (OSError, FrameError):
            self.close()
        return not self.closed

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        if not self.closed:
            self.closed = True
            self._stream.close()

    # -- the exchange ----------------------------------------------------------------------------------

    def _exchange(
        self,
        frames: deque[bytes],
        waiting: dict[int, int],
        answers: list[Command | None],
        deadline: float,
        timeout_ms: int,
    ) -> None:
        """Send and receive in turns: a server that stops reading until we read must not block us."""
        rest = memoryview(b"")
        while True:
            rest = self._send(frames, rest)
            to_send = len(rest) > 0
            if not to_send and not waiting:
                return
            left = deadline - self._stream.monotonic()
            if left <= 0 or not self._stream.wait(to_send=to_send, timeout_s=left):
                if to_send:
                    self.close()
                missing = f"{len(waiting)} of {len(answers)} answers"
                text = f"{missing} missing from {self.address} after {timeout_ms} ms"
                raise RequestTimeoutError(text, self.address)
            self._receive(waiting, answers)

    def _send(self, frames: deque[bytes], rest: memoryview) -> memoryview:
        """Send until the socket is full; what is left of the piece being sent."""
        while True:
            if not len(rest):
                if not frames:
                    return rest
                rest = memoryview(_joined(frames))
            count = self._stream.send(rest)
            if count == 0:
                return rest
            rest = rest[count:]

    def _receive(self, waiting: dict[int, int], answers: list[Command | None]) -> None:
        self._make_room()
        count = self._stream.receive_into(self._buffer[self._end :])
        self._end += count
        while (stop := frame_end(self._buffer, self._start, self._end, self._max_frame_bytes)) >= 0:
            command = decode_frame(self._buffer, self._start, stop)
            self._start = stop
            if command.is_response:
                index = waiting.pop(command.opaque, None)
                if index is not None:
                    answers[index] = command

    def _make_room(self) -> None:
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            return
        needed = RECEIVE_BUFFER_BYTES
        if end - start >= 4:
            needed = max(needed, 4 + int.from_bytes(self._buffer[start : start + 4], "big"))
        if needed > len(self._buffer):
            longer = memoryview(bytearray(needed))
            longer[: end - start] = self._buffer[start:end]
            self._buffer = longer
        elif start + needed > len(self._buffer):
            # Through a copy: slices of one memoryview may overlap.
            self._buffer[: end - start] = bytes(self._buffer[start:end])
        else:
            return
        self._start, self._end = 0, end - start


def _joined(frames: deque[bytes]) -> bytes:
    first = frames.popleft()
    if not frames or len(first) >= SEND_BYTES:
        return first
    parts, size = [first], len(first)
    while frames and size + len(frames[0]) <= SEND_BYTES:
        size += len(frames[0])
        parts.append(frames.popleft())
    return b"".join(parts)
