"""The time and the tries of one send: one timeout for the whole send, one for each attempt."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

# Response codes after which another broker is tried (DefaultMQProducer.retryResponseCodes, SK-05).
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})

# The least time for an attempt: no broker answers over a network in less.
_LEAST_MS = 1.0


class RetryBudget(msgspec.Struct, gc=False):
    """The remaining tries and time of a send.

    An attempt gets an equal share of the remaining time, so that a frozen broker costs one share of the time
    and not the whole send.

    Attributes:
        deadline_ms: the end of the whole send, on any monotonic clock (SK-02).
        attempts_left: 1 + retries at first (SK-01).
        attempt_timeout_ms: upper limit of one attempt while others remain (SK-03), None for no limit.
    """

    deadline_ms: float
    attempts_left: int
    attempt_timeout_ms: float | None = None

    def remaining_ms(self, now_ms: float) -> float:
        """The remaining time of the whole send; may be negative."""
        return self.deadline_ms - now_ms

    def begin_attempt(self, now_ms: float, *, alternatives: bool = True) -> float | None:
        """Begin an attempt; returns its timeout in ms, or None if tries or time are used up.

        Args:
            alternatives: whether a later attempt could use another broker. If not, the attempt gets all the
                time: to wait longer for the only broker is better than to send it the message twice.
        """
        remaining = self.deadline_ms - now_ms
        if self.attempts_left <= 0 or remaining < _LEAST_MS:
            return None
        left = self.attempts_left
        self.attempts_left = left - 1
        if left == 1 or not alternatives:
            return remaining
        share = remaining / left
        if self.attempt_timeout_ms is not None:
            share = min(share, self.attempt_timeout_ms)
        return max(share, _LEAST_MS)

    def may_retry(self, now_ms: float) -> bool:
        return self.attempts_left > 0 and self.deadline_ms - now_ms >= _LEAST_MS


def retryable_code(code: int, more: Collection[int] = ()) -> bool:
    """Whether a send refused with this code is tried again on another broker (SK-05)."""
    return code in RETRY_CODES or code in more
