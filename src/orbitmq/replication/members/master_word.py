"""A slave's notes of its master's own messages: it stopped leading, is back, or asks for the lead.

A master that stopped leads no more, so the slave may lead without waiting for its right to run out. The slave
makes way for a master that is back even if no name server shows it yet. A slave that could not lead itself,
because no name server answers it, leaves the lead to a master that asks.

Pure: times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

import math

from orbitmq.replication.members.fence import Timing

# How long a slave makes way for a master that is back and that no name server shows yet.
YIELD_S = 15.0


class MasterWord:
    """The last messages of one slave's master.

    Attributes:
        yielded_until_s: this broker makes way for a returning master until this time.
    """

    def __init__(self, timing: Timing) -> None:
        self._patience_s = timing.patience_s
        self._released_s = -math.inf  # when the master announced that it leads no more
        self._stale_s = -math.inf  # when this broker's own right was last seen not to be renewed
        self.yielded_until_s = 0.0

    def stopped(self, now_s: float) -> None:
        """Note that the master leads no more. Ignored as stale if the master has announced its return
        (906)."""
        if now_s >= self.yielded_until_s:
            self._released_s = now_s

    def is_back(self, now_s: float) -> None:
        """Note that the master is on its way into service."""
        self.yielded_until_s = now_s + YIELD_S
        self._released_s = -math.inf

    def is_shown(self) -> None:
        """Note that the name servers show the master: its next loss needs new evidence."""
        self.yielded_until_s = 0.0

    def is_released(self, now_s: float) -> bool:
        """Whether the release still counts: a master that came back since, unseen by this slave, leads only
        later."""
        return now_s - self._released_s < self._patience_s

    def leaves_lead(self, now_s: float, *, stale: bool) -> bool:
        """Whether this slave leaves the background work to its master, which asks for it.

        It does while it could not lead itself, and for some time after: the name servers' answers count for
        the master only after a while, but for the slave perhaps at once.

        Args:
            stale: whether no name server answers this broker either.
        """
        if self.is_released(now_s):
            return False
        if stale:
            self._stale_s = now_s
        return now_s - self._stale_s <= self._patience_s
