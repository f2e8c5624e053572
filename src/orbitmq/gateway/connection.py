"""One HTTP/2 connection of a gRPC client on the event loop: bytes, timers, and a task for each call."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, cast

from orbitmq.gateway import requests
from orbitmq.gateway.arrivals import Arrivals
from orbitmq.gateway.call import Begin, CallError, GrpcStatus, Handler, Open, Service
from orbitmq.gateway.deadlines import Deadlines
from orbitmq.gateway.events import Acknowledged, Arrived, Event, Reset, StreamOpened
from orbitmq.gateway.frames import CANCEL, ENHANCE_YOUR_CALM, NO_ERROR, Http2Error
from orbitmq.gateway.http2 import MAX_STREAMS, MAX_TURN_BYTES, Http2Connection
from orbitmq.gateway.plain_door import PlainDoor
from orbitmq.gateway.plain_reader import PlainCalls
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.requests import NotGrpcError, Request
from orbitmq.gateway.sends import host_of
from orbitmq.gateway.streams import StreamCall
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.tasks import Background
from orbitmq.store.log.append import pack_host
from orbitmq.transport.entrance import client_of
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import joined

# Sixteen bodies of 4 MiB under way. Each connection may hold this much that has arrived and was not read, and
# as much that waits to be sent.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
# The most calls of all connections: as many as may wait for messages (maxPopPollingSize), twice.
MAX_CALLS: Final = 200_000
HIGH_WATER_BYTES: Final = 256 * 1024
# Within this time a client has sent its preface and its settings.
PREFACE_SECONDS: Final = 10.0
# Heartbeats come every 10 s; Apache's proxy ends a connection after the same time.
IDLE_SECONDS: Final = 120.0
_STOPS = "the broker stops"
# A longer time is no limit: the event loop's timer cannot be set for years.
_LONGEST_TIMER_MS = 24 * 3600 * 1000


class Shared:
    """The state that all gRPC connections of one broker share.

    Attributes:
        receiving: the read buffer of all connections; each has used up its bytes before the next one reads.
        work: the calls under way that have a task.
        waiting: calls without a task, and answers under way, which a stopping broker still waits for.
        deadlines: the deadlines of all calls.
        stopping: whether the broker stops, so that no call begins.
        connections: the open connections.
        seats: where connections are counted.
    """

    def __init__(self, service: Service, log: LogLimiter, seats: Seats) -> None:
        self.service = service
        self.plain: PlainDoor | None = getattr(service, "plain", None)
        self.quotas: CallQuotas | None = getattr(service, "quotas", None)
        self.log = log
        self.seats = seats
        # Calls outlive connections: what they store is stored when their client is gone.
        self.work = Background("grpc", max_tasks=MAX_CALLS)
        self.stopping = False
        # All calls.
        self.running = 0
        self.waiting: dict[StreamCall | PlainCalls | Arrivals, None] = {}
        self.deadlines: Deadlines[StreamCall] = Deadlines(StreamCall.expire)
        self._quiet: asyncio.Future[None] | None = None
        self.receiving = memoryview(bytearray(64 * 1024))
        # Dicts keep an order; the order of a set would differ from run to run.
        self.connections: dict[GrpcConnection, None] = {}

    def done(self, call: StreamCall | PlainCalls | Arrivals) -> None:
        """Note that a call, the calls of a chunk, or the answers of a connection wait no more."""
        self.waiting.pop(call, None)
        if not self.waiting and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    async def quiet(self, limit_s: float) -> None:
        """Return when the present calls have ended and their answers arrived, or after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.work.quiet()
                if self.waiting:
                    self._quiet = asyncio.get_running_loop().create_future()
                    await self._quiet


