"""What commands print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned with two spaces between; numbers stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(headings))
    ]

    def line(texts: Sequence[str]) -> str:
        parts = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(headings), *map(line, cells)])


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table of rich on a terminal, which folds long cells; in a pipe plain columns of any width."""
    if not sys.stdout.isatty():
        print(table(headings, rows))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        numbers = bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        drawn.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(str, row))
    Console(highlight=False, markup=False).print(drawn)


def lost_masters(names: Sequence[str]) -> list[str]:
    """A line that says on which brokers a change was not made, as they have no master; none: on no one."""
    if not names:
        return []
    return [f"not on {', '.join(names)}: no master is online there; repeat the command when one is"]


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print ``value`` as JSON; ``one_line`` for a stream of values, one for each line."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=plain, indent=None if one_line else 2)
    sys.stdout.write(text + "\n")
    if one_line:
        sys.stdout.flush()
