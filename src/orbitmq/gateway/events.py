"""The events of the HTTP/2 engine, one for each thing that a client does on its connection."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class StreamOpened(NamedTuple):
    """A client opened a stream.

    Attributes:
        headers: in their order, as text, with names in lower case.
        ended: whether the client sends nothing more on the stream.
    """

    stream: int
    headers: list[tuple[str, str]]
    ended: bool


class Arrived(NamedTuple):
    """The client sent data on a stream, which may be empty at the stream's end."""

    stream: int
    data: bytes
    ended: bool


class Reset(NamedTuple):
    """The client reset a stream: neither side sends on it any more. The stream may have ended before."""

    stream: int


class Writable(NamedTuple):
    """A flow-control window grew, so that waiting data can be sent."""


class Acknowledged(NamedTuple):
    """The client has read all bytes that were sent before the PING of this number."""

    number: int


Event: TypeAlias = StreamOpened | Arrived | Reset | Writable | Acknowledged
