"""Draws steps on one axis of time as bars in SVG, which needs no style sheet in the page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.console.model import span_text

# The most marks of the axis after its first one, so that their texts fit beside each other on a phone.
MOST_MARKS: Final = 4
_STEPS: Final = (
    *(base * 10.0**power for power in range(-3, 1) for base in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
    *(hours * 3600.0 for hours in (1, 2, 6, 12, 24, 48, 120, 240)),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """The place of a step on the axis, in percent.

    Attributes:
        row: the step.
        begin: the step's beginning; ``None`` if its time is unknown.
        width: the step's duration.
        wait: the beginning of the wait before the step; ``None`` without a wait.
    """

    row: Mapping[str, Any]
    begin: float | None
    width: float
    wait: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps on one axis of time.

    Attributes:
        name: the key of its heading among the texts.
        rows: the steps, each with kind, group, client, at, after (seconds since the first step), waited,
            took, result and redeliveries.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    block: str = "timeline"

    @property
    def span(self) -> float:
        """The seconds from the first step to the end of the last one; never 0."""
        ends: list[float] = [
            row["after"] + (row["took"] or 0) for row in self.rows if row["after"] is not None
        ]
        return max([0.001, *ends])

    @property
    def bars(self) -> Sequence[Bar]:
        """The steps with their places on the axis."""
        return [self._bar(row) for row in self.rows]

    @property
    def marks(self) -> Sequence[tuple[float, str]]:
        """The marks of the axis, each with its place in percent and its time."""
        span = self.span
        step = next((one for one in _STEPS if span / one <= MOST_MARKS), span)
        return [(_percent(at * step, span), brief_text(at * step)) for at in range(int(span / step) + 1)]

    def _bar(self, row: Mapping[str, Any]) -> Bar:
        after, span = row["after"], self.span
        if after is None:
            return Bar(row, None, 0, None)
        waited = max(0.0, min(row["waited"] or 0.0, after))
        return Bar(
            row,
            _percent(after, span),
            _percent(row["took"] or 0.0, span),
            _percent(after - waited, span) if waited else None,
        )


def _percent(seconds: float, span: float) -> float:
    return round(100 * seconds / span, 2)


def brief_text(value: float | None) -> str:
    """A span of time, in milliseconds if it is below a second: 12 ms, 4.2 s, 3 min 20 s."""
    if value is None:
        return ""
    return f"{value * 1000:,.0f} ms" if abs(value) < 0.9995 or value < 0 else span_text(value)
