"""How long requests were on their way, though the clocks of both ends are apart. Pure.

A request says when it was made, by the clock of its sender. The least difference to our clock that a
connection has shown is how far that clock is behind; what is more is the way.
"""

from __future__ import annotations

# Clocks of one cluster are not farther apart: the first request of a connection may be late as well.
MOST_APART_MS = 60_000
# From this age on a request counts as late; no server refuses late ones earlier.
LATE_MS = 500
# When all requests come late for this long, a clock was set.
STEP_MS = 1000


class PeerClock:
    """What the requests of one connection tell of the clock at its other end."""

    __slots__ = ("_behind_ms", "_late_since_ms")

    def __init__(self) -> None:
        self._behind_ms: int | None = None
        self._late_since_ms: int | None = None

    def way_ms(self, made_ms: int, now_ms: int) -> int:
        """How long a request was on its way.

        What counts as late does not depend on how long a request wants to wait: requests of several kinds
        share a connection, and patient ones must not hide from impatient ones that a clock was set.

        Args:
            made_ms: by the clock of its sender; ``now_ms``: by ours.
        """
        apart = now_ms - made_ms
        if self._behind_ms is None:
            self._behind_ms = apart if apart <= MOST_APART_MS else 0
        self._behind_ms = min(self._behind_ms, apart)
        if apart - self._behind_ms <= LATE_MS:
            self._late_since_ms = None
        elif self._late_since_ms is None:
            self._late_since_ms = now_ms
        elif now_ms - self._late_since_ms >= STEP_MS and apart <= MOST_APART_MS:
            self._behind_ms, self._late_since_ms = apart, None
        return apart - self._behind_ms
