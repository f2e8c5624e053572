"""The calls of one HTTP/2 connection: each begins, is answered and ends here, with a task or without one.

The connection passes the events of its streams to :class:`Calls`, which writes frames to the connection's
engine. It counts the memory that the calls hold, and refuses calls above the limits.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from orbitmq.gateway import requests
from orbitmq.gateway.arrivals import Arrivals
from orbitmq.gateway.call import Begin, CallError, GrpcStatus, Handler, Open
from orbitmq.gateway.events import Acknowledged, Arrived, Event, Reset, StreamOpened
from orbitmq.gateway.frames import CANCEL, NO_ERROR
from orbitmq.gateway.http2 import MAX_STREAMS, MAX_TURN_BYTES, Http2Connection
from orbitmq.gateway.plain_reader import PlainCalls
from orbitmq.gateway.requests import NotGrpcError, Request
from orbitmq.gateway.shared import MAX_CALLS, Shared
from orbitmq.gateway.streams import StreamCall
from orbitmq.runtime.client_names import CertificateName

# A connection holds at most this many received bytes for its calls, and as many unsent bytes for its client:
# each as much as sixteen bodies of 4 MiB.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_STOPS = "the broker stops"
# A call with a longer timeout has no deadline here, since the event loop's timer cannot be set for years.
_LONGEST_TIMER_MS = 24 * 3600 * 1000


class CallLine(Protocol):
    """The part of a connection that its calls use."""

    peer: str
    certificate: CertificateName
    paused: bool

    def note(self, kind: str, text: str, *args: object) -> None:
        """Write a log line, at most one a second of each kind."""
        ...

    def flush(self) -> None:
        """Write all frames that the engine holds."""
        ...

    def flush_soon(self) -> None:
        """Write the engine's frames once at the end of this turn of the event loop."""
        ...

    def rest(self, seconds: float) -> None:
        """Read nothing from the client for this time."""
        ...

    def idle(self) -> None:
        """Called when the last call under way has ended."""
        ...


