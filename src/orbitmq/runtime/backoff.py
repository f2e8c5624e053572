"""The pauses between tries that fail: they double from failure to failure."""

from __future__ import annotations

import random
from dataclasses import dataclass

_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from failure to failure.

    Attributes:
        first_s: the pause after the first failure, in seconds.
        longest_s: the longest pause, in seconds.
        random: makes each pause up to a fifth shorter, so that clients that lost the same broker do not come
            back in the same instant.
    """

    first_s: float
    longest_s: float
    random: random.Random

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row; 0 before the first."""
        if failures < 1:
            return 0.0
        pause = min(self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), self.longest_s)
        return pause * (1 - 0.2 * self.random.random())
