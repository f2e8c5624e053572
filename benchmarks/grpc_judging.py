"""The lines of the table in which gRPC's rows stand beside their goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.pages.records import cost

HEADINGS = ["row", "OrbitMQ", "Apache RocketMQ 5.5.0", "ours to Apache's", "goal", "met"]


def cell(one: Mapping[str, float]) -> str:
    """Rate and CPU."""
    return cost(dict(one))


def ratio(values: Mapping[str, Sequence[float]]) -> float:
    """The median of the ratios within the turns: ours to Apache's.

    Args:
        values: of each turn, the first key is ours and the second one Apache's.
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
        cells: what is shown of both sides.
        least, most: bounds of the ratio; one of them.
    """
    found = ratio(values)
    if least is not None:
        goal, met = f">= {least:.2f}", found >= least
    else:
        assert most is not None
        goal, met = f"<= {most:.2f}", found <= most
    return [title, *cells, f"{found:.2f}", goal, "yes" if met else "**no**"]
