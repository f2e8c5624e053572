"""The :class:`~orbitmq.gateway.call.Call` on one stream of an HTTP/2 connection.

A call that waits takes little memory: its queue and its reader exist only while they hold messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from orbitmq.gateway.arrivals import Arrival
from orbitmq.gateway.call import NO_HEADERS, Begin, CallError, CallListener, GrpcStatus, Handler
from orbitmq.gateway.framing import MessageReader, prefixed, unpacked
from orbitmq.gateway.requests import Request
from orbitmq.runtime.client_names import CertificateName

# The memory of a message's Python object beside its bytes.
_MESSAGE_BYTES = 100
_NOTHING: Final = memoryview(b"")


class Carrier(Protocol):
    """The part of a connection's calls that a single call uses."""

    @property
    def peer(self) -> str:
        """The client's address, host:port."""
        ...

    @property
    def certificate(self) -> CertificateName:
        """The user that the client's certificate names."""
        ...

    def holds(self, more_bytes: int) -> bool:
        """Count received bytes that are not read yet; False, without counting them, above the limit."""
        ...

    def begin_answer(self, call: StreamCall) -> None:
        """Send the headers of the answer."""
        ...

    def push(self, call: StreamCall) -> None:
        """Send as much of the call's data as the windows allow; the rest follows when they grow."""
        ...

    def queues(self, more_bytes: int) -> bool:
        """As :meth:`holds`, for bytes that are not sent yet."""
        ...

    def answer(self, call: StreamCall, data: bytes) -> None:
        """Send framed messages as the whole answer of a call without a task, and end it."""
        ...

    def go_on(self, call: StreamCall, handler: Handler) -> None:
        """Give a call that has no task one, which runs this handler."""
        ...

    def end(self, call: StreamCall, error: CallError | None) -> None:
        """End a call without a task."""
        ...

    def rest(self, seconds: float) -> None:
        """Read nothing from the client for this time."""
        ...


