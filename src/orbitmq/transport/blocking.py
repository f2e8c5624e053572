"""A blocking client for Spark's worker processes: one connection, no event loop, no thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeAlias

from orbitmq.errors import ValidationError
from orbitmq.runtime.seam import Buffer
from orbitmq.runtime.sockets import SocketStream, Stream, TlsStream
from orbitmq.transport.address import parse_address
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError, TlsError, connect_error
from orbitmq.transport.identity import NOBODY, Identity, sign
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.connection import OWN_BUFFER_FROM_BYTES, TLS_ALERT, Allocate, Opaques, RemotingConnection
from orbitmq.wire.errors import FrameError, OtherProtocolError
from orbitmq.wire.frame import MAX_FRAME_BYTES, encode_frame, encode_head

# The most bytes of frames that are joined into one send: this saves system calls without copying megabytes.
SEND_BYTES = 256 * 1024
# Pieces of at least this size are sent without being copied.
UNJOINED_FROM_BYTES = 32 * 1024
# The receive buffer. Of a long frame, only the part received before its length is known is copied from it.
BUFFER_BYTES = 2 * OWN_BUFFER_FROM_BYTES

Opener: TypeAlias = Callable[[str, int, float], Stream]
Answers: TypeAlias = "list[Command | None] | dict[int, Command]"
Bodies: TypeAlias = "dict[int, memoryview]"


class BlockingConnection:
    """One connection. Not for use by several threads at a time; it does not reconnect.

    After a ConnectionLostError it is closed. After a RequestTimeoutError it stays usable, unless a request
    was sent only in part, which closes it; late answers are dropped. Requests that the server sends are
    ignored.

    Args:
        address: "host:port".
        timeout_ms: the time for connecting, and for requests that name no other.
        identity: the client's keys and TLS.
        allocate: returns memory for a long answer; its content does not matter.

    Raises:
        ConnectError: no connection could be made.
        TlsError: no TLS with the server.
    """

    def __init__(
        self,
        address: str,
        timeout_ms: int = 3000,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        identity: Identity = NOBODY,
        opener: Opener = SocketStream,
        allocate: Allocate = bytearray,
    ) -> None:
        host, port = parse_address(address)
        self.address = address
        self.identity = identity
        self.closed = False
        self._signer = identity.signer()
        self._timeout_ms = timeout_ms
        self._outbox: deque[Buffer] = deque()
        self._unsent = memoryview(b"")
        self._posted = 0
        # The waiter of a request is the index of its answer, or its number from submit().
        self._protocol: RemotingConnection[int] = RemotingConnection(
            Opaques(), memoryview(bytearray(BUFFER_BYTES)), max_frame_bytes, allocate=allocate
        )
        try:
            self._stream = (
                opener(host, port, timeout_ms / 1000)
                if identity.tls is None
                else TlsStream(host, port, timeout_ms / 1000, identity.tls, address)
            )
        except (ConnectionAbortedError, ValidationError) as error:
            raise TlsError(f"no TLS with {address}: {error}", address) from error
        except OSError as error:
            raise connect_error(address, error) from error

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, command: Command, timeout_ms: int | None = None) -> Command:
        """Send one request and return its answer, whatever its code. ``command`` gets its opaque here.

        Raises:
            ConnectionLostError: the connection is closed or broke; the server may have carried out the
                request.
            RequestTimeoutError: no answer in time.
        """
        return self.request_many((command,), timeout_ms)[0]

    def request_many(self, commands: Sequence[Command], timeout_ms: int | None = None) -> list[Command]:
        """Send all requests at once and return all answers, in the order of the requests.

        The time is for all together. The errors are those of :meth:`request`; one of them discards all
        answers.
        """
        if self.closed:
            raise ConnectionLostError(f"connection to {self.address} is closed", self.address)
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._stream.monotonic() + timeout_ms / 1000
        frames: deque[Buffer] = deque()
        answers: list[Command | None] = [None] * len(commands)
        try:
            for index, command in enumerate(commands):
                opaque = self._protocol.number(command)
                if self._signer is not None:
                    sign(self._signer, command, self.address)
                frames.append(encode_frame(command))
                self._protocol.expect(opaque, index)
            self._exchange(frames, answers, deadline, timeout_ms)
        finally:
            self._protocol.abandoned()
        return [answer for answer in answers if answer is not None]

    def oneway(self, command: Command, timeout_ms: int | None = None) -> None:
        """Send a request that gets no answer.

        Raises:
            ConnectionLostError, RequestTimeoutError: the request was not sent, or only in part.
        """
        if self.closed:
            raise ConnectionLostError(f"connection to {self.address} is closed", self.address)
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        self._protocol.number(command)
        command.flag |= FLAG_ONEWAY
        if self._signer is not None:
            sign(self._signer, command, self.address)
        deadline = self._stream.monotonic() + timeout_ms / 1000
        self._exchange(deque((encode_frame(command),)), [], deadline, timeout_ms)

    def submit(self, command: Command, body: Buffer | None = None) -> int:
        """Queue a request without waiting; :meth:`poll` sends it and returns the answer.

        Not to be mixed with :meth:`request` on one connection.

        Args:
            body: sent instead of the command's body, without a copy; must not change until the answer is
                there.

        Returns:
            The number under which :meth:`poll` returns the answer.
        """
        self._posted += 1
        self._protocol.expect(self._protocol.number(command), self._posted)
        if body is None:
            body = command.body
        if self._signer is not None:
            sign(self._signer, command, self.address, body)
        self._outbox += (encode_head(command, len(body)), body)
        return self._posted

    def poll(self, timeout_s: float = 0.0, bodies: Bodies | None = None) -> dict[int, Command]:
        """Send as much of the queued requests as the socket takes, and receive answers.

        Args:
            timeout_s: how long to wait if nothing can be sent or received.
            bodies: gets the bodies of long answers without a copy; the commands of these answers have none.

        Returns:
            The complete answers, by the numbers of :meth:`submit`.

        Raises:
            ConnectionLostError: the connection is closed or broke; requests without an answer may have been
                carried out.
        """
        if self.closed:
            raise ConnectionLostError(f"connection to {self.address} is closed", self.address)
        arrived: dict[int, Command] = {}
        try:
            self._unsent = self._send(self._outbox, self._unsent)
            if timeout_s > 0:
                self._stream.wait(to_send=len(self._unsent) > 0, timeout_s=timeout_s)
                self._unsent = self._send(self._outbox, self._unsent)
            self._receive(arrived, bodies)
        except (OSError, FrameError) as error:
            raise self._lost(error) from error
        return arrived

    @property
    def usable(self) -> bool:
        """Whether the connection is open, as far as the received bytes show."""
        if self.closed:
            return False
        try:
            # Late answers may have come; only the end of the stream shows that the connection is dead.
            self._receive([])
        except (OSError, FrameError):
            self.close()
        return not self.closed

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        if not self.closed:
            self.closed = True
            self._stream.close()

    def _lost(self, error: OSError | FrameError) -> ConnectionLostError:
        """Close the connection; returns the error with the reason."""
        self.close()
        hint = ""
        if isinstance(error, OtherProtocolError) and error.first == TLS_ALERT:
            hint = "; it asks for TLS: give tls=Tls(ca=...)"
        elif isinstance(error, ConnectionResetError) and not self._protocol.framed:
            hint = self.identity.hint
        return ConnectionLostError(f"connection to {self.address} lost: {error}{hint}", self.address)

    # -- the exchange ----------------------------------------------------------------------------------

    def _exchange(
        self, frames: deque[Buffer], answers: list[Command | None], deadline: float, timeout_ms: int
    ) -> None:
        try:
            self._send_and_receive(frames, answers, deadline, timeout_ms)
        except (OSError, FrameError) as error:
            raise self._lost(error) from error

    def _send_and_receive(
        self, frames: deque[Buffer], answers: list[Command | None], deadline: float, timeout_ms: int
    ) -> None:
        """Send and receive by turns: a server may stop reading until this side reads its answers."""
        rest = memoryview(b"")
        while True:
            rest = self._send(frames, rest)
            to_send = len(rest) > 0
            if not to_send and not self._protocol.waiting:
                return
            left = deadline - self._stream.monotonic()
            if left <= 0 or not self._stream.wait(to_send=to_send, timeout_s=left):
                if to_send:
                    self.close()
                missing = f"{self._protocol.waiting} of {len(answers)} answers"
                text = f"{missing} missing from {self.address} after {timeout_ms} ms"
                raise RequestTimeoutError(text, self.address)
            self._receive(answers)

    def _send(self, frames: deque[Buffer], rest: memoryview) -> memoryview:
        """Send until the socket is full; returns the unsent part of the last piece."""
        while True:
            if not len(rest):
                if not frames:
                    return rest
                rest = memoryview(_joined(frames))
            count = self._stream.send(rest, more=len(frames) > 0)
            if count == 0:
                return rest
            rest = rest[count:]

    def _receive(self, answers: Answers, bodies: Bodies | None = None) -> None:
        count = self._stream.receive_into(self._protocol.room())
        long = None if bodies is None else self._protocol.receive_long(count)
        if bodies is not None and long is not None:
            command, body = long
            index = self._protocol.answered(command) if command.is_response else None
            if index is not None:
                answers[index] = command
                bodies[index] = body
            return
        next_command: Command | None = self._protocol.receive(count)
        while next_command is not None:
            if next_command.is_response:
                index = self._protocol.answered(next_command)
                if index is not None:
                    answers[index] = next_command
            next_command = self._protocol.next_command()


def _joined(frames: deque[Buffer]) -> Buffer:
    first = frames.popleft()
    if not frames or len(first) + len(frames[0]) > SEND_BYTES or len(frames[0]) >= UNJOINED_FROM_BYTES:
        return first
    parts, size = [first], len(first)
    while frames and size + len(frames[0]) <= SEND_BYTES and len(frames[0]) < UNJOINED_FROM_BYTES:
        size += len(frames[0])
        parts.append(frames.popleft())
    return b"".join(parts)
