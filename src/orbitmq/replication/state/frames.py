"""Frames of the link in which two brokers of OrbitMQ exchange changes of their tables (no I/O)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from orbitmq.broker.change_feed import Entry
from orbitmq.replication.link.errors import LinkError


class Changes(msgspec.Struct, frozen=True, tag="changes"):
    """Changes in order.

    Attributes:
        number: of the frame on its link, from 1 on.
        term: who leads counts it up; tables of a lower term are older, whatever they hold.
        sequence: of the sender's last change that this frame or one before has told.
        begins, ends: the first and the last frame of all that the tables hold.
        asked: all of it was asked for.
        locks_in_s: with the last frame of all: in so many seconds no client counts on a queue lock that the
            sender's tables do not have; ``None``: it does not know.
        acted_in: with what was asked for: the last term in which the sender acted and told nobody; 0: there
            is none.
        anew: with what was asked for: the sender was killed, and no leader has told it all since; its tables
            may be some seconds older than what it once acknowledged. Of a leader: it was killed, and serves
            without having asked anybody for what its disk lacks.
    """

    number: int
    term: int
    sequence: int
    entries: list[Entry]
    begins: bool = False
    ends: bool = False
    asked: bool = False
    locks_in_s: float | None = None
    acted_in: int = 0
    anew: bool = False


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Tell me all that your tables hold."""


class AskWhole(msgspec.Struct, frozen=True, tag="whole?"):
    """A follower asks its leader whether it was told all.

    Attributes:
        number: comes back with the answer.
        hold_s: for so long after the answer the follower may count on it.
    """

    number: int
    hold_s: float


class Whole(msgspec.Struct, frozen=True, tag="whole"):
    """The frames before this one told all that the leader's tables hold.

    Attributes:
        number: of the question.
        term: of the leader's tables.
    """

    number: int
    term: int


class Ack(msgspec.Struct, frozen=True):
    """How far the receiver is.

    Attributes:
        received: number of the last frame that came.
        applied: sequence up to which changes are made here.
    """

    received: int
    applied: int


State: TypeAlias = Changes | Ask | AskWhole | Whole

_encoder = msgspec.msgpack.Encoder()
_state: msgspec.msgpack.Decoder[State] = msgspec.msgpack.Decoder(State)
_ack = msgspec.msgpack.Decoder(Ack)


def encode(frame: State | Ack) -> bytes:
    """The payload of a frame."""
    return _encoder.encode(frame)


def decode_state(payload: bytes) -> State:
    """Read the payload of a STATE frame.

    Raises:
        LinkError: it is none.
    """
    try:
        return _state.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(f"a frame of tables cannot be read: {error}") from error


def decode_ack(payload: bytes) -> Ack:
    """Read the payload of a STATE_ACK frame.

    Raises:
        LinkError: it is none.
    """
    try:
        return _ack.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(f"an acknowledgement of tables cannot be read: {error}") from error
