"""How one delivery of a message ends: done, again later, or given up. The same for every kind of consumer.

A consumer begins a delivery by :func:`open_delivery`. It ends once, either by the user's ``message.ack()``,
``retry()`` or ``reject()`` (:func:`settle`), or by the consumer's :func:`close_delivery` when a handler
returns; the first call counts. There is no other transition:

    given ──ack──▶ acked      given ──retry──▶ comes again      given ──reject──▶ dead letter
      └──close──▶ settled by the consumer
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from orbitmq.durations import MAX_DELAY_S, Duration, seconds, shown
from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message import property_names

# Seconds of the 18 delay levels that brokers have by default (MessageStoreConfig.messageDelayLevel).
LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class Settled(Enum):
    """The result of a call of ``ack``, ``retry`` or ``reject``. None of them is an error."""

    DONE = "settled by this call"
    ALREADY = "settled before, by a call or because its handler returned; this call changed nothing"
    GONE = "no longer held by this consumer: its queue has another member, or it took too long and went back"


class Ending(Enum):
    """The ways in which a delivery can end."""

    ACK = auto()
    RETRY = auto()
    REJECT = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a delivery is to end.

    Attributes:
        ending: done, delivered again, or given up.
        delay_level: of the next delivery: 0 lets the broker choose by the number of deliveries, 1 to 18 is a
            level of its delay table, below 0 is a dead letter at once (CR-13).
        delay_s: seconds before the next delivery; None: ``delay_level`` counts.
        reason: why, in the user's words.
        error: the exception that led to this verdict.
    """

    ending: Ending
    delay_level: int = 0
    delay_s: float | None = None
    reason: str = ""
    error: BaseException | None = None

    @property
    def why(self) -> str:
        """The reason in words: the user's, else that of the exception."""
        return self.reason or ("" if self.error is None else repr(self.error))


ACK = Verdict(Ending.ACK)


class DeliveryOwner(Protocol):
    """The part of a consumer that begins and ends a delivery: a queue of a push consumer, or a receipt."""

    def settled(self, message: Any, verdict: Verdict) -> Settled:
        """Handle the user's verdict; called once for each delivery, on any thread. Returns DONE or GONE."""
        ...


class Deliverable(Protocol):
    """A received message, as far as its delivery goes.

    Attributes:
        owner: the part that began the delivery. Absent once the delivery has ended: its removal is the one
            step that two threads cannot both do.
        verdict: the user's, None as long as there is none. Absent when no consumer has delivered the message.
    """

    owner: Any
    verdict: Verdict | None


def settle(message: Deliverable, verdict: Verdict) -> Settled:
    """End a delivery with the user's verdict; of several callers only the first one ends it.

    Raises:
        ClientStateError: no consumer has delivered this message, so there is no delivery to end.
    """
    try:
        owner: DeliveryOwner = message.owner
        del message.owner
    except AttributeError:
        if hasattr(message, "verdict"):
            return Settled.ALREADY
        raise ClientStateError(
            "this message is not a consumer's delivery, so it cannot be settled; "
            "what a Reader or an Admin gives is only read, and of a copy, as another process gets it, "
            "the original is settled"
        ) from None
    message.verdict = verdict
    return owner.settled(message, verdict)


def open_delivery(message: Deliverable, owner: DeliveryOwner) -> None:
    """Open a delivery, the first one of this message or a later one."""
    message.owner = owner
    message.verdict = None


def close_delivery(message: Deliverable) -> bool:
    """End a delivery without a verdict of the user's; False when it has ended already."""
    try:
        del message.owner
    except AttributeError:
        return False
    return True


def is_open(message: Deliverable) -> bool:
    """Whether this delivery has not ended yet."""
    return hasattr(message, "owner")


def checked_level(level: object, lowest: float = 0) -> int:
    """A delay level of the default table, 0: no delay.

    Raises:
        ValidationError: the level is no whole number, or is not in the table.
    """
    if isinstance(level, bool) or not isinstance(level, int):
        raise ValidationError(f"delay_level must be a whole number, got {level!r:.60}")
    if not lowest <= level <= len(LEVEL_SECONDS):
        raise ValidationError(
            f"delay_level must be 0 to {len(LEVEL_SECONDS)}, got {level}: a broker would deliver a higher "
            "one after 2 h, the last of its levels; delay takes any time, and where messageDelayLevel has "
            f"more levels the property {property_names.DELAY} does"
        )
    return level


def retry_verdict(delay_level: int, delay: Duration | None, reason: str = "") -> Verdict:
    """The verdict of a retry, after a delay level or a time.

    Raises:
        ValidationError: both are given, or the time is wrong; the text names the limit.
    """
    # A level below 0 makes the message a dead letter, as with RocketMQ's clients.
    checked_level(delay_level, lowest=-math.inf)
    delay_s = None if delay is None else seconds("delay", delay, 0, MAX_DELAY_S, above=True)
    if delay_level and delay_s is not None:
        raise ValidationError(f"give delay_level or delay, not both ({delay_level}, {shown(delay)})")
    return Verdict(Ending.RETRY, delay_level, delay_s, reason)


def level_for(delay_s: float) -> int:
    """The first delay level that is not shorter than ``delay_s``; the last one when all are."""
    return next((level for level, length in enumerate(LEVEL_SECONDS, 1) if length >= delay_s), 18)
