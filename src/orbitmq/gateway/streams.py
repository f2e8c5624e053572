"""The :class:`~orbitmq.gateway.call.Call` on one stream of an HTTP/2 connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from orbitmq.gateway.arrivals import Arrival
from orbitmq.gateway.call import Begin, CallError, GrpcStatus, Handler, Signal
from orbitmq.gateway.framing import MessageReader, prefixed, unpacked
from orbitmq.gateway.requests import Request

# What Python needs for a message beside its bytes.
_MESSAGE_BYTES = 100


class Carrier(Protocol):
    """The connection as its calls see it."""

    peer: str
    local: str

    def holds(self, more_bytes: int) -> bool:
        """Count received bytes that are not read yet; False, and not counted, if they exceed the limit."""
        ...

    def begin_answer(self, call: StreamCall) -> None:
        """Send the headers of the answer."""
        ...

    def push(self, call: StreamCall) -> None:
        """Send as much of the call's data as the windows take; the rest follows when they grow."""
        ...

    def queues(self, more_bytes: int) -> bool:
        """As :meth:`holds`, for bytes that wait to go out."""
        ...

    def answer(self, call: StreamCall, message: bytes) -> None:
        """Answer a call without a task, and end it."""
        ...

    def rest(self, seconds: float) -> None:
        """Read nothing for this time."""
        ...


class StreamCall:
    """One call. Its attributes are those of :class:`~orbitmq.gateway.call.Call`, and:

    Attributes:
        stream: its number.
        ended: nothing more comes from the client.
        answered: the headers of the answer are out.
        direct: does the call without a task; None: it has a task, or will get none any more.
        handler: starts it with a task while it has not begun.
        arrival: is to know of the answer's arrival, until that is sent; None: nothing is.
        out: what is left of the message that goes out.
    """

    __slots__ = (
        "_carrier",
        "_failure",
        "_held",
        "_queue",
        "_reader",
        "_wake",
        "_written",
        "answered",
        "arrival",
        "authority",
        "direct",
        "ended",
        "gone",
        "handler",
        "local",
        "metadata",
        "method",
        "out",
        "peer",
        "stream",
        "timeout_ms",
        "timer",
    )

    def __init__(self, carrier: Carrier, stream: int, request: Request, timeout_ms: int | None) -> None:
        self._carrier = carrier
        self._reader = MessageReader()
        # None while it is empty: many calls wait with nothing in it.
        self._queue: deque[tuple[bool, bytes]] | None = None
        self._failure: CallError | None = None
        self._held = 0
        self._wake: asyncio.Future[None] | None = None
        self._written: asyncio.Future[None] | None = None
        self.stream = stream
        self.method = request.method
        self.metadata: Mapping[str, str] = request.metadata
        self.authority = request.authority
        self.peer = carrier.peer
        self.local = carrier.local
        self.timeout_ms = timeout_ms
        self.gone = Signal()
        self.timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.answered = False
        self.direct: Begin | None = None
        self.handler: Handler | None = None
        self.arrival: Arrival | None = None
        self.out = memoryview(b"")

    # -- from the connection -----------------------------------------------------------------------------

    def arrived(self, data: bytes, *, ended: bool) -> None:
        """Data of the stream; dropped when the call has failed."""
        self.ended = self.ended or ended
        if self._failure is None and not self.gone.is_set():
            try:
                self._take(data, ended=ended)
            except CallError as error:
                self.drop()
                self._failure = error
        self._awake()

    def _take(self, data: bytes, *, ended: bool) -> None:
        if not self._hold(len(data)):
            raise _too_much()
        before = self._reader.held_bytes + len(data)
        found = self._reader.feed(data)
        kept = self._reader.held_bytes + sum(_weight(message) for _, message in found)
        # Prefixes of 5 bytes with nothing behind them become heavier than they were.
        if not self._hold(kept - before):
            raise _too_much()
        if found:
            self._queue = self._queue or deque()
            self._queue.extend(found)
        if ended:
            self._reader.end()

    def lost(self) -> None:
        """The stream has ended: reads and writes of the call fail from now on."""
        self.gone.set()
        self.drop()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.out = memoryview(b"")
        self._awake()
        self.sent()

    def _hold(self, more_bytes: int) -> bool:
        if not self._carrier.holds(more_bytes):
            return False
        self._held += more_bytes
        return True

    def only(self) -> bytes | None:
        """The only message of a request that has ended; None: it has not ended, or has several messages."""
        if not self.ended or self._failure is not None or self._queue is None or len(self._queue) != 1:
            return None
        packed, message = self._queue[0]
        return None if packed else message

    @property
    def ready(self) -> bool:
        """Whether :meth:`read` has an answer."""
        return bool(self._queue) or self._failure is not None or self.ended

    def reply(self, message: bytes) -> None:
        """Answer a call without a task, and end it."""
        self._carrier.answer(self, message)

    def drop(self) -> None:
        """Forget what has come."""
        self._hold(-self._held)
        self._reader.drop()
        self._queue = None

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def sent(self) -> None:
        """The message is written, or its stream has ended."""
        if self._written is not None and not self._written.done():
            self._written.set_result(None)

    # -- for the handler ---------------------------------------------------------------------------------

    async def read(self) -> bytes | None:
        while True:
            if self._queue:
                packed, message = self._queue.popleft()
                self._queue = self._queue or None
                self._hold(-_weight(message))
                return unpacked(message) if packed else message
            if self._failure is not None:
                raise self._failure
            if self.gone.is_set():
                raise self._cancelled()
            if self.ended:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    async def write(self, message: bytes) -> None:
        await self.write_framed(prefixed(message))

    async def write_framed(self, data: bytes) -> None:
        while self.out and not self.gone.is_set():
            await self._room()
        if self.gone.is_set():
            raise self._cancelled()
        if not self.answered:
            self.answered = True
            self._carrier.begin_answer(self)
        if not self._carrier.queues(len(data)):
            raise CallError(
                GrpcStatus.RESOURCE_EXHAUSTED, "the client does not read what its calls are answered"
            )
        try:
            self.out = memoryview(data)
            self._carrier.push(self)
            while self.out:
                await self._room()
        finally:
            self._carrier.queues(-len(data))
        if self.gone.is_set():
            raise self._cancelled()

    def rest(self, seconds: float) -> None:
        self._carrier.rest(seconds)

    def keep(self, more_bytes: int) -> bool:
        return self._carrier.queues(more_bytes)

    def watch(self, arrival: Arrival) -> None:
        self.arrival = arrival

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
