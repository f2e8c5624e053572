"""Decides whether a benchmark fails: if a goal is missed by a factor of two.

The goals are absolute. For a machine slower than the reference machine of `REFERENCE_S` they are scaled by
the ratio.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

TWICE = 2.0
REFERENCE_S = 0.025
"""Seconds of :func:`_work` on the machine on which the limit was set (two cores, 2026-11-28)."""
WORK_RUNS = 5


@dataclass(frozen=True)
class Miss:
    """A missed goal.

    Attributes:
        text: the goal and the figure.
        times: how many times worse than the goal the figure is; infinite after a failure.
    """

    text: str
    times: float


def times_worse(value: float, *, least: float | None = None, most: float | None = None) -> float:
    """How many times worse than its limits a figure is; at most 1 if it meets them."""
    worse = 0.0
    if least is not None:
        worse = max(worse, least / value if value > 0 else math.inf)
    if most is not None:
        worse = max(worse, value / most if most > 0 else (math.inf if value > most else 1.0))
    return worse


def slower() -> float:
    """How many times slower this machine is than the reference machine of :data:`REFERENCE_S`; at least 1."""
    return max(1.0, min(_work() for _ in range(WORK_RUNS)) / REFERENCE_S)


def _work() -> float:
    """The CPU time, in seconds, of a fixed piece of work in Python and C."""
    begin = time.process_time()
    block, total = bytes(1 << 20), 0
    for number in range(400_000):
        total = (total * 31 + number) & 0xFFFF_FFFF
    for _ in range(24):
        total = zlib.crc32(block, total)
    return time.process_time() - begin


def exit_code(missed: Sequence[Miss]) -> int:
    """The exit code: 1 if a goal was missed by a factor of two; prints the goal and the factor."""
    if not any(miss.times >= TWICE for miss in missed):
        return 0
    allowed = TWICE * slower()
    red = [miss for miss in missed if miss.times >= allowed]
    for miss in red:
        print(f"FAILED: {miss.text}: {miss.times:.1f} times worse than the goal; the limit is {allowed:.1f}")
    return 1 if red else 0
