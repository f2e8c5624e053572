"""One framed connection: what the server's side and the client's side have in common.

Receiving costs no allocation per chunk. All connections of an endpoint read into one shared buffer (the
event loop asks for the buffer and reports the bytes back to back); a connection keeps a copy of its
unfinished frame only. A long unfinished frame gets a buffer of its own.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.wire.errors import FrameError, RemotingError, WireError
from orbitmq.wire.frame import decode_frame, encode_frame

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime

log = logging.getLogger("orbitmq.transport")

# com.rocketmq.remoting.frameMaxLength is 16 MiB; whether that counts the two length words differs by client.
MAX_FRAME_BYTES = 16 * 1024 * 1024 + 8
SHARED_BUFFER_BYTES = 256 * 1024
# From this size on an unfinished frame is collected in place, so that a trickling peer costs linear time.
OWN_BUFFER_FROM_BYTES = 32 * 1024
MIN_CONTENT_BYTES = 4
TIMER_RESOLUTION_S = 0.01
CLOSE_GRACE_S = 1.0

_LENGTH = struct.Struct(">i")

Answer: TypeAlias = Command | None
Handler: TypeAlias = Callable[[Any, Command], Answer | Awaitable[Answer]]
ChunkHook: TypeAlias = Callable[[Any, memoryview, int, int], int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection.

    Attributes:
        max_frame_bytes: longest frame accepted, its length field included.
        high_water_bytes: bytes queued for a peer from which it counts as slow.
        max_queued_bytes: bytes queued for a peer at which it is disconnected.
        max_handling: requests of one connection being handled at a time; more are answered SYSTEM_BUSY.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 1024 * 1024
    max_queued_bytes: int = 64 * 1024 * 1024
    max_handling: int = 65535


class Endpoint:
    """What the connections of one server or one client share."""

    __slots__ = ("_opaque", "handle", "limits", "on_chunk", "peers_log", "runtime", "view")

    def __init__(
        self, runtime: Runtime, handle: Handler | None, on_chunk: ChunkHook | None, limits: Limits
    ) -> None:
        self.runtime = runtime
        self.handle = handle
        self.on_chunk = on_chunk
        self.limits = limits
        self.view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.peers_log = LogLimiter(log)
        self._opaque = 0

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque


class Connection(asyncio.BufferedProtocol):
    """Frames in, frames out, requests and their answers. Made by the server and the client of this room."""

    # A server stops reading from a peer that does not read; a client must not, or both would wait for ever.
    pauses_reading = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._on_chunk = endpoint.on_chunk
        self._shared = endpoint.view
        self._limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tail = b""
        self._own: memoryview | None = None
        self._own_filled = 0
        self._out: list[bytes] = []
        self._flush_planned = False
        self._corked = False
        self._write_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._pending: dict[int, tuple[asyncio.Future[Command], float]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = float("inf")
        # Dicts keep an order; the order of a set would differ from run to run.
        self._tasks: dict[asyncio.Future[Answer], None] = {}
        self._framed = False
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.closed = False
        # Set on every read and write, cleared by whoever looks for idle connections.
        self.active = True
        self.remote: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.attributes: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_address}>"

    @property
    def remote_address(self) -> str:
        """The other side as "host:port"."""
        return f"{self.remote[0]}:{self.remote[1]}"

    # -- receiving -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        own = transport.get_extra_info("sockname") or ("", 0)
        self.remote = (str(peer[0]), int(peer[1]))
        self.local = (str(own[0]), int(own[1]))
        self._transport.set_write_buffer_limits(high=self._limits.high_water_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is not None:
            return self._own[self._own_filled :]
        tail = self._tail
        if not tail:
            return self._shared
        length = len(tail)
        self._shared[:length] = tail
        return self._shared[length:]

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        if self._own is None:
            self._received(self._shared, len(self._tail) + nbytes)
            return
        self._own_filled += nbytes
        if self._own_filled == len(self._own):
            buffer, self._own = self._own, None
            self._received(buffer, len(buffer))

    def _received(self, buffer: memoryview, end: int) -> None:
        self._corked = True
        hook = self._on_chunk
        try:
            position = hook(self, buffer, 0, end) if hook is not None else 0
            if position < end:
                position = self._consume(buffer, position, end)
        except FrameError as error:
            self._refuse("unreadable frame", str(error))
            return
        except Exception as error:
            self._note(
                logging.ERROR,
                f"receiving failed with {type(error).__name__}",
                "%s: receiving failed, disconnecting",
                self.remote_address,
                error=error,
            )
            self.abort()
            return
        finally:
            self._corked = False
            if self._out:
                self._flush()
        if position == end:
            self._framed = True
            self._tail = b""
        elif self.closed:
            self._tail = b""
        else:
            self._framed = self._framed or position > 0
            self._keep(buffer, position, end)

    def _consume(self, buffer: memoryview, position: int, end: int) -> int:
        """Hand over the whole frames that the hook left; the position of the first byte not used."""
        hook = self._on_chunk
        maximum = self._limits.max_frame_bytes
        while end - position >= 4 and not self.closed:
            (content,) = _LENGTH.unpack_from(buffer, position)
            stop = position + 4 + content
            if content < MIN_CONTENT_BYTES or content + 4 > maximum:
                self._refuse_length(content, bytes(buffer[position : position + 16]))
                return end
            if stop > end:
                break
            # A frame that the hook leaves is handled the ordinary way.
            self.dispatch(decode_frame(buffer, position, stop))
            position = stop
            if hook is not None and position < end:
                position = hook(self, buffer, position, end)
        return position

    def _keep(self, buffer: memoryview, position: int, end: int) -> None:
        length = end - position
        if length >= 4:
            total = 4 + int(_LENGTH.unpack_from(buffer, position)[0])
            if total > OWN_BUFFER_FROM_BYTES:
                own = memoryview(bytearray(total))
                own[:length] = buffer[position:end]
                self._own = own
                self._own_filled = length
                self._tail = b""
                return
        self._tail = bytes(buffer[position:end])

    def _refuse_length(self, content: int, first: bytes) -> None:
        if not self._framed and first[:1] == b"\x16":
            self._refuse("it starts a TLS handshake", "TLS is not enabled here")
        elif not self._framed and (first[:4] == b"PROX" or first[:4] == b"\r\n\r\n"):
            self._refuse("it sends a PROXY protocol header", "that is not enabled here")
        else:
            self._refuse(
                "impossible frame length",
                f"frame of {content} bytes; allowed: 4 to {self._limits.max_frame_bytes - 4}",
            )

    def _refuse(self, reason: str, detail: str) -> None:
        self._note(logging.WARNING, reason, "disconnecting %s: %s: %s", self.remote_address, reason, detail)
        self.abort()

    def _note(
        self, level: int, kind: str, text: str, *args: object, error: BaseException | None = None
    ) -> None:
        self._endpoint.peers_log.write(level, kind, text, *args, error=error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self._own = None
        self._tail = b""
        self._out.clear()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._fail_pending(f": {exc}" if exc else "")
        self.gone.set_result(None)

    def _fail_pending(self, reason: str) -> None:
        self._wake_writers()
        pending, self._pending = self._pending, {}
        text = f"connection to {self.remote_address} lost while waiting for the answer{reason}"
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(ConnectionLostError(text, self.remote_address))

    # -- handling --------------------------------------------------------------------------------------

    def dispatch(self, command: Command) -> None:
        """Handle one received command: give an answer to who waits for it, or a request to the handler."""
        if command.flag & FLAG_RESPONSE:
            entry = self._pending.pop(command.opaque, None)
            if entry is None:
                log.debug("%s: late answer %d dropped", self.remote_address, command.opaque)
            elif not entry[0].done():
                entry[0].set_result(command)
            return
        handle = self._endpoint.handle
        if handle is None:
            text = f" request type {command.code} not supported"
            self._answer(command, command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        try:
            result = handle(self, command)
        except Exception as error:
            self._answer(command, self._failure(command, error))
            return
        if result is None or isinstance(result, Command):
            self._answer(command, result)
        else:
            self._follow(command, result)

    def _follow(self, command: Command, awaitable: Awaitable[Answer]) -> None:
        if len(self._tasks) >= self._limits.max_handling:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            remark = "[OVERLOAD]system busy, start flow control for a while"
            self._answer(command, command.reply(ResponseCode.SYSTEM_BUSY, remark))
            return
        task = asyncio.ensure_future(awaitable)
        self._tasks[task] = None

        def done(finished: asyncio.Future[Answer]) -> None:
            self._tasks.pop(finished, None)
            if finished.cancelled():
                return
            error = finished.exception()
            self._answer(command, finished.result() if error is None else self._failure(command, error))

        task.add_done_callback(done)

    def _failure(self, command: Command, error: BaseException) -> Command:
        if isinstance(error, RemotingError):
            return command.reply(error.code, error.remark)
        if isinstance(error, WireError):
            self._note(
                logging.WARNING,
                f"request refused with {type(error).__name__}",
                "%s: request %d refused: %s",
                self.remote_address,
                command.code,
                error,
            )
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        self._note(
            logging.ERROR,
            f"request failed with {type(error).__name__}",
            "%s: request %d failed",
            self.remote_address,
            command.code,
            error=error,
        )
        return command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def _answer(self, command: Command, answer: Command | None) -> None:
        if answer is None or command.flag & FLAG_ONEWAY:
            return
        answer.opaque = command.opaque
        answer.flag |= FLAG_RESPONSE
        try:
            self.send(answer)
        except FrameError as error:
            self.send(self._failure(command, error))

    # -- sending ---------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Queue one command as it is. What is queued in one iteration of the loop goes out in one write.

        Dropped when the connection is closed: the other side is gone, and so is whoever waited for it.
        """
        if self.closed:
            return
        self._out.append(encode_frame(command))
        if not self._corked and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def write(self, data: bytes) -> None:
        """Write whole encoded frames at once. Dropped when the connection is closed."""
        if self._out:
            self._flush()
        transport = self._transport
        if transport is None or self.closed:
            return
        self.active = True
        transport.write(data)
        if self._write_paused and transport.get_write_buffer_size() > self._limits.max_queued_bytes:
            self._refuse("it does not read", f"{transport.get_write_buffer_size()} bytes are queued for it")

    def _flush(self) -> None:
        self._flush_planned = False
        out = self._out
        if out:
            self._out = []
            self.write(out[0] if len(out) == 1 else b"".join(out))

    def oneway(self, command: Command) -> None:
        """Send a request that gets no answer.

        Raises:
            ConnectionLostError: the connection is closed.
        """
        if self.closed:
            raise self._lost()
        command.opaque = self._endpoint.next_opaque()
        command.flag |= FLAG_ONEWAY
        self.send(command)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer, whatever its code.

        Raises:
            ConnectionLostError: the connection is closed, or closes meanwhile.
            RequestTimeoutError: no answer within ``timeout_ms``.
        """
        future = self.begin(command, self._loop.time() + timeout_ms / 1000)
        opaque = command.opaque
        try:
            return await future
        finally:
            self._pending.pop(opaque, None)

    def begin(self, command: Command, deadline: float) -> asyncio.Future[Command]:
        """Send a request; the future of its answer fails at ``deadline`` (time of the event loop).

        The caller calls :meth:`forget` with the command's opaque when it stops waiting.
        """
        if self.closed:
            raise self._lost()
        command.opaque = opaque = self._endpoint.next_opaque()
        future: asyncio.Future[Command] = self._loop.create_future()
        self.send(command)
        self._pending[opaque] = (future, deadline)
        if deadline < self._expiry_at:
            self._plan_expiry(deadline)
        return future

    def forget(self, opaque: int) -> None:
        """Drop the answer of this request when it comes."""
        self._pending.pop(opaque, None)

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"connection to {self.remote_address} is closed", self.remote_address)

    def _plan_expiry(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail what is overdue. One timer serves all requests; it runs when the earliest may be due."""
        self._expiry = None
        self._expiry_at = float("inf")
        now = self._loop.time()
        overdue = [opaque for opaque, (_, deadline) in self._pending.items() if deadline <= now]
        for opaque in overdue:
            future, _ = self._pending.pop(opaque)
            if not future.done():
                future.set_exception(
                    RequestTimeoutError(
                        f"no answer from {self.remote_address} to request {opaque} in time",
                        self.remote_address,
                    )
                )
        if self._pending:
            earliest = min(deadline for _, deadline in self._pending.values())
            self._plan_expiry(max(earliest, now + TIMER_RESOLUTION_S))

    # -- back-pressure and end -------------------------------------------------------------------------

    @property
    def write_paused(self) -> bool:
        """Whether so much is queued that a sender should wait in :meth:`drain`."""
        return self._write_paused

    async def drain(self) -> None:
        """Return when the peer has read enough, or the connection is closed."""
        while self._write_paused and not self.closed:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def pause_writing(self) -> None:
        self._write_paused = True
        transport = self._transport
        if self.pauses_reading and transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_writers()
        transport = self._transport
        if self.pauses_reading and transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _wake_writers(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def close(self) -> None:
        """Close after what is queued has been sent."""
        if self._out:
            self._flush()
        self.closed = True
        if self._transport is not None:
            self._transport.close()
        self._fail_pending(" (closed on this side)")

    def abort(self) -> None:
        """Close at once; what is queued is dropped."""
        self.closed = True
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()
        self._fail_pending(" (closed on this side)")

    async def cancel_handling(self) -> None:
        """Stop the requests still being handled and wait for their end."""
        # Who closes from within a handler must not wait for itself.
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def close_all(connections: Iterable[Connection]) -> None:
    """Stop what is being handled, close, and return when all are gone; forced after a second."""
    every = list(connections)
    for connection in every:
        await connection.cancel_handling()
        connection.close()
    if not every:
        return
    _, open_still = await asyncio.wait([one.gone for one in every], timeout=CLOSE_GRACE_S)
    if open_still:
        for connection in every:
            connection.abort()
        await asyncio.wait(open_still)
