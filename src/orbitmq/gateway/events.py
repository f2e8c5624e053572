"""Events of the HTTP/2 engine: what a client does on its connection."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class StreamOpened(NamedTuple):
    """A client opened a stream.

    Attributes:
        headers: names in lower case, in their order, as text.
        ended: nothing more comes on it.
    """

    stream: int
    headers: list[tuple[str, str]]
    ended: bool


class Arrived(NamedTuple):
    """Data of a stream; may be empty at its end."""

    stream: int
    data: bytes
    ended: bool


class Reset(NamedTuple):
    """The client gives a stream up: neither side sends on it any more. It may have ended before."""

    stream: int


class Writable(NamedTuple):
    """A flow-control window grew: waiting data may go out."""


class Acknowledged(NamedTuple):
    """The client has read all that was sent before the PING of this number."""

    number: int


Event: TypeAlias = StreamOpened | Arrived | Reset | Writable | Acknowledged
