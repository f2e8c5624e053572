"""Frames of the link in which two brokers of OrbitMQ exchange changes of their tables (no I/O)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from orbitmq.broker.change_feed import SECRET, FeedEntry
from orbitmq.replication.link.errors import LinkError


class Changes(msgspec.Struct, frozen=True, tag="changes"):
    """Changes of the tables, in order.

    Attributes:
        number: the frame's number on its link, from 1 on.
        term: of the sender's tables; each new leader raises it. Tables of a lower term are older in any case.
        sequence: of the sender's last change that this frame or an earlier one contains.
        begins, ends: whether this is the first, or the last, frame of the sender's whole tables.
        asked: whether this is a frame of whole tables that the receiver has asked for, or that the sender
            offers because it led in a later term.
        locks_in_s: in the last frame of whole tables, after this many seconds no client relies on a lock that
            the sender's tables lack; ``None``: the sender does not know.
        acted_in: in an answer, the last term in which the sender acted, if no leader has its changes yet; 0:
            there is none.
        anew: in an answer, whether the sender was killed and no leader has sent it whole tables since: its
            own may be some seconds older than it acknowledged before. From a leader, whether it was killed
            and serves without having asked any broker for the changes that its disk lacks.
        forgotten: in the last frame of whole tables, deletions of users and rules up to this number may be
            missing, because the sender has forgotten them (:mod:`orbitmq.broker.last_changes`).
    """

    number: int
    term: int
    sequence: int
    entries: list[FeedEntry]
    begins: bool = False
    ends: bool = False
    asked: bool = False
    locks_in_s: float | None = None
    acted_in: int = 0
    anew: bool = False
    forgotten: int = 0

    def without_secrets(self) -> Changes:
        """The frame without changes of users and rules, for a link whose sender has not proved that it has
        the keys."""
        left = [entry for entry in self.entries if entry.table not in SECRET]
        return self if len(left) == len(self.entries) else msgspec.structs.replace(self, entries=left)


class TablesRequest(msgspec.Struct, frozen=True, tag="ask"):
    """A request for the receiver's whole tables."""


class PromiseRequest(msgspec.Struct, frozen=True, tag="whole?"):
    """A follower's question whether its leader has sent it the whole tables.

    Attributes:
        number: comes back with the answer.
        hold_s: how many seconds after the answer the follower may rely on it.
    """

    number: int
    hold_s: float


class TablesSent(msgspec.Struct, frozen=True, tag="whole"):
    """The frames before this one contained the leader's whole tables.

    Attributes:
        number: of the question.
        term: of the leader's tables.
    """

    number: int
    term: int


class Ack(msgspec.Struct, frozen=True):
    """How far the receiver has received and applied frames.

    Attributes:
        received: number of the last frame that arrived.
        applied: the sequence up to which the receiver has made the changes.
    """

    received: int
    applied: int


State: TypeAlias = Changes | TablesRequest | PromiseRequest | TablesSent

_encoder = msgspec.msgpack.Encoder()
_state: msgspec.msgpack.Decoder[State] = msgspec.msgpack.Decoder(State)
_ack = msgspec.msgpack.Decoder(Ack)


def encode(frame: State | Ack) -> bytes:
    """The payload of a frame."""
    return _encoder.encode(frame)


def decode_state(payload: bytes) -> State:
    """Read the payload of a STATE frame.

    Raises:
        LinkError: the payload is not such a frame.
    """
    try:
        return _state.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(f"a frame of tables cannot be read: {error}") from error


def decode_ack(payload: bytes) -> Ack:
    """Read the payload of a STATE_ACK frame.

    Raises:
        LinkError: the payload is not such a frame.
    """
    try:
        return _ack.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(f"an acknowledgement of tables cannot be read: {error}") from error