class GrpcConnection(asyncio.BufferedProtocol):
    """The connection of one gRPC client.

    Attributes:
        peer: the address of the client, host:port.
        active: something came since this was last cleared.
        gone: done when the transport has ended.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._engine = Http2Connection()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, StreamCall] = {}
        self._writing: dict[StreamCall, None] = {}
        self._plain: dict[PlainCalls, None] = {}
        self._arrivals = Arrivals(self._ask_for_arrival, self._all_arrived)
        self._born = self._address = b""
        self._running = 0
        self._held = 0
        self._queued = 0
        self._paused = False
        self._rest: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._closing = False
        self._preface_timer: asyncio.TimerHandle | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.active = True
        self.peer = self._client = ""

    # -- bytes -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.peer = _address(transport.get_extra_info("peername"))
        if self._shared.stopping:
            self.abort()
        self._shared.connections[self] = None
        self._client, _ = client_of(transport)
        self._born, self._address = pack_host(host_of(self.peer)), self.peer.encode()
        self._shared.seats.take(self._client)
        self._preface_timer = self._loop.call_later(PREFACE_SECONDS, self._check_settled)
        if self._shared.quotas is not None:
            self.rest(self._shared.quotas.pause_of(self._client))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.receiving

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(self._shared.receiving[:nbytes]))

    def received(self, data: bytes) -> None:
        """Process received bytes."""
        if self._closing:
            return
        self.active = True
        try:
            for event in self._events(data):
                self._on(event)
        except Http2Error as error:
            flood = error.code == ENHANCE_YOUR_CALM
            self._refuse("a flood of frames" if flood else "damaged HTTP/2", error.kind, str(error))
            return
        self._flush()
        self._close_if_left()

    def _events(self, data: bytes) -> list[Event]:
        """The events of received bytes. Plain calls give none: their work is done now."""
        shared = self._shared
        limited = shared.quotas is not None and shared.quotas.limits(self._client)
        if shared.plain is None or shared.stopping or limited:
            self._engine.plain = None
            return self._engine.receive(data, self._loop.time())
        room = min(MAX_STREAMS - self._running, MAX_CALLS - shared.running)
        self._engine.plain = shared.plain.open(self._born, self._address, room)
        try:
            return self._engine.receive(data, self._loop.time())
        finally:
            for calls in shared.plain.close(self._answer_plain):
                self._wait_for_plain(calls)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        if self in self._shared.connections:
            del self._shared.connections[self]
            self._shared.seats.leave(self._client)
        self._lose_calls()
        for timer in (self._preface_timer, self._rest):
            if timer is not None:
                timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True
        # The client reads nothing: answers to further requests would pile up.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._read_on()
        self._push_all()

    def rest(self, seconds: float) -> None:
        """Read nothing for this time, or longer if set so before; calls that have come go on."""
        if not seconds or self._transport is None or self._transport.is_closing():
            return
        until = self._loop.time() + seconds
        if self._rest is not None:
            if self._rest.when() >= until:
                return
            self._rest.cancel()
        self._transport.pause_reading()
        self._rest = self._loop.call_at(until, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.active = True  # the client could not be heard: it was not idle
        self._read_on()

    def _read_on(self) -> None:
        """Read from the client again, unless there is another reason not to."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._paused and self._rest is None:
            transport.resume_reading()

    def _flush_soon(self) -> None:
        """Write all frames of one turn of the event loop at once."""
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        data = self._engine.take()
        if data and self._transport is not None:
            self._transport.write(data)

    # -- events ------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        if isinstance(event, Arrived):
            call = self._calls.get(event.stream)
            if call is not None:
                call.arrived(event.data, ended=event.ended)
                if call.listener is not None:
                    self._tell(call)
                elif call.direct is not None and call.handler is not None:
                    self._begin(call, call.direct, call.handler)
        elif isinstance(event, StreamOpened):
            self._opened(event)
        elif isinstance(event, Reset):
            self._end(event.stream)
            self._arrivals.reset(event.stream)
        elif isinstance(event, Acknowledged):
            self._arrivals.acknowledged(event.number)
        else:
            self._push_all()

    def _opened(self, event: StreamOpened) -> None:
        try:
            request = requests.read(event.headers)
        except NotGrpcError as error:
            self.note("a request that is no gRPC", "%s sends a request that is no gRPC: %s", self.peer, error)
            self._engine.headers(event.stream, requests.not_grpc(error), end=True)
            if not event.ended:
                self._engine.reset(event.stream, NO_ERROR)
            return
        call = StreamCall(self, event.stream, request, None)
        call.ended = event.ended
        self._calls[event.stream] = call
        service = self._shared.service
        try:
            call.timeout_ms = requests.timeout_of(request)
            self._admit(request)
        except CallError as error:
            self.end(call, error)
            return
        if call.timeout_ms is not None and call.timeout_ms <= _LONGEST_TIMER_MS:
            call.due = self._shared.deadlines.add(call, call.timeout_ms)
        self._count(call)
        if request.method in service.streams:
            self._listen(call, service.streams[request.method])
            return
        handler = service.handlers[request.method]
        call.direct = None if event.ended else getattr(handler, "begin", None)
        call.handler = handler
        if call.direct is None:
            self._start(call, handler)

    def _count(self, call: StreamCall) -> None:
        """Count a call among those under way."""
        call.counts = True
        self._running += 1
        self._shared.running += 1

    def _admit(self, request: Request) -> None:
        """Refuse a call that cannot begin.

        Raises:
            CallError: it is not served, or too many are under way.
        """
        service = self._shared.service
        if request.method not in service.handlers and request.method not in service.streams:
            self.note("a call that is not served", "%s calls %s: not served", self.peer, request.path[:256])
            raise requests.unimplemented(request)
        requests.check_encoding(request)
        if self._shared.stopping:
            raise CallError(GrpcStatus.UNAVAILABLE, _STOPS)
        if self._running >= MAX_STREAMS:
            raise _too_many(MAX_STREAMS, "this connection")
        if self._shared.running >= MAX_CALLS:
            raise _too_many(MAX_CALLS, "all clients together")

    def _start(self, call: StreamCall, handler: Handler) -> None:
        call.direct = call.handler = None
        call.counts = False
        self._shared.work.spawn(self._run(call, handler), call.method)

    def _listen(self, call: StreamCall, opens: Open) -> None:
        """Begin a call whose messages come one after the other, without a task."""
        self._shared.waiting[call] = None
        try:
            call.listener = opens(call)
            if call.ended and call.listener is not None:
                call.listener.ended()
        except CallError as error:
            self.end(call, error)
        except Exception as error:
            self._failed(call, error)

    def _tell(self, call: StreamCall) -> None:
        """Give its listener the messages of a call."""
        try:
            while call.listener is not None:
                message = call.next()
                if message is None:
                    if call.ended:
                        call.listener.ended()
                    return
                call.listener.came(message)
        except CallError as error:
            self.end(call, error)
        except Exception as error:
            self._failed(call, error)

    def _begin(self, call: StreamCall, begin: Begin, handler: Handler) -> None:
        """Go on with a call that may need no task, after a message or its end has come."""
        message = call.only()
        if message is None:
            if call.ready:
                self._start(call, handler)
            return
        call.handler = None
        self._shared.waiting[call] = None
        try:
            begun = begin(call, message, call.reply)
        except CallError as error:
            self.end(call, error)
        except Exception as error:
            self._failed(call, error)
        else:
            if begun:
                call.begun()
            else:
                self._shared.done(call)
                self._start(call, handler)

    def go_on(self, call: StreamCall, handler: Handler) -> None:
        self._shared.done(call)
        if not call.counts:
            # The call has ended; its handler is to know that.
            self._count(call)
        try:
            self._start(call, handler)
        except RuntimeError:
            self._running -= 1
            self._shared.running -= 1
            self.end(call, CallError(GrpcStatus.UNAVAILABLE, _STOPS))

    def answer(self, call: StreamCall, data: bytes) -> None:
        if self._calls.get(call.stream) is not call:
            return
        if not self._paused and self._engine.answer(call.stream, requests.ANSWER, data, requests.OK):
            self._end(call.stream)
            self._flush_soon()
            return
        # The client's window is small, or it reads slowly.
        self.go_on(call, lambda call: call.write_framed(data))

    def refuse_waiting(self) -> None:
        """End the calls that wait for a message of their client."""
        for call in list(self._calls.values()):
            if call.handler is not None or call.listener is not None:
                self.end(call, CallError(GrpcStatus.UNAVAILABLE, _STOPS))

    async def _run(self, call: StreamCall, handler: Handler) -> None:
        try:
            await handler(call)
        except CallError as error:
            self.end(call, error)
        except asyncio.CancelledError:
            self._finish(call, GrpcStatus.UNAVAILABLE, _STOPS)
            raise
        except Exception as error:
            self._failed(call, error)
        else:
            self._finish(call, GrpcStatus.OK, "")
        finally:
            self._running -= 1
            self._shared.running -= 1
            if call.arrival is not None:
                call.arrival(False)

    def _failed(self, call: StreamCall, error: Exception) -> None:
        kind = f"{call.method} failed with {type(error).__name__}"
        self._shared.log.write(logging.ERROR, kind, "%s: %s failed", self.peer, call.method, error=error)
        self._finish(call, GrpcStatus.INTERNAL, f"{type(error).__name__}: {error}")

    def end(self, call: StreamCall, error: CallError | None) -> None:
        if error is None:
            self._finish(call, GrpcStatus.OK, "")
        else:
            self._finish(call, error.status, error.message)

    def _finish(self, call: StreamCall, status: GrpcStatus, message: str) -> None:
        """End a call towards its client, unless that is done already."""
        if self._calls.get(call.stream) is not call:
            return
        if call.out:
            # Trailers would end the message half-way.
            self._engine.reset(call.stream, CANCEL)
        else:
            head = b"" if call.answered else requests.ANSWER
            self._engine.headers(call.stream, head + requests.trailers(status, message), end=True)
            if not call.ended:
                self._engine.reset(call.stream, NO_ERROR)
            if call.arrival is not None and status is GrpcStatus.OK:
                self._shared.waiting[self._arrivals] = None
                self._arrivals.add(call.stream, call.arrival)
                call.arrival = None
        self._end(call.stream)
        self._flush_soon()

    def _ask_for_arrival(self, number: int) -> None:
        self._engine.ping(number)
        self._flush_soon()

    def _all_arrived(self) -> None:
        """The client has all answers that it was to acknowledge."""
        self._shared.done(self._arrivals)
        if self._engine.leaving:
            self._loop.call_soon(self._close_if_left)

    def _end(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            call.direct = call.handler = None
            if call.counts:
                call.counts = False
                self._running -= 1
                self._shared.running -= 1
                self._shared.done(call)
            self._writing.pop(call, None)
            call.lost()
            if not self._calls and not self._plain and self._engine.leaving:
                self._loop.call_soon(self._close_if_left)

    def _lose_calls(self) -> None:
        for stream in list(self._calls):
            self._end(stream)
        for calls in list(self._plain):
            self._forget_plain(calls)
        self._arrivals.end()

    # -- plain calls ------------------------------------------------------------------------------------

    def _wait_for_plain(self, calls: PlainCalls) -> None:
        """Count calls whose work is not safe yet."""
        self._plain[calls] = None
        self._shared.waiting[calls] = None
        self._running += len(calls.streams)
        self._shared.running += len(calls.streams)
        limits = [limit for limit in calls.timeouts_ms if limit]
        if limits:
            first = min(limits)
            calls.timer = self._loop.call_later(first / 1000, self._expire_plain, calls, first)

    def _expire_plain(self, calls: PlainCalls, passed_ms: int) -> None:
        """The time of some of these calls is over."""
        for stream, limit in zip(calls.streams, calls.timeouts_ms, strict=True):
            if 0 < limit <= passed_ms:
                end = requests.trailers(GrpcStatus.DEADLINE_EXCEEDED, f"not done within {limit} ms")
                self._engine.headers(stream, requests.ANSWER + end, end=True)
        self._flush_soon()
        later = [limit for limit in calls.timeouts_ms if limit > passed_ms]
        calls.timer = None
        if later:
            wait_s = (min(later) - passed_ms) / 1000
            calls.timer = self._loop.call_later(wait_s, self._expire_plain, calls, min(later))

    def _forget_plain(self, calls: PlainCalls) -> bool:
        """Count these calls no more; False: they were not counted."""
        if calls not in self._plain:
            return False
        del self._plain[calls]
        self._running -= len(calls.streams)
        self._shared.running -= len(calls.streams)
        self._shared.done(calls)
        if calls.timer is not None:
            calls.timer.cancel()
        return True

    def _answer_plain(self, calls: PlainCalls) -> None:
        """The work of these calls is safe, or it is known why it is not."""
        if not self._forget_plain(calls) or self._closing:
            return
        left = self._engine.answer_all(calls.streams, calls.answers, requests.ANSWER, requests.OK)
        for place in left:
            self._answer_slowly(calls.streams[place], calls.answers[place])
        self._flush_soon()
        if self._engine.leaving:
            self._loop.call_soon(self._close_if_left)

    def _answer_slowly(self, stream: int, data: bytes) -> None:
        """Answer a call as its window grows."""
        call = StreamCall(self, stream, Request("", "a plain call", {}), None)
        call.ended = True
        self._calls[stream] = call
        self._count(call)
        self.go_on(call, lambda call: call.write_framed(data))

    # -- for calls ---------------------------------------------------------------------------------------

    def holds(self, more_bytes: int) -> bool:
        if more_bytes > 0 and self._held + more_bytes > MAX_HELD_BYTES:
            return False
        self._held += more_bytes
        return True

    def queues(self, more_bytes: int) -> bool:
        if more_bytes > 0 and self._queued + more_bytes > MAX_HELD_BYTES:
            return False
        self._queued += more_bytes
        return True

    def begin_answer(self, call: StreamCall) -> None:
        self._engine.headers(call.stream, requests.ANSWER)

    def push(self, call: StreamCall) -> None:
        while call.out and not self._paused:
            sent = self._engine.send(call.stream, call.out)
            call.out = call.out[sent:]
            if not sent:
                break
            if sent == MAX_TURN_BYTES:
                # The transport calls pause_writing when its buffer is full.
                self._flush()
        self._flush_soon()
        if call.out:
            self._writing[call] = None
        else:
            self._writing.pop(call, None)
            call.sent()

    def _push_all(self) -> None:
        for call in list(self._writing):
            self.push(call)

    # -- end ---------------------------------------------------------------------------------------------

    def note(self, kind: str, text: str, *args: object) -> None:
        """Write a log line, at most one a second of each kind."""
        self._shared.log.write(logging.WARNING, kind, text, *args)

    def _refuse(self, kind: str, cause: str, text: str) -> None:
        """Close the connection. Causes are many: their log lines share a kind, and fill no log."""
        self.note(kind, "disconnecting the gRPC client %s: %s: %s", self.peer, cause, text)
        self._close()

    def _check_settled(self) -> None:
        self._preface_timer = None
        if self._rest is not None:
            self._preface_timer = self._loop.call_later(PREFACE_SECONDS, self._check_settled)
        elif not self._engine.settled and not self._closing:
            text = f"no whole HTTP/2 preface within {PREFACE_SECONDS:g} s"
            self._refuse("HTTP/2 stopped half-way", "HTTP/2 stopped half-way", text)

    def _close_if_left(self) -> None:
        if self._engine.leaving and not (self._calls or self._plain or self._arrivals or self._closing):
            self._close()

    def close_idle(self) -> None:
        """Close the connection when nothing came since the last look."""
        if not self.active:
            self.close()
        self.active = False

    def announce_end(self) -> None:
        """Send the GOAWAY after which clients make new calls elsewhere; calls under way go on."""
        if not self._closing:
            self._engine.announce_end()
            self._flush()

    def close(self) -> None:
        """Send the last GOAWAY, and close when everything is written."""
        if not self._closing:
            self._engine.close()
            self._close()

    def _close(self) -> None:
        self._flush()
        self._closing = True
        self._lose_calls()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


def _too_many(limit: int, whose: str) -> CallError:
    text = f"{limit} calls of {whose} are under way; no more are taken at a time"
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, text)


def _address(name: tuple[str, int] | None) -> str:
    return joined(str(name[0]).partition("%")[0], int(name[1])) if name else ""
