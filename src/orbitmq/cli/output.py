"""What commands print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK
from orbitmq.cli.formats import date
from orbitmq.durations import since_1970_ms


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
    print(table(headings, rows))


def tell_lost_masters(names: Sequence[str]) -> int:
    """Something was made at every master that is online: say where there is none. Returns the exit code."""
    if names:
        print(f"not on {', '.join(names)}, which has no master now: do it again when it has", file=sys.stderr)
    return EXIT_FAILED if names else EXIT_OK


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print ``value`` as JSON; ``one_line`` for a stream of values, one for each line."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, default=_instant, ensure_ascii=plain, indent=None if one_line else 2)
    sys.stdout.write(text + "\n")
    if one_line:
        sys.stdout.flush()


def _instant(value: object) -> str:
    if isinstance(value, datetime):
        return date(since_1970_ms(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")
