"""One gRPC call as the services see it, independent of HTTP/2 and of the message types.

The transport (``connection.py``) makes a :class:`Call` of each stream and gives it to the handler that a
:class:`Service` names for its method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from orbitmq.gateway.arrivals import Arrival
from orbitmq.runtime.client_names import CertificateName


class GrpcStatus(IntEnum):
    """How a call ends, as gRPC numbers it."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# The headers of a call that waits: they have been read, and would take 1 KB.
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class CallError(Exception):
    """Ends a call with a gRPC status.

    Attributes:
        status: the status.
        message: what the client reads beside it.
    """

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class Call(Protocol):
    """One call of a client.

    Attributes:
        method: ``SendMessage``: what follows /apache.rocketmq.v2.MessagingService/ in the path.
        metadata: the request's headers, their names in lower case; empty when a call waits without a task.
        peer: the client's address, host:port.
        certificate: the user that the client's certificate names.
        timeout_ms: from the header grpc-timeout; None when there is none.
        gone: whether the client reset the stream, its connection ended, or the call's deadline has passed.
    """

    method: str
    metadata: Mapping[str, str]
    timeout_ms: int | None

    @property
    def gone(self) -> bool: ...

    @property
    def peer(self) -> str: ...

    @property
    def certificate(self) -> CertificateName: ...

    def when_gone(self, function: Callable[[], object] | None) -> None:
        """Call this function, instead of another one, when the call is gone; at once if it is gone already.

        Args:
            function: None: call nothing.
        """
        ...

    async def read(self) -> bytes | None:
        """The next request message, unpacked; None at the end of the client's side.

        Raises:
            CallError: the call is gone, or the message cannot be unpacked.
        """
        ...

    async def write(self, message: bytes) -> None:
        """Send one response message; waits while the client's window is full.

        Raises:
            CallError: CANCELLED when the call is gone.
        """
        ...

    async def write_framed(self, data: bytes) -> None:
        """As :meth:`write`, for messages that have gRPC's prefix already."""
        ...

    def reply_framed(self, data: bytes) -> None:
        """Send messages that have gRPC's prefix as the whole answer of a call without a task, and end it."""
        ...

    def go_on(self, handler: Handler) -> None:
        """Go on with a call without a task in a task, by this handler."""
        ...

    def put(self, message: bytes) -> None:
        """Begin to send a message of a call with a listener.

        ``wrote`` of the listener is called when all of it is sent, perhaps before this method returns. No
        other message may be put before that.

        Raises:
            CallError: RESOURCE_EXHAUSTED, the client does not read.
        """
        ...

    def end(self, error: CallError | None) -> None:
        """End a call with a listener: with the error's status, or with OK if there is none."""
        ...

    def rest(self, seconds: float) -> None:
        """Read nothing from the client's connection for this time; what has come is handled."""
        ...

    def watch(self, arrival: Arrival) -> None:
        """Call this once: when the client has the whole answer, or when that is lost or given up."""
        ...

    def keep(self, more_bytes: int) -> bool:
        """Count what is kept for the client while the call lasts, such as answers that wait to be written.

        Returns:
            False, and it is not counted, if the connection holds too much then.
        """
        ...


# Takes the one response message of a call, and ends it with OK.
Reply: TypeAlias = Callable[[bytes], None]


class CallListener(Protocol):
    """Receives the messages of a call that has no task, and learns of its end."""

    def came(self, message: bytes) -> None:
        """The client sent a message. A CallError ends the call."""
        ...

    def ended(self) -> None:
        """The client has ended its half of the stream."""
        ...

    def wrote(self) -> None:
        """The message of the last :meth:`Call.put` is sent."""
        ...

    def lost(self) -> None:
        """The call has ended, in whatever way."""
        ...


# ``begin`` of a handler: does the work of a call whose only message has come, without a task, and calls the
# reply now or later. False: nothing was done, the call takes a task.
Begin: TypeAlias = Callable[[Call, bytes, Reply], bool]
# Returning ends the call with OK, a CallError with its status, any other exception with INTERNAL.
Handler: TypeAlias = Callable[[Call], Awaitable[None]]
# Called when a call begins; None: it has given the call a task (``go_on``).
Open: TypeAlias = Callable[[Call], CallListener | None]


class Service(Protocol):
    """What a gRPC client can ask.

    Attributes:
        handlers: by method. A method that is missing is answered UNIMPLEMENTED, naming itself.
        streams: by method, those whose calls have a listener.
    """

    handlers: Mapping[str, Handler]
    streams: Mapping[str, Open]

    async def stop(self) -> None:
        """End what waits; called once, while the connections still work."""
        ...
