"""The lines of the table that compares gRPC's rows with their goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.pages.records import cost

HEADINGS = ["row", "OrbitMQ", "Apache RocketMQ 5.5.0", "ours to Apache's", "goal", "met"]


def cell(one: Mapping[str, float]) -> str:
    """The text of a rate and its CPU."""
    return cost(dict(one))


def ratio(values: Mapping[str, Sequence[float]]) -> float:
    """The median of the ratios within the turns: ours to Apache's.

    Args:
        values: the values of each turn; the first key is OrbitMQ's and the second Apache's.
    """
    ours, apache = values.values()
    return statistics.median(mine / theirs for mine, theirs in zip(ours, apache, strict=True))


def line(
    title: str,
    cells: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    least: float | None = None,
    most: float | None = None,
) -> list[str]:
    """A line of the table, judged by :func:`ratio`.

    Args:
        cells: the cells of both sides.
        least, most: the bound of the ratio; exactly one is given.
    """
    found = ratio(values)
    if least is not None:
        goal, met = f">= {least:.2f}", found >= least
    else:
        assert most is not None
        goal, met = f"<= {most:.2f}", found <= most
    return [title, *cells, f"{found:.2f}", goal, "yes" if met else "**no**"]
