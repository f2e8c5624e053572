"""The rows of the record ``operate``: their measurements, the goals of their figures, and their
environment.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Generator
from benchmarks.pages.records import number


@dataclass(frozen=True)
class Line:
    """One figure of a row.

    Attributes:
        unit: empty for a ratio.
        least, most: the goal.
    """

    key: str
    what: str
    unit: str = ""
    least: float | None = None
    most: float | None = None

    def goal(self) -> str:
        """The goal as text; empty without a goal."""
        if self.least is not None:
            return f">= {self.shown(self.least)}"
        return "" if self.most is None else f"<= {self.shown(self.most)}"

    def met(self, value: float) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.least is not None:
            return value >= self.least
        return None if self.most is None else value <= self.most

    def shown(self, value: float) -> str:
        """A value with its unit."""
        return f"{number(value)} {self.unit}" if self.unit else f"{value:.3f}"


@dataclass(frozen=True)
class Found:
    """A figure: the median, the quartiles of the rounds if there are several, and the numbers from which it
    was computed.
    """

    value: float
    low: float | None = None
    high: float | None = None
    made_of: str = ""


@dataclass(frozen=True)
class Place:
    """The environment of a row.

    Attributes:
        folder: the folder for the servers' data.
        apache: the class path of Apache's servers; None if they are not available.
    """

    folder: Path
    short: bool
    apache: str | None = None

    @property
    def server_cpus(self) -> set[int] | None:
        """The processors for a broker that is measured alone; None for any."""
        available = sorted(os.sched_getaffinity(0))
        return set(available[:1]) if len(available) > 1 else None

    @property
    def other_cpus(self) -> set[int] | None:
        """The processors for all other processes in that case."""
        return set(sorted(os.sched_getaffinity(0))[1:]) or None

    def apart(self) -> Generator:
        """A load generator that does not use the broker's processor."""
        return Generator(self.other_cpus)

    def rounds(self, full: int, short: int = 2) -> int:
        """Number of turns of each side."""
        return short if self.short else full

    def seconds(self, full: float, short: float) -> float:
        """Duration of one run."""
        return short if self.short else full


@dataclass(frozen=True)
class Row:
    """A row, which can be measured alone.

    Attributes:
        take: measures the row; lines that cannot be measured here are left out.
    """

    key: str
    title: str
    lines: tuple[Line, ...]
    take: Callable[[Place], Mapping[str, Found]]


def middle(values: Sequence[float], made_of: str = "") -> Found:
    """The median of some values, with their quartiles."""
    if len(values) < 2:
        return Found(values[0], made_of=made_of)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Found(median, low, high, made_of)


def ratio(of: Sequence[float], to: Sequence[float], shape: str) -> Found:
    """The median of the ratios within the rounds; ``shape`` formats the two medians behind it."""
    made_of = f"{shape.format(statistics.median(of))} / {shape.format(statistics.median(to))}"
    return middle([a / b for a, b in zip(of, to, strict=True)], made_of)


def more(of: Sequence[float], than: Sequence[float], shape: str) -> Found:
    """The median of the differences within the rounds."""
    made_of = f"{shape.format(statistics.median(of))} - {shape.format(statistics.median(than))}"
    return middle([a - b for a, b in zip(of, than, strict=True)], made_of)
