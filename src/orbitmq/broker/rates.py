"""Messages per second over the last 10 seconds, minute and ten minutes (StoreStatsService)."""

from __future__ import annotations

from collections import deque

SAMPLE_SECONDS = 10.0
SPANS = (1, 6, 60)  # in samples


class Rates:
    """Samples of the broker's counters, taken every :data:`SAMPLE_SECONDS`."""

    PUT = 0
    GET = 1

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SPANS[-1] + 1)

    def sample(self, now: float, put: int, get: int) -> None:
        """Note the counters at the time ``now`` (monotonic seconds)."""
        self._samples.append((now, put, get))

    def per_second(self, which: int, span: int) -> float:
        """The rate over the last ``span`` samples, or since the first one."""
        if len(self._samples) < 2:
            return 0.0
        newest = self._samples[-1]
        oldest = self._samples[max(0, len(self._samples) - 1 - span)]
        return (newest[1 + which] - oldest[1 + which]) / (newest[0] - oldest[0])

    def text(self, which: int) -> str:
        """The three rates, as mqadmin's clusterList reads them."""
        return " ".join(f"{self.per_second(which, span):.1f}" for span in SPANS)
