"""Reads the records in benchmarks/results, and formats their numbers for pages."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.servers import ROOT

RESULTS = ROOT / "benchmarks" / "results"


@functools.cache
def record(name: str) -> dict[str, Any]:
    """The content of one record, by its file's name."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table for the pages."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float) -> str:
    """A number with three significant digits, thousands with a comma."""
    size = abs(value)
    if size == 0 or size >= 100:
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def rate(value: float, what: str = "") -> str:
    """A rate per second."""
    return f"{value:,.0f}{what and ' ' + what}/s"


def cost(one: dict[str, Any]) -> str:
    """Rate and CPU time of one figure."""
    return f"{rate(one['rate'])}; {number(one['cpu_us'])} us"


def spread(values: Sequence[float]) -> str:
    """The median, and the range of all runs."""
    middle = f"{statistics.median(values):,.0f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.0f} to {max(values):,.0f})"


def taken(content: dict[str, Any]) -> str:
    """The machine and the day of a record."""
    machine, kind = content["machine"], content["record"]["kind"]
    return f"{machine['cpus']} cores of {machine['cpu']}, {machine['taken'][:10]}, {kind} record"