class Calls:
    """The calls of one connection.

    Attributes:
        running: the number of calls under way.
    """

    def __init__(self, line: CallLine, engine: Http2Connection, shared: Shared) -> None:
        self._line = line
        self._engine = engine
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, StreamCall] = {}
        self._writing: dict[StreamCall, None] = {}
        self._plain: dict[PlainCalls, None] = {}
        self._arrivals = Arrivals(self._ask_for_arrival, self._all_arrived)
        self._held = 0
        self._queued = 0
        self.running = 0

    @property
    def any(self) -> bool:
        """Whether a call is under way, or an answer is not acknowledged by the client yet."""
        return bool(self._calls or self._plain or self._arrivals)

    @property
    def peer(self) -> str:
        return self._line.peer

    @property
    def certificate(self) -> CertificateName:
        return self._line.certificate

    # -- events ------------------------------------------------------------------------------------------

    def on(self, event: Event) -> None:
        """Handle an event of a stream."""
        if isinstance(event, Arrived):
            call = self._calls.get(event.stream)
            if call is not None:
                call.arrived(event.data, ended=event.ended)
                if call.listener is not None:
                    self._pass_messages(call)
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
            self.push_all()

    def _opened(self, event: StreamOpened) -> None:
        try:
            request = requests.read(event.headers)
        except NotGrpcError as error:
            kind = "a request that is no gRPC"
            self._line.note(kind, "%s sends a request that is no gRPC: %s", self.peer, error)
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

    def _wait_for(self, call: StreamCall) -> None:
        call.waits = True
        self._shared.waiting += 1

    def _wait_no_more(self, call: StreamCall) -> None:
        if call.waits:
            call.waits = False
            self._shared.done()

    def _count(self, call: StreamCall) -> None:
        """Count a call among those under way."""
        call.counts = True
        self.running += 1
        self._shared.running += 1

    def _admit(self, request: Request) -> None:
        """Check that a call may begin.

        Raises:
            CallError: the call is not served, the broker stops, or too many calls are under way.
        """
        service = self._shared.service
        if request.method not in service.handlers and request.method not in service.streams:
            self._line.note(
                "a call that is not served", "%s calls %s: not served", self.peer, request.path[:256]
            )
            raise requests.unimplemented(request)
        requests.check_encoding(request)
        if self._shared.stopping:
            raise CallError(GrpcStatus.UNAVAILABLE, _STOPS)
        if self.running >= MAX_STREAMS:
            raise _too_many(MAX_STREAMS, "this connection")
        if self._shared.running >= MAX_CALLS:
            raise _too_many(MAX_CALLS, "all clients together")

    def _start(self, call: StreamCall, handler: Handler) -> None:
        call.direct = call.handler = None
        call.counts = False
        self._shared.work.spawn(self._run(call, handler), call.method)

    def _listen(self, call: StreamCall, opens: Open) -> None:
        """Begin a call that has a listener for its messages instead of a task."""
        self._wait_for(call)
        try:
            call.listener = opens(call)
            if call.ended and call.listener is not None:
                call.listener.ended()
        except CallError as error:
            self.end(call, error)
        except Exception as error:
            self._failed(call, error)

    def _pass_messages(self, call: StreamCall) -> None:
        """Pass the received messages of a call to its listener."""
        try:
            while call.listener is not None:
                message = call.next()
                if message is None:
                    if call.ended:
                        call.listener.ended()
                    return
                call.listener.received(message)
        except CallError as error:
            self.end(call, error)
        except Exception as error:
            self._failed(call, error)

    def _begin(self, call: StreamCall, begin: Begin, handler: Handler) -> None:
        """Try to answer a call without a task, after a message of it or its end has come."""
        message = call.only()
        if message is None:
            if call.ready:
                self._start(call, handler)
            return
        call.direct = call.handler = None
        self._wait_for(call)
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
                self._wait_no_more(call)
                self._start(call, handler)

    def go_on(self, call: StreamCall, handler: Handler) -> None:
        self._wait_no_more(call)
        if not call.counts:
            # The call has ended already. Its handler sees that in ``gone``; the call counts while it runs.
            self._count(call)
        try:
            self._start(call, handler)
        except RuntimeError:
            self.running -= 1
            self._shared.running -= 1
            self.end(call, CallError(GrpcStatus.UNAVAILABLE, _STOPS))

    def answer(self, call: StreamCall, data: bytes) -> None:
        if self._calls.get(call.stream) is not call:
            return
        if not self._line.paused and self._engine.answer(call.stream, requests.ANSWER, data, requests.OK):
            self._end(call.stream)
            self._line.flush_soon()
            return
        # The client's flow-control window is too small for the answer: a task writes the rest.
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
            self.running -= 1
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
        """Send the end of a call to its client, unless the call has ended already."""
        if self._calls.get(call.stream) is not call:
            return
        if call.out:
            # Trailers would make a message that is half sent look whole.
            self._engine.reset(call.stream, CANCEL)
        else:
            head = b"" if call.answered else requests.ANSWER
            self._engine.headers(call.stream, head + requests.trailers(status, message), end=True)
            if not call.ended:
                self._engine.reset(call.stream, NO_ERROR)
            if call.arrival is not None and status is GrpcStatus.OK:
                if not self._arrivals:
                    self._shared.waiting += 1
                self._arrivals.add(call.stream, call.arrival)
                call.arrival = None
        self._end(call.stream)
        self._line.flush_soon()

    def _ask_for_arrival(self, number: int) -> None:
        self._engine.ping(number)
        self._line.flush_soon()

    def _all_arrived(self) -> None:
        """Go on after all answers of this connection are acknowledged or count as lost."""
        self._shared.done()
        self._line.idle()

    def _end(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            call.direct = call.handler = None
            if call.counts:
                call.counts = False
                self.running -= 1
                self._shared.running -= 1
                self._wait_no_more(call)
            self._writing.pop(call, None)
            call.lost()
            if not self._calls and not self._plain:
                self._line.idle()

    def lose(self) -> None:
        """Drop all calls: the connection has ended."""
        for stream in list(self._calls):
            self._end(stream)
        for calls in list(self._plain):
            self._forget_plain(calls)
        self._arrivals.end()

    # -- plain calls ------------------------------------------------------------------------------------

    def wait_for_plain(self, calls: PlainCalls) -> None:
        """Count plain calls as waiting until their work is flushed to the disk, or has failed."""
        self._plain[calls] = None
        self._shared.waiting += 1
        self.running += len(calls.streams)
        self._shared.running += len(calls.streams)
        limits = [limit for limit in calls.timeouts_ms if limit]
        if limits:
            first = min(limits)
            calls.timer = self._loop.call_later(first / 1000, self._expire_plain, calls, first)

    def _expire_plain(self, calls: PlainCalls, passed_ms: int) -> None:
        """End those of these plain calls whose deadline has passed."""
        for stream, limit in zip(calls.streams, calls.timeouts_ms, strict=True):
            if 0 < limit <= passed_ms:
                end = requests.trailers(GrpcStatus.DEADLINE_EXCEEDED, f"not done within {limit} ms")
                self._engine.headers(stream, requests.ANSWER + end, end=True)
        self._line.flush_soon()
        later = [limit for limit in calls.timeouts_ms if limit > passed_ms]
        calls.timer = None
        if later:
            wait_s = (min(later) - passed_ms) / 1000
            calls.timer = self._loop.call_later(wait_s, self._expire_plain, calls, min(later))

    def _forget_plain(self, calls: PlainCalls) -> bool:
        """Stop counting these plain calls. Returns False if they were not counted."""
        if calls not in self._plain:
            return False
        del self._plain[calls]
        self.running -= len(calls.streams)
        self._shared.running -= len(calls.streams)
        self._shared.done()
        if calls.timer is not None:
            calls.timer.cancel()
        return True

    def answer_plain(self, calls: PlainCalls) -> None:
        """Answer plain calls whose work is flushed to the disk, or has failed."""
        if not self._forget_plain(calls):
            return
        left = self._engine.answer_all(calls.streams, calls.answers, requests.ANSWER, requests.OK)
        for place in left:
            self._answer_slowly(calls.streams[place], calls.answers[place])
        self._line.flush_soon()
        self._line.idle()

    def _answer_slowly(self, stream: int, data: bytes) -> None:
        """Answer a call by a task, which writes as the stream's window grows."""
        call = StreamCall(self, stream, Request("", "a plain call", {}), None)
        call.ended = True
        self._calls[stream] = call
        self._count(call)
        self.go_on(call, lambda call: call.write_framed(data))

    def rest(self, seconds: float) -> None:
        self._line.rest(seconds)

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
        while call.out and not self._line.paused:
            sent = self._engine.send(call.stream, call.out)
            call.out = call.out[sent:]
            if not sent:
                break
            if sent == MAX_TURN_BYTES:
                # Flushed here, so that the transport calls pause_writing as soon as its buffer is full.
                self._line.flush()
        self._line.flush_soon()
        if call.out:
            self._writing[call] = None
        else:
            self._writing.pop(call, None)
            call.sent()

    def push_all(self) -> None:
        """Send more of the answers that wait for flow-control windows."""
        for call in list(self._writing):
            self.push(call)


def _too_many(limit: int, whose: str) -> CallError:
    text = f"{limit} calls of {whose} are under way; no more are taken at a time"
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, text)