class StreamCall:
    """One call. Its attributes are those of :class:`~orbitmq.gateway.call.Call`, and:

    Attributes:
        stream: its number.
        ended: whether the client has ended its side of the stream.
        answered: whether the headers of the answer have been sent.
        counts: whether the call counts as under way; False if its task does instead, or it was refused.
        waits: whether a stopping broker waits for the call, because it has no task.
        direct: does the call without a task when its only message has come; None if that is not awaited.
        handler: does the call with a task if ``direct`` does not.
        listener: gets the call's messages; None if the call has a task, or only one message.
        due: the calls in the slot of the call's deadline; None without a deadline.
        arrival: called when the client has the whole answer; None if the arrival is not watched.
        out: the part of the current message that is not sent yet.
    """

    __slots__ = (
        "_carrier",
        "_failure",
        "_held",
        "_put",
        "_queue",
        "_reader",
        "_wake",
        "_when_gone",
        "_written",
        "answered",
        "arrival",
        "counts",
        "direct",
        "due",
        "ended",
        "gone",
        "handler",
        "listener",
        "metadata",
        "method",
        "out",
        "stream",
        "timeout_ms",
        "waits",
    )

    def __init__(self, carrier: Carrier, stream: int, request: Request, timeout_ms: int | None) -> None:
        self._carrier = carrier
        # The reader and the queue are None while they are empty, as they are in most waiting calls.
        self._reader: MessageReader | None = None
        self._queue: deque[tuple[bool, bytes]] | None = None
        self._failure: CallError | None = None
        self._held = 0
        # The size of the message given to :meth:`put`, until it is sent; else 0.
        self._put = 0
        self._wake: asyncio.Future[None] | None = None
        self._written: asyncio.Future[None] | None = None
        self.stream = stream
        self.method = request.method
        self.metadata: Mapping[str, str] = request.metadata
        self.timeout_ms = timeout_ms
        self.gone = False
        self._when_gone: Callable[[], object] | None = None
        self.due: dict[StreamCall, None] | None = None
        self.ended = False
        self.answered = False
        self.counts = self.waits = False
        self.direct: Begin | None = None
        self.handler: Handler | None = None
        self.listener: CallListener | None = None
        self.arrival: Arrival | None = None
        self.out = _NOTHING

    @property
    def peer(self) -> str:
        return self._carrier.peer

    @property
    def certificate(self) -> CertificateName:
        return self._carrier.certificate

    # -- from the connection -----------------------------------------------------------------------------

    def arrived(self, data: bytes, *, ended: bool) -> None:
        """Take received data of the stream; data of a failed call is dropped."""
        self.ended = self.ended or ended
        if self._failure is None and not self.gone:
            try:
                self._take(data, ended=ended)
            except CallError as error:
                self.drop()
                self._failure = error
        self._awake()

    def _take(self, data: bytes, *, ended: bool) -> None:
        if not self._hold(len(data)):
            raise _too_much()
        reader = self._reader or MessageReader()
        before = reader.held_bytes + len(data)
        found = reader.feed(data)
        self._reader = reader if reader.held_bytes else None
        kept = reader.held_bytes + sum(_weight(message) for _, message in found)
        # Empty messages, of 5 bytes each in the stream, take more memory than that.
        if not self._hold(kept - before):
            raise _too_much()
        if found:
            self._queue = self._queue or deque()
            self._queue.extend(found)
        if ended:
            reader.end()

    def lost(self) -> None:
        """Make reads and writes of the call fail: the stream has ended."""
        self.gone = True
        function, self._when_gone = self._when_gone, None
        if function is not None:
            function()
        self.drop()
        if self.due is not None:
            self.due.pop(self, None)
            if not self.due:
                self.due.clear()  # frees the emptied dict's memory, which would last until the slot is due
            self.due = None
        self.out = _NOTHING
        listener, self.listener = self.listener, None
        self._awake()
        self.sent()
        if listener is not None:
            listener.lost()

    def expire(self) -> None:
        """End the call with DEADLINE_EXCEEDED."""
        text = f"not done within {self.timeout_ms} ms"
        self._carrier.end(self, CallError(GrpcStatus.DEADLINE_EXCEEDED, text))

    def _hold(self, more_bytes: int) -> bool:
        if not self._carrier.holds(more_bytes):
            return False
        self._held += more_bytes
        return True

    def only(self) -> bytes | None:
        """The one message of a complete request; None if more may come, or it is compressed or not alone."""
        if not self.ended or self._failure is not None or self._queue is None or len(self._queue) != 1:
            return None
        packed, message = self._queue[0]
        return None if packed else message

    @property
    def ready(self) -> bool:
        """Whether :meth:`read` returns or raises at once."""
        return bool(self._queue) or self._failure is not None or self.ended

    def reply(self, message: bytes) -> None:
        """Answer a call without a task, and end it."""
        self._carrier.answer(self, prefixed(message))

    def begun(self) -> None:
        """Forget the request's message and headers: the call goes on without a task."""
        self.drop()
        self.metadata = NO_HEADERS

    def drop(self) -> None:
        """Forget the received messages."""
        self._hold(-self._held)
        self._reader = None
        self._queue = None

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def sent(self) -> None:
        """Handle the end of the current message: it is sent, or its stream has ended."""
        self.out = _NOTHING
        if self._written is not None and not self._written.done():
            self._written.set_result(None)
        if self._put:
            self._carrier.queues(-self._put)
            self._put = 0
            if self.listener is not None:
                self.listener.wrote()

    # -- for the handler ---------------------------------------------------------------------------------

    async def read(self) -> bytes | None:
        while True:
            message = self.next()
            if message is not None:
                return message
            if self.gone:
                raise self._cancelled()
            if self.ended:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def next(self) -> bytes | None:
        """The next received message; None if there is none yet.

        Raises:
            CallError: the received bytes are not a message.
        """
        if self._queue:
            packed, message = self._queue.popleft()
            self._queue = self._queue or None
            self._hold(-_weight(message))
            return unpacked(message) if packed else message
        if self._failure is not None:
            raise self._failure
        return None

    async def write(self, message: bytes) -> None:
        await self.write_framed(prefixed(message))

    async def write_framed(self, data: bytes) -> None:
        while self.out and not self.gone:
            await self._room()
        if self.gone:
            raise self._cancelled()
        self._begin_answer()
        if not self._carrier.queues(len(data)):
            raise _unread()
        try:
            self.out = memoryview(data)
            self._carrier.push(self)
            while self.out:
                await self._room()
        finally:
            self._carrier.queues(-len(data))
        if self.gone:
            raise self._cancelled()

    def _begin_answer(self) -> None:
        if not self.answered:
            self.answered = True
            self._carrier.begin_answer(self)

    def put(self, message: bytes) -> None:
        data = prefixed(message)
        self._begin_answer()
        if not self._carrier.queues(len(data)):
            raise _unread()
        self._put = len(data)
        self.out = memoryview(data)
        self._carrier.push(self)

    def end(self, error: CallError | None) -> None:
        self._carrier.end(self, error)

    def reply_framed(self, data: bytes) -> None:
        self._carrier.answer(self, data)

    def go_on(self, handler: Handler) -> None:
        self._carrier.go_on(self, handler)

    def rest(self, seconds: float) -> None:
        self._carrier.rest(seconds)

    def keep(self, more_bytes: int) -> bool:
        return self._carrier.queues(more_bytes)

    def watch(self, arrival: Arrival) -> None:
        self.arrival = arrival

    def when_gone(self, function: Callable[[], object] | None) -> None:
        if self.gone and function is not None:
            function()
        else:
            self._when_gone = function

    async def _room(self) -> None:
        if self._written is None or self._written.done():
            self._written = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._written)

    def _cancelled(self) -> CallError:
        return CallError(GrpcStatus.CANCELLED, f"the client of {self.method} is gone")


def _weight(message: bytes) -> int:
    return len(message) + _MESSAGE_BYTES


def _too_much() -> CallError:
    text = "the calls of this connection have sent more than can be held; send fewer at a time"
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, text)


def _unread() -> CallError:
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, "the client does not read what its calls are answered")
