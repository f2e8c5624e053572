"""The result of a command, printed as tables and lines or as one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from orbitmq.cli.failures import EXIT_FAILED
from orbitmq.cli.formats import shown
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import tell_not_done, tell_not_shown
from orbitmq.message.model import MessageQueue

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut

Columns = Mapping[str, str | Callable[[Mapping[str, Any]], object]]
# How a key of the JSON is written where Python's name is another one.
KEYS = {"broker_name": "broker", "queue_id": "queue"}


@dataclass(frozen=True)
class Table:
    """Rows of one kind.

    Attributes:
        name: their key in the JSON object.
        rows: JSON objects; dataclasses are taken as they are, see :func:`plain`.
        columns: by heading, the key of a row or what makes the cell of it.
        optional: not drawn when it has no rows.
    """

    name: str
    rows: Sequence[object]
    columns: Columns
    optional: bool = False


@dataclass(frozen=True)
class View:
    """The result of a command.

    Attributes:
        facts: fields of the JSON object.
        tables: drawn for people, and fields of the JSON object.
        before, lines: text for people before and behind the tables.
        notes: text for standard error, also beside JSON.
        left_out: the servers that did not answer, or refused.
        missing: what is not shown of them ("its queues are"); ``None``: a change was not made there.
        finish: how a change is finished there.
        failed: the exit code is 1 though all answered.
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

    def as_json(self) -> dict[str, Any]:
        """The JSON object. ``left_out`` is always there."""
        tables = {table.name: [plain(row) for row in table.rows] for table in self.tables}
        left_out = [
            {"broker": one.name, "address": one.address, "reason": one.reason} for one in self.left_out
        ]
        return {**{key: plain(value) for key, value in self.facts.items()}, **tables, "left_out": left_out}

    def show(self, *, as_json: bool) -> int:
        """Print the view; the exit code."""
        if as_json:
            print_json(self.as_json())
        else:
            self._draw()
        for note in self.notes:
            print(note, file=sys.stderr)
        if self.missing is None:
            code = tell_not_done(self.left_out, self.finish)
        else:
            code = tell_not_shown(self.left_out, self.missing)
        return EXIT_FAILED if self.failed else code

    def _draw(self) -> None:
        for line in self.before:
            print(line)
        drawn = [table for table in self.tables if table.rows or not table.optional]
        for number, table in enumerate(drawn):
            if number or self.before:
                print()
            rows = [plain(row) for row in table.rows]
            print_table(
                list(table.columns), [[_cell(row, key) for key in table.columns.values()] for row in rows]
            )
        for line in self.lines:
            print(line)


def _cell(row: Mapping[str, Any], key: str | Callable[[Mapping[str, Any]], object]) -> object:
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


def plain(value: object) -> Any:
    """A value as JSON has it: Python's names, instants in ISO 8601, a queue as topic, broker and id."""
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
