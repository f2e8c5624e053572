"""Results of commands, printed as tables and lines or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK
from orbitmq.cli.formats import shown
from orbitmq.cli.output import fitted, print_json, rich_table, table
from orbitmq.cli.partial import tell_not_done, tell_not_shown
from orbitmq.cli.tls_words import as_options
from orbitmq.message.model import MessageQueue

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from orbitmq.admin import LeftOut

Row = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Row], object]]
# Keys of the JSON output that differ from Python's names.
KEYS = {"broker_name": "broker", "queue_id": "queue"}


def same(*headings: str) -> dict[str, str | Callable[[Row], object]]:
    """Columns whose keys are their headings, with ``_`` for spaces."""
    return {heading: heading.replace(" ", "_") for heading in headings}


@dataclass(frozen=True)
class Table:
    """Rows of one kind.

    Attributes:
        name: the key of the rows in the JSON object; empty for a table that is only drawn for people.
        rows: JSON objects or dataclasses, see :func:`plain`.
        columns: for each heading, a key of the row, or a function that returns the row's cell.
        optional: whether a table without rows is not drawn.
        spared: headings of columns that are dropped on a narrow terminal, in this order.
        red: whether a row is drawn in red.
    """

    name: str
    rows: Sequence[object]
    columns: Columns
    optional: bool = False
    spared: Sequence[str] = ()
    red: Callable[[Row], bool] = lambda _: False

    def drawn(self, width: int | None) -> list[RenderableType]:
        """The table for a terminal of this many columns; ``None``: as text of any width."""
        rows: list[Row] = [plain(row) for row in self.rows]
        cells = [[_cell(row, key) for key in self.columns.values()] for row in rows]
        if width is None:
            return [table(list(self.columns), cells)]
        headings, kept, left_out = fitted(list(self.columns), cells, width, self.spared)
        note = [f"(no room for: {', '.join(left_out)})"] if left_out else []
        return [rich_table(headings, kept, [self.red(row) for row in rows]), *note]


@dataclass(frozen=True)
class View:
    """The result of a command.

    Attributes:
        facts: fields of the JSON object.
        tables: tables, which are also fields of the JSON object.
        before, lines: text for people before and after the tables.
        notes: text for standard error, even with JSON.
        left_out: the servers that did not answer, or refused.
        missing: the part of the result that those servers lack ("its queues are"); ``None`` if a change was
            not made there.
        finish: how to finish the change there.
        failed: whether the exit code is 1 although all servers answered.
        code: the exit code of a command with exit codes of its own.
        moment: the time of a view that replaces the previous one.
    """

    facts: Mapping[str, object]
    tables: Sequence[Table] = ()
    before: Sequence[str] = ()
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    left_out: Sequence[LeftOut] = ()
    missing: str | None = None
    finish: str = "to finish, run it again when all answer"
    failed: bool = False
    code: int | None = None
    moment: str = ""

    def as_json(self) -> dict[str, Any]:
        """The JSON object. It always has ``left_out``."""
        tables = {table.name: [plain(row) for row in table.rows] for table in self.tables if table.name}
        left_out = [left_out_row(one) for one in self.left_out]
        found = {**{key: plain(value) for key, value in self.facts.items()}, **tables}
        return found | {"left_out": found.get("left_out", left_out)}

    def show(self, *, as_json: bool, one_line: bool = False) -> int:
        """Print the view; returns the exit code."""
        if as_json:
            print_json(self.as_json(), one_line=one_line)
        else:
            self.print()
        for note in self.notes:
            print(as_options(note), file=sys.stderr)
        if self.missing is None:
            code = tell_not_done(self.left_out, self.finish)
        else:
            code = tell_not_shown(self.left_out, self.missing)
        if self.code is not None:
            return self.code
        return EXIT_FAILED if self.failed else code

    def print(self, *, to_errors: bool = False) -> None:
        """Print the text for people: to standard output, or to standard error before a confirmation."""
        out = sys.stderr if to_errors else sys.stdout
        console = _console(to_errors=to_errors) if out.isatty() else None
        for part in self.drawn(None if console is None else console.width):
            if console is None or isinstance(part, str):
                print(part, file=out)  # the terminal wraps long lines
            else:
                console.print(part)
        out.flush()

    def drawn(self, width: int | None) -> list[RenderableType]:
        """Text and tables from top to bottom."""
        parts: list[RenderableType] = [*([self.moment] if self.moment else []), *self.before]
        for number, each in enumerate(each for each in self.tables if each.rows or not each.optional):
            parts += [*([""] if number or self.before else []), *each.drawn(width)]
        return [*parts, *self.lines]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a stream, printed at once.

    Attributes:
        facts: the JSON object; ``None`` for none.
        text: the text for people; bytes are printed unchanged; ``None`` for none.
        note: text for standard error.
        failed: whether the exit code is 1.
    """

    facts: Mapping[str, object] | None = None
    text: str | bytes | None = None
    note: str = ""
    failed: bool = False


