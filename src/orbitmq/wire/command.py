"""One request or response of the remoting protocol, independent of the header format."""

from __future__ import annotations

from enum import IntEnum

import msgspec

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

# The version in OrbitMQ's commands: V5_3_3 (MQVersion), the newest release whose bodies OrbitMQ follows.
PROTOCOL_VERSION = 479


class Language(IntEnum):
    """The language of the sender (LanguageCode)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Serialization(IntEnum):
    """The header format, which is the first byte of the header word."""

    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct):
    """A decoded frame.

    Attributes:
        code: request code, or response code when :attr:`is_response`.
        ext: header fields by their wire names; values are always strings.
        body: the payload, which may be empty.
        opaque: the number by which a response is matched to its request.
        remark: a sentence for people, mostly on errors.
        serialization: the header format in which the command was received, or is to be sent.
        certified: the user that the client's certificate names; empty without one. Servers set it; it is not
            part of the frame.
    """

    code: int
    ext: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: int = Language.PYTHON
    version: int = PROTOCOL_VERSION
    serialization: Serialization = Serialization.JSON
    certified: str = ""

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def reply(
        self, code: int = 0, remark: str | None = None, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        """A response to this request, with its opaque and its header format."""
        return Command(
            code=code,
            ext=ext if ext is not None else {},
            body=body,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialization=self.serialization,
        )
