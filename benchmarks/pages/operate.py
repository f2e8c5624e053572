"""The tables of the costs of operating a broker, and whether the goals were met."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.operate.rows import ROWS
from benchmarks.operate.tables import tables
from benchmarks.pages.records import record, table, taken


def operate() -> str:
    """A table for each row of the record."""
    found = [table(headings, lines) for headings, lines in tables(ROWS, record("operate")["rows"])]
    return "\n\n".join([*found, f"{taken(record('operate'))}."])


BLOCKS: dict[str, Callable[[], str]] = {"operate": operate}