class Screen:
    """Shows the views and lines of a command one by one. A context manager.

    Args:
        to_errors: show them on standard error, and clear them at the end.
    """

    def __init__(self, *, as_json: bool, to_errors: bool = False) -> None:
        self._as_json = as_json
        self._to_errors = to_errors
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, one: View | Line) -> int:
        """Print one view or line; returns its exit code."""
        if isinstance(one, Line):
            return self._line(one)
        if one.moment and not self._as_json and sys.stdout.isatty():
            self.replace(one)
            return EXIT_FAILED if one.failed else EXIT_OK
        code = one.show(as_json=self._as_json, one_line=True)
        if one.moment and not self._as_json:
            print(flush=True)
        return code

    def _line(self, line: Line) -> int:
        if self._as_json:
            if line.facts is not None:
                print_json({key: plain(value) for key, value in line.facts.items()}, one_line=True)
        elif isinstance(line.text, bytes):
            sys.stdout.buffer.write(line.text)
            sys.stdout.buffer.flush()
        elif line.text is not None:
            print(line.text, flush=True)
        if line.note:
            print(as_options(line.note), file=sys.stderr, flush=True)
        return EXIT_FAILED if line.failed else EXIT_OK

    def replace(self, view: View) -> None:
        """Draw the view over the previous one."""
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            console = _console(to_errors=self._to_errors)
            self._live = Live(console=console, auto_refresh=False, transient=self._to_errors)
            self._live.start()
        # The width is read each time, since a window may change its size.
        parts = view.drawn(self._live.console.width)
        self._live.update(Group(*(Text(one) if isinstance(one, str) else one for one in parts)), refresh=True)


def _console(*, to_errors: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=to_errors, highlight=False, markup=False)


def _cell(row: Row, key: str | Callable[[Row], object]) -> object:
    value = row[key] if isinstance(key, str) else key(row)
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return round(value, 1)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return value


def listed(facts: Mapping[str, object]) -> list[str]:
    """A line for each fact, with the values aligned."""
    width = max(map(len, facts))
    return [f"{name:<{width}}  {_cell({name: value}, name)}" for name, value in facts.items()]


def left_out_row(one: LeftOut) -> Row:
    """A server that did not answer, as JSON has it."""
    return {"broker": one.name, "address": one.address, "reason": as_options(one.reason)}


def plain(value: object) -> Any:
    """A value in JSON's form: Python's names, instants in ISO 8601, a queue as topic, broker and id."""
    if isinstance(value, MessageQueue):
        return {"topic": value.topic, "broker": value.broker_name, "queue": value.queue_id}
    if is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {}
        for each in fields(value):
            one = getattr(value, each.name)
            if isinstance(one, MessageQueue):
                found |= plain(one)
            else:
                found[KEYS.get(each.name, each.name)] = plain(one)
        return found
    if isinstance(value, Mapping):
        return {
            str(shown(key) if isinstance(key, datetime) else key): plain(one) for key, one in value.items()
        }
    if isinstance(value, datetime):
        return shown(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
