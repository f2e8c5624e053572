"""Counts of values by their size: a histogram of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts values by their size.

    Args:
        bounds: ascending; a value counts at the first bound that it does not exceed, or above all.

    Attributes:
        counts: values at each bound, and last those above all.
        total: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: float = 0

    def note(self, value: float, times: int = 1) -> None:
        """Count a value, once or several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
