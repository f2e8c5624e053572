"""One side of a remoting connection without I/O: makes commands of received bytes, matches answers to
requests.

A driver moves bytes and timers: it receives into :meth:`RemotingConnection.room`, reports the number of
received bytes, takes the commands, and sends the bytes of :func:`~orbitmq.wire.frame.encode_frame`. The
asyncio connections and the blocking one are such drivers. A fault of the peer is a :class:`FrameError`: the
borders of the frames are lost, and the driver has to disconnect.

A chunk of whole frames is received without an allocation: all connections of a driver read into one buffer (a
chunk is used up before the next is received), and each copies only its unfinished frame. A long unfinished
frame gets its own buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.wire.errors import FrameError, OtherProtocolError, RemotingError
from orbitmq.wire.frame import MAX_FRAME_BYTES, body_of, decode_frame, decode_head, impossible_length
from orbitmq.wire.scan import IMPOSSIBLE, border_in

# A batch of 256 KiB with its header fits, so that it is handled where it was received, without a copy.
RECEIVE_BUFFER_BYTES: Final = 260 * 1024
# From this size on an unfinished frame gets its own buffer: with a slow peer, copies of it would take
# quadratic time.
OWN_BUFFER_FROM_BYTES: Final = 32 * 1024
# The largest frame of a client that has sent no keys yet, at a server that requires keys.
STRANGERS_FRAME_BYTES: Final = 64 * 1024
NEVER: Final = float("inf")
TLS: Final = b"\x16"
TLS_ALERT: Final = b"\x15\x03"
HTTP2: Final = b"PRI "
# By the first bytes of another protocol: the text of the error, and the kind of fault.
OTHER_PROTOCOLS: Final = {
    TLS: ("TLS is not enabled here", "it starts a TLS handshake"),
    TLS_ALERT: ("TLS is expected there", "it answers with a TLS alert"),
    HTTP2: ("gRPC is not served here", "it speaks HTTP/2"),
    b"PROX": ("that is not enabled here", "it sends a PROXY protocol header"),
    b"\r\n\r\n": ("that is not enabled here", "it sends a PROXY protocol header"),
}

_NOTHING = memoryview(b"")

W = TypeVar("W")
ChunkHook: TypeAlias = Callable[[Any, memoryview, int, int], int]
# Returns writable memory of this many bytes; its content does not matter.
Allocate: TypeAlias = Callable[[int], Any]


class Opaques:
    """The numbers that match answers to requests: one series for all connections of an endpoint."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """The next number, from 0 to 2**31 - 1."""
        self._last = (self._last + 1) & 0x7FFFFFFF
        return self._last


class RemotingConnection(Generic[W]):
    """One side of a connection; the module's docstring tells how a driver uses it.

    Args:
        opaques: the numbers of the requests that this side sends.
        shared: the receive buffer, at least 32 KiB. Nothing else may use it between :meth:`room` and the last
            :meth:`next_command` of that chunk.
        max_frame_bytes: the longest accepted frame, its length field included.
        hook: called with (owner, buffer, start, end) for received bytes that begin at a frame border; returns
            the position up to which it used complete frames. A complete frame behind that becomes a command,
            and the hook is called again for the bytes behind it.
        owner: the hook's first argument.
        allocate: returns the memory in which a long frame is collected.
    """

    __slots__ = (
        "_allocate",
        "_allows_long",
        "_buffer",
        "_end",
        "_framed",
        "_hook",
        "_max_frame_bytes",
        "_opaques",
        "_own",
        "_own_filled",
        "_owner",
        "_pending",
        "_position",
        "_shared",
        "_tail",
        "_wanted",
    )

    def __init__(
        self,
        opaques: Opaques,
        shared: memoryview,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        *,
        hook: ChunkHook | None = None,
        owner: object = None,
        allocate: Allocate = bytearray,
    ) -> None:
        self._allocate = allocate
        self._opaques = opaques
        self._shared = shared
        self._max_frame_bytes = max_frame_bytes
        self._hook = hook
        self._owner = owner
        self._tail = b""
        # The known least length of the unfinished frame in the tail.
        self._wanted = 0
        self._own: memoryview | None = None
        self._own_filled = 0
        self._framed = False
        self._allows_long: Callable[[Command], bool] | None = None
        self._buffer = _NOTHING
        self._position = 0
        self._end = 0
        self._pending: dict[int, tuple[W, float]] | None = None

    # -- receiving -------------------------------------------------------------------------------------

    def restrain(self, allows_long: Callable[[Command], bool] | None) -> None:
        """Accept a frame of more than ``STRANGERS_FRAME_BYTES`` only if this function allows its header.

        None accepts all frames from then on.
        """
        self._allows_long = allows_long

    def room(self, _size_hint: int = 0) -> memoryview:
        """The memory for the next received bytes, valid until :meth:`receive` reports them."""
        if self._own is not None:
            return self._own[self._own_filled :]
        tail = self._tail
        if not tail:
            return self._shared
        length = len(tail)
        self._shared[:length] = tail
        return self._shared[length:]

    def receive(self, count: int) -> Command | None:
        """Take ``count`` bytes received into the room; returns the first command, as :meth:`next_command`.

        Raises:
            FrameError: the bytes are not the protocol, and the connection has to end.
        """
        if self._own is None:
            end = len(self._tail) + count
            if end < self._wanted:
                self._tail = bytes(self._shared[:end])
                return None
            self._wanted = 0
            self._buffer = self._shared
            self._end = end
        else:
            self._own_filled += count
            if self._own_filled < len(self._own):
                return None
            self._buffer = self._own
            self._end = self._own_filled
            self._own = None
        hook = self._hook
        if hook is None:
            return self._command(0)
        position = hook(self._owner, self._buffer, 0, self._end)
        if position == self._end:
            self._framed = True
            self._tail = b""
            return None
        return self._command(position)

    def receive_long(self, count: int) -> tuple[Command, memoryview] | None:
        """As :meth:`receive`, if these bytes complete a long frame: its command without a body, and the body
        in the memory where it was collected. Otherwise None, and the bytes are not taken.
        """
        own = self._own
        if own is None or self._own_filled + count < len(own):
            return None
        self._own = None
        return decode_frame(own, with_body=False), body_of(own)

    def next_command(self) -> Command | None:
        """The next complete command of the chunk; None when the rest of the chunk is an unfinished frame.

        Raises:
            FrameError: as in :meth:`receive`.
        """
        position = self._position
        if self._hook is not None and position < self._end:
            position = self._hook(self._owner, self._buffer, position, self._end)
        return self._command(position)

    def _command(self, position: int) -> Command | None:
        buffer, end = self._buffer, self._end
        self._framed = self._framed or position > 0
        if self._allows_long is not None and self._waits_for_header(self._allows_long, buffer, position, end):
            self._buffer = _NOTHING
            self._position = self._end = 0
            self._tail = bytes(buffer[position:end])
            return None
        stop = border_in(buffer, position, end, self._max_frame_bytes)
        if stop >= 0:
            self._position = stop
            return decode_frame(buffer, position, stop)
        if stop == IMPOSSIBLE:
            raise self._impossible(buffer, position, end)
        self._keep(buffer, position, end)
        return None

    def _waits_for_header(
        self, allows_long: Callable[[Command], bool], buffer: memoryview, position: int, end: int
    ) -> bool:
        """Whether a long frame can be judged only when more of its header has come.

        Raises:
            FrameError: the frame is too long for its header.
        """
        if end - position < 4:
            return False
        total = 4 + int.from_bytes(buffer[position : position + 4], "big", signed=True)
        if not STRANGERS_FRAME_BYTES < total <= self._max_frame_bytes:
            return False  # a short frame needs no check, and an impossible length is refused elsewhere
        head = decode_head(buffer, position, min(end, position + STRANGERS_FRAME_BYTES))
        if head is None and end - position < STRANGERS_FRAME_BYTES:
            return True
        if head is None or not allows_long(head):
            raise FrameError(
                f"a frame of {total} bytes from a client whose keys are not known yet; "
                f"allowed: {STRANGERS_FRAME_BYTES}",
                kind="a long frame before its keys are known",
            )
        return False

    def drop(self) -> None:
        """Forget received bytes and the hook: the connection is closed."""
        self._hook = self._owner = None
        self._own = None
        self._wanted = 0
        self._tail = b""
        self._buffer = _NOTHING
        self._position = self._end = 0

    def _impossible(self, buffer: memoryview, position: int, end: int) -> FrameError:
        head = bytes(buffer[position : position + 4])
        if not self._framed:
            for first, (text, kind) in OTHER_PROTOCOLS.items():
                if head.startswith(first):
                    return OtherProtocolError(text, kind, first, bytes(buffer[position:end]))
        return impossible_length(buffer, position, self._max_frame_bytes)

    def _keep(self, buffer: memoryview, position: int, end: int) -> None:
        """Copy an unfinished frame out of the shared buffer, which other connections use next."""
        self._buffer = _NOTHING
        self._position = self._end = 0
        length = end - position
        if not length:
            self._tail = b""
            return
        self._wanted = 4
        if length >= 4:
            total = 4 + int.from_bytes(buffer[position : position + 4], "big")
            if total > OWN_BUFFER_FROM_BYTES:
                own = memoryview(self._allocate(total)).cast("B")
                own[:length] = buffer[position:end]
                self._own = own
                self._own_filled = length
                self._wanted = 0
                self._tail = b""
                return
            self._wanted = total
        self._tail = bytes(buffer[position:end])

    @property
    def framed(self) -> bool:
        """Whether a complete frame was received."""
        return self._framed

    @property
    def half_framed(self) -> bool:
        """Whether a frame was received in part."""
        return bool(self._tail) or self._own is not None

    # -- requests of this side -------------------------------------------------------------------------

    def number(self, command: Command) -> int:
        """Set the opaque of a request, and return the opaque."""
        command.opaque = opaque = self._opaques.next()
        return opaque

    def expect(self, opaque: int, waiter: W, deadline: float = NEVER) -> None:
        """Register ``waiter`` for the answer to this request, until ``deadline`` (in the driver's time)."""
        if self._pending is None:
            self._pending = {}
        self._pending[opaque] = (waiter, deadline)

    def answered(self, answer: Command) -> W | None:
        """The waiter registered for this answer; None if none waits for it (any more)."""
        entry = self._pending.pop(answer.opaque, None) if self._pending else None
        return None if entry is None else entry[0]

    def forget(self, opaque: int) -> None:
        """Drop the answer to this request when it comes."""
        if self._pending:
            self._pending.pop(opaque, None)

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending) if self._pending else 0

    def next_deadline(self) -> float:
        """The earliest deadline of a request; infinity without one."""
        pending = self._pending or {}
        return min((deadline for _, deadline in pending.values()), default=NEVER)

    def expired(self, now: float) -> list[tuple[int, W]]:
        """Remove the requests whose deadline has come; returns their opaques and waiters."""
        pending = self._pending or {}
        overdue = [opaque for opaque, (_, deadline) in pending.items() if deadline <= now]
        return [(opaque, pending.pop(opaque)[0]) for opaque in overdue]

    def abandoned(self) -> list[W]:
        """Remove all requests: the connection has ended, or its driver gives up. Returns their waiters."""
        pending, self._pending = self._pending or {}, None
        return [waiter for waiter, _ in pending.values()]


# -- answers of this side ------------------------------------------------------------------------------


def answer_to(request: Command, answer: Command) -> Command | None:
    """``answer`` with the opaque of its request; None for a one-way request."""
    if request.flag & FLAG_ONEWAY:
        return None
    answer.opaque = request.opaque
    answer.flag |= FLAG_RESPONSE
    return answer


def not_supported(request: Command) -> Command:
    """The answer to a request code without a handler."""
    remark = f" request type {request.code} not supported"
    return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def too_busy(request: Command) -> Command:
    """The answer to a request that exceeds the number being handled on a connection."""
    return request.reply(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")


def failed(request: Command, error: BaseException) -> Command:
    """The answer to a request whose handler raised ``error``."""
    if isinstance(error, RemotingError):
        return request.reply(error.code, error.remark)
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
