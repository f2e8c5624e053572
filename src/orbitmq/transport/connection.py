"""One connection on the event loop, the common part of a server's and a client's connections.

It moves bytes and runs timers for a :class:`orbitmq.wire.connection.RemotingConnection`, which cuts frames,
numbers requests and matches answers to them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, cast

from orbitmq.runtime.file_sending import send_at_once
from orbitmq.transport.endpoint import NO_FAILURES, Answer, Endpoint, Handler, log
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.wire import connection as protocol
from orbitmq.wire.addresses import joined
from orbitmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.wire.connection import NEVER, RemotingConnection
from orbitmq.wire.errors import FrameError, OtherProtocolError, RemotingError, WireError
from orbitmq.wire.frame import encode_frame

if TYPE_CHECKING:
    from orbitmq.runtime.seam import Buffer

TIMER_RESOLUTION_S = 0.01
CLOSE_GRACE_S = 1.0


class Connection(asyncio.BufferedProtocol):
    """A connection that receives and sends frames, and handles requests. Servers and clients have subclasses.

    Attributes:
        remote, local: (host, port) of the peer's end and of this end.
        closed: whether nothing more can be sent.
        active: set on every read and write, cleared by the check for idle connections.
    """

    # Slots save memory: a server has ten thousand connections.
    __slots__ = (
        "_corked",
        "_drained",
        "_endpoint",
        "_expiry",
        "_expiry_at",
        "_flush_planned",
        "_gone",
        "_limits",
        "_loop",
        "_out",
        "_protocol",
        "_tasks",
        "_transport",
        "_why",
        "_write_paused",
        "active",
        "closed",
        "get_buffer",
        "local",
        "remote",
    )

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]  # called by position only

    # A server stops reading from a peer that does not read. If a client did so too, both would wait for ever.
    pauses_reading = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._protocol: RemotingConnection[asyncio.Future[Command]] = RemotingConnection(
            endpoint.opaques,
            endpoint.view,
            endpoint.limits.max_frame_bytes,
            hook=endpoint.on_chunk,
            owner=self,
        )
        # The event loop calls this before every read, so it is the engine's method itself.
        self.get_buffer = self._protocol.room
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flush_planned = False
        self._corked = False
        self._write_paused = False
        # The reason for the connection's loss, for error texts.
        self._why = ""
        self._drained: asyncio.Future[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = NEVER
        # A dict, because its order is the same in every run of a simulation; a set's is not.
        self._tasks: dict[asyncio.Future[Answer], None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self.closed = False
        self.active = True
        self.remote: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_address}>"

    @property
    def remote_address(self) -> str:
        """The peer's address as "host:port"."""
        return joined(*self.remote)

    @property
    def why(self) -> str:
        """The reason for the connection's loss, as the end of a sentence; empty if it is unknown."""
        return self._why

    @property
    def gone(self) -> asyncio.Future[None]:
        """A future that is done when the transport has ended."""
        if self._gone is None:
            self._gone = self._loop.create_future()
            if self.closed and self._transport is None:
                self._gone.set_result(None)
        return self._gone

    # -- receiving -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        own = transport.get_extra_info("sockname") or ("", 0)
        # The zone of a link-local address ("fe80::1%eth0") is cut off: records have no place for it. Ten
        # thousand connections come from few hosts to few addresses of this server, so the texts are shared.
        self.remote = (sys.intern(str(peer[0]).partition("%")[0]), int(peer[1]))
        self.local = self._endpoint.shared((str(own[0]), int(own[1])))
        self._transport.set_write_buffer_limits(high=self._limits.high_water_bytes)

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        self._corked = True
        try:
            command = self._protocol.receive(nbytes)
            while command is not None:
                self.dispatch(command)
                if self.closed:
                    self._protocol.drop()
                    break
                command = self._protocol.next_command()
        except OtherProtocolError as error:
            if not self.hand_over(error.first, error.received):
                self._refuse(error.kind, str(error))
        except FrameError as error:
            self._refuse(error.kind, str(error))
        except Exception as error:
            self._note(
                logging.ERROR,
                f"receiving failed with {type(error).__name__}",
                "%s: receiving failed, disconnecting",
                self.remote_address,
                error=error,
            )
            self.abort()
        finally:
            self._corked = False
            if self._out:
                self._flush()

    def hand_over(self, first: bytes, received: bytes) -> bool:
        """Pass the transport to the protocol that begins with ``first``; False if this side serves none."""
        return False

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
        self._protocol.drop()
        self._out.clear()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._why = self._why or (f": {exc}" if exc else "")
        self._fail_pending(self._why)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _fail_pending(self, reason: str) -> None:
        self._wake_writers()
        waiting = self._protocol.abandoned()
        text = f"connection to {self.remote_address} lost while waiting for the answer{reason}"
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLostError(text, self.remote_address))

    # -- handling --------------------------------------------------------------------------------------

    def dispatch(self, command: Command) -> None:
        """Handle one received command: an answer goes to the request's waiter, a request to the handler."""
        if command.flag & FLAG_RESPONSE:
            future = self._protocol.answered(command)
            if future is None:
                log.debug("%s: late answer %d dropped", self.remote_address, command.opaque)
            elif not future.done():
                future.set_result(command)
            return
        handle = self._endpoint.handle
        if handle is None:
            self._answer(command, protocol.not_supported(command))
        else:
            self.handle_with(handle, command)

    def handle_with(self, handle: Handler, command: Command) -> None:
        """Call a handler with a request, and send the response that it returns or awaits."""
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
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = {}
        if len(tasks) >= self._limits.max_handling:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            self._answer(command, protocol.too_busy(command))
            return
        task = asyncio.ensure_future(awaitable)
        tasks[task] = None

        def done(finished: asyncio.Future[Answer]) -> None:
            tasks.pop(finished, None)
            if finished.cancelled():
                return
            error = finished.exception()
            self._answer(command, finished.result() if error is None else self._failure(command, error))

        task.add_done_callback(done)

    def _failure(self, command: Command, error: BaseException) -> Command:
        if isinstance(error, WireError):
            self._note(
                logging.WARNING,
                f"request refused with {type(error).__name__}",
                "%s: request %d refused: %s",
                self.remote_address,
                command.code,
                error,
            )
        elif not isinstance(error, RemotingError):
            self._note(
                logging.ERROR,
                f"request failed with {type(error).__name__}",
                "%s: request %d failed",
                self.remote_address,
                command.code,
                error=error,
            )
        return protocol.failed(command, error)

    def _answer(self, command: Command, answer: Command | None) -> None:
        if answer is not None and answer.code not in NO_FAILURES:
            self._endpoint.note_failure(command.code, answer.code)
        if answer is None or protocol.answer_to(command, answer) is None:
            return
        try:
            self.send(answer)
        except FrameError as error:
            failure = self._failure(command, error)
            failure.remark = (
                f"the answer cannot be sent: {error}; ask for less, for example one topic or group at a time"
            )
            protocol.answer_to(command, failure)
            self.send(failure)

    # -- sending ---------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Queue one command as it is. All commands queued in one iteration of the event loop form one write.

        A command for a closed connection is dropped.
        """
        if self.closed:
            return
        self._out.append(encode_frame(command))
        if not self._corked and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def write(self, data: bytes) -> None:
        """Write whole encoded frames at once; frames for a closed connection are dropped."""
        if self._out:
            self._flush()
        transport = self._transport
        if transport is None or self.closed:
            return
        self.active = True
        transport.write(data)
        if self._write_paused:
            self._check_queue(transport)

    def _check_queue(self, transport: asyncio.Transport) -> None:
        queued = transport.get_write_buffer_size()
        if queued > self._limits.max_queued_bytes:
            self._refuse("it does not read", f"{queued} bytes are queued for it")

    def write_parts(self, parts: list[Buffer]) -> None:
        """Write whole encoded frames from several buffers, which may change after the call."""
        if self._out:
            self._flush()
        transport = self._transport
        if transport is None or self.closed:
            return
        self.active = True
        rest = send_at_once(transport, parts)
        if rest:
            transport.write(rest)
        if self._write_paused:
            self._check_queue(transport)

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
        self._protocol.number(command)
        command.flag |= FLAG_ONEWAY
        self.send(command)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and return its answer, whatever its code.

        Raises:
            ConnectionLostError: the connection is closed, or ends before the answer.
            RequestTimeoutError: no answer within ``timeout_ms``.
        """
        future = self.begin(command, self._loop.time() + timeout_ms / 1000)
        opaque = command.opaque
        try:
            return await future
        finally:
            self._protocol.forget(opaque)

    def begin(self, command: Command, deadline: float) -> asyncio.Future[Command]:
        """Send a request; returns the future of its answer, which fails at ``deadline`` (event loop's time).

        The caller calls :meth:`forget` with the command's opaque when it stops waiting.
        """
        if self.closed:
            raise self._lost()
        opaque = self._protocol.number(command)
        future: asyncio.Future[Command] = self._loop.create_future()
        self.send(command)
        self._protocol.expect(opaque, future, deadline)
        if deadline < self._expiry_at:
            self._plan_expiry(deadline)
        return future

    def forget(self, opaque: int) -> None:
        """Drop the answer of this request when it comes."""
        self._protocol.forget(opaque)

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(
            f"connection to {self.remote_address} is closed{self._why}", self.remote_address
        )

    def _plan_expiry(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the overdue requests. One timer serves all requests, set to the earliest deadline."""
        self._expiry = None
        self._expiry_at = NEVER
        now = self._loop.time()
        for _, future in self._protocol.expired(now):
            if not future.done():
                text = f"no answer from {self.remote_address} in time"
                future.set_exception(RequestTimeoutError(text, self.remote_address))
        earliest = self._protocol.next_deadline()
        if earliest < NEVER:
            self._plan_expiry(max(earliest, now + TIMER_RESOLUTION_S))

    # -- back-pressure and end -------------------------------------------------------------------------

    @property
    def write_paused(self) -> bool:
        """Whether so many bytes are queued that a sender should wait in :meth:`drain`."""
        return self._write_paused

    async def drain(self) -> None:
        """Wait until the peer has read enough, or the connection is closed."""
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
        if self.pauses_reading and not self.resting:
            self._read_on()

    @property
    def resting(self) -> bool:
        """Whether the connection is not read for a reason other than a peer that does not read."""
        return False

    def _read_on(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _wake_writers(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def close(self) -> None:
        """Close the connection after the queued bytes have been sent."""
        if self._out:
            self._flush()
        self.closed = True
        if self._transport is not None:
            self._transport.close()
        self._fail_pending(" (closed on this side)")

    def abort(self) -> None:
        """Close the connection at once; queued bytes are dropped."""
        self.closed = True
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()
        self._fail_pending(" (closed on this side)")

    async def cancel_handling(self) -> None:
        """Cancel the requests that are being handled, and wait for their end."""
        # A handler that closes the connection must not wait for itself.
        tasks = [task for task in self._tasks or () if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def close_all(connections: Iterable[Connection]) -> None:
    """Cancel requests being handled, close the connections and wait for their end; forced after a second."""
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
