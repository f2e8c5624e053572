"""Transaction ids, which carry all that ending a transaction needs, so that brokers keep no state. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from orbitmq.gateway.status import Code, RefusalError
from orbitmq.message.numbers import whole_number

MAX_ID: Final = 1024  # characters
_VERSION = "v1"
_WORDS = 5


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Names an unfinished transaction.

    Attributes:
        broker: the name of the broker that has the half message.
        group: the producer group.
        half_offset: the half message's offset in its queue.
        log_offset: where the half message's record begins in the commit log.
    """

    broker: str
    group: str
    half_offset: int
    log_offset: int

    def encode(self) -> str:
        """URL-safe Base64 of ``v1 broker group half-offset log-offset``."""
        words = (_VERSION, self.broker, self.group, str(self.half_offset), str(self.log_offset))
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def decode(text: str, broker: str) -> TransactionId:
    """Read a transaction id.

    Args:
        broker: the name of this broker.

    Raises:
        RefusalError: INVALID_TRANSACTION_ID, the text is not such an id, or is another broker's.
    """
    if len(text) > MAX_ID:
        raise invalid(f"it has {len(text)} characters, limit {MAX_ID}")
    try:
        words = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{text[:200]!r} is none") from error
    offsets = [whole_number(word) for word in words[_WORDS - 2 :]]
    if len(words) != _WORDS or words[0] != _VERSION or None in offsets:
        raise invalid(f"{text[:200]!r} is none")
    half_offset, log_offset = offsets
    assert half_offset is not None
    assert log_offset is not None
    if words[1] != broker:
        raise invalid(f"it is of broker {words[1][:64]}, this is broker {broker}")
    return TransactionId(broker, words[2], half_offset, log_offset)


def invalid(why: str) -> RefusalError:
    """The refusal of a transaction id that names no open transaction of this broker."""
    return RefusalError(Code.INVALID_TRANSACTION_ID, f"transaction_id: {why}")
