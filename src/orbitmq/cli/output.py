"""Output of commands: aligned tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from orbitmq.wording import Remark

if TYPE_CHECKING:
    from rich.table import Table

Cells = Sequence[Sequence[object]]
Tell = Callable[[str], None]
# Return to the first column of the terminal and clear the line.
CLEAR = "\r\x1b[K"


def table(headings: Sequence[str], rows: Cells) -> str:
    """Columns aligned with two spaces between them; numbers are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [_numbers(rows, number) for number in range(len(headings))]

    def line(texts: Sequence[str]) -> str:
        parts = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(headings), *map(line, cells)])


def _numbers(rows: Cells, column: int) -> bool:
    return bool(rows) and all(isinstance(row[column], int | float) for row in rows)


def rich_table(headings: Sequence[str], rows: Cells, red: Sequence[bool]) -> Table:
    """The table for a terminal: long cells are folded, marked rows are red."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        justify = "right" if _numbers(rows, number) else "left"
        drawn.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row, is_red in zip(rows, red, strict=True):
        drawn.add_row(*(Text(str(cell)) for cell in row), style="red" if is_red else None)
    return drawn


def fitted(
    headings: Sequence[str], rows: Cells, columns: int, spared: Sequence[str]
) -> tuple[Sequence[str], Cells, Sequence[str]]:
    """Drop table columns until the table fits a terminal that is ``columns`` characters wide.

    Columns of ``spared`` are dropped in their order. Returns the remaining headings and rows, and the dropped
    headings.
    """
    kept, left_out = list(headings), list[str]()
    cells: Cells = rows
    for heading in spared:
        if max(map(len, table(kept, cells).splitlines())) <= columns:
            break
        left_out.append(heading)
        kept.remove(heading)
        cells = [[cell for cell, name in zip(row, headings, strict=True) if name in kept] for row in rows]
    return kept, cells, left_out


@contextmanager
def progress(out: TextIO | None = None, *, wanted: bool = True) -> Iterator[Tell]:
    """Yield a function that shows the progress of long work on one line of a terminal. In a pipe it prints
    only remarks.

    Args:
        out: the terminal; None for standard error.
        wanted: whether to show progress; false while the command prints its result to the same terminal.
    """
    stream = out or sys.stderr
    over = wanted and stream.isatty()

    def tell(line: str) -> None:
        if isinstance(line, Remark):
            print(f"{CLEAR if over else ''}{line}", file=stream, flush=True)
        elif over:
            # A terminal without a known size reports 0.
            width = os.get_terminal_size(stream.fileno()).columns or 80
            print(f"{CLEAR}{line[: width - 1]}", end="", file=stream, flush=True)

    try:
        yield tell
    finally:
        if over:
            print(CLEAR, end="", file=stream, flush=True)


def json_text(value: Any, *, one_line: bool = False) -> str:
    """``value`` as JSON; ``one_line`` for a stream with one value per line."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=plain, indent=None if one_line else 2)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print ``value`` as JSON; with ``one_line``, flush at once."""
    print(json_text(value, one_line=one_line), flush=one_line)
