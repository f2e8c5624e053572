"""One gRPC call as the services see it, independent of HTTP/2 and of the message types.

The transport (``connection.py``) makes a :class:`Call` of each stream, and passes it to the handler that a
:class:`Service` has for the call's method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from orbitmq.gateway.arrivals import Arrival
from orbitmq.runtime.client_names import CertificateName


class GrpcStatus(IntEnum):
    """gRPC's status codes, one of which ends each call."""

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


# Replaces the headers of a call that waits without a task: they have been read, and would hold 1 KB.
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class CallError(Exception):
    """Ends a call with a gRPC status.

    Attributes:
        status: the status.
        message: the text that the client gets with it (grpc-message).
    """

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class Call(Protocol):
    """One call of a client.

    Attributes:
        method: such as ``SendMessage``: what follows /apache.rocketmq.v2.MessagingService/ in the path.
        metadata: the request's headers, their names in lower case; empty while the call waits without a task.
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
        """Set the one function that is called when the call is gone; called at once if it is gone already.

        Args:
            function: None: nothing is called.
        """
        ...

    async def read(self) -> bytes | None:
        """The next request message, decompressed; None when the client has ended its side.

        Raises:
            CallError: the call is gone, or the message cannot be decompressed.
        """
        ...

    async def write(self, message: bytes) -> None:
        """Send one response message; waits while the client's window is full.

        Raises:
            CallError: CANCELLED when the call is gone.
        """
        ...

    async def write_framed(self, data: bytes) -> None:
        """As :meth:`write`, for messages that already have gRPC's prefix of 5 bytes."""
        ...

    def reply_framed(self, data: bytes) -> None:
        """Send messages that have gRPC's prefix as the whole answer of a call without a task, and end it."""
        ...

    def go_on(self, handler: Handler) -> None:
        """Give a call that has no task one, which runs this handler."""
        ...

    def put(self, message: bytes) -> None:
        """Begin to send a message to the client of a call that has a listener.

        ``wrote`` of the listener is called when the whole message is sent, perhaps before this method
        returns. The next message may be put only after that.

        Raises:
            CallError: RESOURCE_EXHAUSTED, the client does not read.
        """
        ...

    def end(self, error: CallError | None) -> None:
        """End a call with a listener: with the error's status, or with OK if there is none."""
        ...

    def rest(self, seconds: float) -> None:
        """Read nothing from the client's connection for this time; received calls are still handled."""
        ...

    def watch(self, arrival: Arrival) -> None:
        """Call ``arrival`` once: when the client has the whole answer, or the answer is lost or given up."""
        ...

    def keep(self, more_bytes: int) -> bool:
        """Count memory that is held for the client while the call lasts, such as answers not written yet.

        Returns:
            False if the connection would hold too much with these bytes; they are not counted then.
        """
        ...


# Sends the one response message of a call, and ends the call with OK.
Reply: TypeAlias = Callable[[bytes], None]


class CallListener(Protocol):
    """Receives the messages and the end of a call that has no task."""

    def received(self, message: bytes) -> None:
        """Handle a message of the client. A CallError ends the call."""
        ...

    def ended(self) -> None:
        """Called when the client has ended its side of the stream."""
        ...

    def wrote(self) -> None:
        """Called when the message of the last :meth:`Call.put` has been sent."""
        ...

    def lost(self) -> None:
        """Called when the call has ended, by either side."""
        ...


# ``begin`` of a handler: does the work of a call whose only message has come, without a task, and calls the
# reply at once or later. Returns False when nothing was done: the call then gets a task.
Begin: TypeAlias = Callable[[Call, bytes, Reply], bool]
# Runs a call: a return ends it with OK, a CallError with its status, any other exception with INTERNAL.
Handler: TypeAlias = Callable[[Call], Awaitable[None]]
# Called when a call begins. Returns the call's listener; None when it gave the call a task (``go_on``).
Open: TypeAlias = Callable[[Call], CallListener | None]


class Service(Protocol):
    """The gRPC methods that a client can call.

    Attributes:
        handlers: by method. A call of any other method ends with UNIMPLEMENTED, which names the method.
        streams: by method, those whose calls have a listener.
    """

    handlers: Mapping[str, Handler]
    streams: Mapping[str, Open]

    async def stop(self) -> None:
        """End the calls that wait; called once, while the connections still work."""
        ...
