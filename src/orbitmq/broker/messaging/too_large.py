"""Refusals of messages that are too large. Remoting has one code for them, gRPC a code for each part."""

from __future__ import annotations

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


class BodyTooLargeError(RemotingError):
    """The body makes the message too large."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.MESSAGE_ILLEGAL, remark)


class PropertiesTooLongError(RemotingError):
    """The properties are too long, including those that the broker adds."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.MESSAGE_ILLEGAL, remark)
