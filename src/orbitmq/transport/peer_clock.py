"""How long requests were on their way, although the clocks of both ends differ. Pure.

A request has the time at which it was made, by its sender's clock. The least difference to this side's clock
that a connection has shown is how far the sender's clock is behind. A larger difference is time on the way.
"""

from __future__ import annotations

# The clocks of one cluster differ by less: a larger difference in the first request means a late request.
MOST_APART_MS = 60_000
# A request that was on its way longer than this is late. No server refuses a request that is younger.
LATE_MS = 500
# If all requests are late for this long, one of the clocks was set.
STEP_MS = 1000


class PeerClock:
    """The difference between the clocks of a connection's two ends, as its requests show it."""

    __slots__ = ("_behind_ms", "_late_since_ms")

    def __init__(self) -> None:
        self._behind_ms: int | None = None
        self._late_since_ms: int | None = None

    def way_ms(self, made_ms: int, now_ms: int) -> int:
        """How long a request was on its way, in milliseconds.

        Whether a request is late does not depend on its own timeout: requests with long and short timeouts
        share a connection, and the former must not hide from the latter that a clock was set.

        Args:
            made_ms: when the request was made, by the sender's clock.
            now_ms: the time by this side's clock.
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
