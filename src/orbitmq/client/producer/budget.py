"""The time and the tries of one send: one timeout for the whole, one for each attempt."""

from __future__ import annotations

from collections.abc import Collection

# Response codes for which another broker may do better (DefaultMQProducer.retryResponseCodes, SK-05).
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})

# Below this an attempt is not worth starting: no broker answers over a network in less.
_LEAST_MS = 1.0


class RetryBudget:
    """How often and how long a send may still try.

    An attempt never gets so much time that nothing is left for the others: it gets an equal share of
    what remains, so a frozen broker costs one share and not the message.

    Args:
        start_ms: when the send was called, on any monotonic clock.
        timeout_ms: for the whole send (SK-02).
        attempts: 1 + retries (SK-01).
        attempt_timeout_ms: upper limit of one attempt while others remain (SK-03), None for no limit.
    """

    __slots__ = ("_attempt_timeout_ms", "_deadline_ms", "attempts_left")

    def __init__(
        self, start_ms: float, timeout_ms: float, attempts: int, attempt_timeout_ms: float | None = None
    ) -> None:
        self._deadline_ms = start_ms + timeout_ms
        self._attempt_timeout_ms = attempt_timeout_ms
        self.attempts_left = attempts

    def remaining_ms(self, now_ms: float) -> float:
        """What is left of the whole send's time; may be negative."""
        return self._deadline_ms - now_ms

    def begin_attempt(self, now_ms: float, *, alternatives: bool = True) -> float | None:
        """Take one attempt; its timeout in ms, or None when tries or time are used up.

        Args:
            alternatives: whether a later attempt could use another broker. Without one, waiting for the
                only broker beats sending the message to it a second time, so the attempt gets all time.
        """
        remaining = self._deadline_ms - now_ms
        if self.attempts_left <= 0 or remaining < _LEAST_MS:
            return None
        left = self.attempts_left
        self.attempts_left = left - 1
        if left == 1 or not alternatives:
            return remaining
        share = remaining / left
        if self._attempt_timeout_ms is not None:
            share = min(share, self._attempt_timeout_ms)
        return max(share, _LEAST_MS)

    def may_retry(self, now_ms: float) -> bool:
        return self.attempts_left > 0 and self._deadline_ms - now_ms >= _LEAST_MS


def retryable_code(code: int, more: Collection[int] = ()) -> bool:
    """Whether a refusal with this code is tried again on another broker (SK-05)."""
    return code in RETRY_CODES or code in more
