"""The tables of the record ``operate``, one for each of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.operate.model import Line, Row

HEADINGS = ("measured", "quartiles", "from", "goal", "met")


def tables(rows: Mapping[str, Row], taken: Mapping[str, Any]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Headings and lines of each row in the record."""
    for key, row in rows.items():
        if key in taken:
            found = taken[key]["found"]
            lines = [cells(line, found[line.key]) for line in row.lines if line.key in found]
            yield [row.title, *HEADINGS], lines


def cells(line: Line, found: Mapping[str, Any]) -> list[str]:
    """The table's line for one figure."""
    value, low, high = found["value"], found["low"], found["high"]
    spread = "" if low is None else f"{line.shown(low)} to {line.shown(high)}"
    met = {None: "", True: "yes", False: "**no**"}[line.met(value)]
    return [line.what, line.shown(value), spread, found["made_of"], line.goal(), met]
