"""The errors of bytes that are not the protocol, and the error by which a handler refuses a request."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class WireError(OrbitError, ValueError):
    """The peer's bytes break the protocol. The text names the field, the value and the limit."""


class FrameError(WireError):
    """A frame or its header cannot be read or written; after a read the connection has to end.

    Attributes:
        kind: the kind of fault, in words that do not come from the peer.
    """

    def __init__(self, text: str, kind: str = "unreadable frame") -> None:
        super().__init__(text)
        self.kind = kind


class OtherProtocolError(FrameError):
    """A connection begins with another protocol than remoting.

    Attributes:
        first: the bytes that identify the other protocol.
        received: all bytes received on the connection.
    """

    def __init__(self, text: str, kind: str, first: bytes, received: bytes) -> None:
        super().__init__(text, kind)
        self.first = first
        self.received = received


class HeaderError(WireError):
    """A header field is missing or has a value of the wrong type."""


class BodyError(WireError):
    """A JSON or binary body cannot be read."""


class RemotingError(OrbitError):
    """The refusal of a request, which is answered with this response code and remark.

    Attributes:
        code: a :class:`~orbitmq.wire.codes.ResponseCode`.
        remark: the sentence that the client gets.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"code {int(self.code)}: {self.remark}"
