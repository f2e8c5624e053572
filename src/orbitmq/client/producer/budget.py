"""The time and the tries of one send: one timeout for the whole, one for each attempt."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

# Response codes for which another broker may do better (DefaultMQProducer.retryResponseCodes, SK-05).
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})

# Below this an attempt is not worth starting: no broker answers over a network in less.
_LEAST_MS = 1.0


class RetryBudget(msgspec.Struct, gc=False):
    """The tries and the time that are left for a send.

    An attempt gets an equal share of the remaining time, so that a frozen broker costs one share and not the
    message.

    Attributes:
        deadline_ms: the end of the whole send, on any monotonic clock (SK-02).
        attempts_left: 1 + retries at first (SK-01).
        attempt_timeout_ms: upper limit of one attempt while others remain (SK-03), None for no limit.
    """

    deadline_ms: float
    attempts_left: int
    attempt_timeout_ms: float | None = None

    def remaining_ms(self, now_ms: float) -> float:
        """The time that is left for the whole send; may be negative."""
        return self.deadline_ms - now_ms

    def begin_attempt(self, now_ms: float, *, alternatives: bool = True) -> float | None:
        """Take one attempt; returns its timeout in ms, or None when tries or time are used up.

        Args:
            alternatives: whether a later attempt could use another broker. Without one, waiting for the
                only broker beats sending the message to it a second time, so the attempt gets all time.
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
    """Whether a refusal with this code is tried again on another broker (SK-05)."""
    return code in RETRY_CODES or code in more
