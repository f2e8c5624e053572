"""The rates of brokers and topics over the last minutes, recorded from the answers that pages request anyway.

The history makes no requests of its own: while no page is open, it has a gap. Its size is limited. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.console.disks import Disks

# One point is kept for every five seconds, for ten minutes.
STEP_MS: Final = 5_000
MOST_POINTS: Final = 120
# The most lines of one chart; those with the largest rates are shown.
MOST_LINES: Final = 8
# The most series of one kind that are kept.
MOST_SERIES: Final = 200
# End offsets older than this give no rate, which would be the mean of a long time.
LONGEST_MS: Final = 60_000
Point = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a chart, each with one value for each time; ``None`` where there is no value."""

    times: Sequence[int]
    lines: Mapping[str, Sequence[float | None]]


class Series:
    """Rates of one kind, by name."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, Point]] = deque(maxlen=MOST_POINTS)

    def note(self, at_ms: int, rates: Point) -> None:
        """Record the largest rates at a time. Further rates within the same step are ignored."""
        if self._points and at_ms - self._points[-1][0] < STEP_MS:
            return
        kept = sorted(rates.items(), key=lambda one: -one[1])[:MOST_SERIES]
        self._points.append((at_ms, dict(kept)))

    @property
    def newest(self) -> Point:
        """The latest rates."""
        return self._points[-1][1] if self._points else {}

    def lines(self, now_ms: int) -> Lines:
        """The lines with the largest rates; times are seconds since 1970. A gap is a point without values."""
        first = now_ms - MOST_POINTS * STEP_MS
        points = [point for point in self._points if point[0] >= first]
        sums: dict[str, float] = {}
        for _, rates in points:
            for name, rate in rates.items():
                sums[name] = sums.get(name, 0.0) + rate
        names = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_LINES]
        times: list[int] = []
        lines: dict[str, list[float | None]] = {name: [] for name in sorted(names)}
        before = None
        for at_ms, rates in points:
            if before is not None and at_ms - before > 3 * STEP_MS:
                times.append((before + STEP_MS) // 1000)
                for values in lines.values():
                    values.append(None)
            times.append(at_ms // 1000)
            for name, values in lines.items():
                values.append(rates.get(name))
            before = at_ms
        return Lines(times, lines)


class History:
    """The history of one cluster.

    Attributes:
        came, gone: messages a second to and from each broker.
        topics: messages a second to each topic that a group reads.
        disks: the growth of the brokers' logs.
    """

    def __init__(self) -> None:
        self.came, self.gone, self.topics = Series(), Series(), Series()
        self.disks = Disks()
        self._ends: tuple[int, Mapping[str, int]] | None = None
        # By topic whose page was shown: the time, the sum of the end offsets then, and the rate before that.
        self._looks: dict[str, tuple[int, int, float | None]] = {}

    def note_brokers(self, at_ms: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record the rates in the rows of the table of brokers."""
        for series, key in ((self.came, "in_rate"), (self.gone, "out_rate")):
            series.note(at_ms, {_broker(row): row[key] for row in rows if row[key] is not None})

    def note_ends(self, at_ms: int, ends: Mapping[str, int]) -> Point:
        """Record the sum of each topic's end offsets; returns the rates since the last record."""
        before = self._ends
        if before is not None and at_ms - before[0] < STEP_MS:
            return self.topics.newest
        self._ends = at_ms, ends
        if before is None or at_ms - before[0] > LONGEST_MS:
            return {}
        seconds = (at_ms - before[0]) / 1000
        rates = {
            topic: round(max(0, end - before[1][topic]) / seconds, 1)
            for topic, end in ends.items()
            if topic in before[1]
        }
        self.topics.note(at_ms, rates)
        return rates

    def note_topic(self, at_ms: int, topic: str, end: int) -> float | None:
        """Record the sum of the end offsets of one topic's queues. Returns the rate since the last record;
        ``None`` if that is more than a minute ago.
        """
        before_ms, before, rate = self._looks.pop(topic, (0, 0, None))
        passed_ms = at_ms - before_ms
        if passed_ms < STEP_MS:
            self._looks[topic] = before_ms, before, rate
            return rate
        rate = round(max(0, end - before) * 1000 / passed_ms, 1) if passed_ms <= LONGEST_MS else None
        self._looks[topic] = at_ms, end, rate
        while len(self._looks) > MOST_SERIES:
            del self._looks[next(iter(self._looks))]
        return rate


def _broker(row: Mapping[str, Any]) -> str:
    return str(row["name"]) if row["id"] == 0 else f"{row['name']} ({row['id']})"
