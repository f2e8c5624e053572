"""The parts of a page, such as tables and forms, independent of HTML, JSON and CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from orbitmq.message.numbers import whole_number
from orbitmq.wire.versions import name_of

if TYPE_CHECKING:
    from datetime import datetime

    from orbitmq.console.timeline import Timeline

Row = Mapping[str, Any]
Block: TypeAlias = "Table | Facts | Form | Chart | Timeline"
Kind = Literal[
    "text",
    "long",
    "snippet",
    "code",
    "number",
    "bytes",
    "seconds",
    "brief",
    "share",
    "time",
    "moment",
    "state",
    "step",
    "release",
    "body",
]
Tone = Literal["", "good", "warn", "bad"]
# The most rows of a long table on one page.
PAGE_ROWS: Final = 100
# The beginnings of texts that spreadsheets read as formulas.
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence: the key of its text, and the values in it."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)
    tone: Tone = ""


def said(text: str, tone: Tone = "", /, **values: object) -> Said:
    """The sentence of this key, with these values."""
    return Said(text, values, tone)


def plain(text: str, tone: Tone = "") -> Said:
    """A sentence of given text, in English, such as an error's."""
    return Said("plain", {"text": text}, tone)


def path_of(*parts: str, **query: str) -> str:
    """The address of a page, from the parts of its path and the non-empty values of its query."""
    path = "/" + "/".join(quote(part, safe="~:") for part in parts)
    given = urlencode({name: value for name, value in query.items() if value})
    return f"{path}?{given}" if given else path


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        link: the address that its values link to, with names of the row's values in braces.
        linked: the key of a value without which a row has no link; empty if every row has one.
    """

    key: str
    kind: Kind = "text"
    link: str = ""
    linked: str = ""

    def target(self, row: Row) -> str:
        """The address that a row's value links to; empty without a link."""
        if not self.link or row[self.key] in (None, "") or (self.linked and not row[self.linked]):
            return ""
        return self.link.format_map({key: quote(str(value), safe="") for key, value in row.items()})


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        name: the table's key in JSON, and the key of its heading among the texts.
        empty: the key of the text that replaces a table without rows, with advice.
        long: whether the table is shown in pages, and can be sorted and searched.
        choose: the key of the values that can be chosen by check boxes, and are sent to ``choosing`` as
            ``chosen``.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = "nothing"
    long: bool = False
    choose: str = ""
    choosing: Form | None = None
    block: str = "table"


@dataclass(frozen=True, slots=True)
class Facts:
    """Single values, each with the key of its name among the texts."""

    rows: Sequence[tuple[str, object, Kind]]
    block: str = "facts"


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time. A page with one has the script that draws them.

    Attributes:
        name: the chart's key in JSON, and the key of its heading among the texts.
        times: seconds since 1970.
        lines: by name, the value at each time; ``None`` where there is none.
    """

    name: str
    times: Sequence[int]
    lines: Mapping[str, Sequence[float | None]]
    block: str = "chart"

    def as_json(self) -> dict[str, Any]:
        return {"times": list(self.times), "lines": {name: list(line) for name, line in self.lines.items()}}


FieldKind = Literal["text", "number", "password", "select", "check", "area", "hidden"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. ``options`` are those of a select; ``wanted`` is the text that has to be typed."""

    name: str
    kind: FieldKind = "text"
    value: str = ""
    options: Sequence[str] = ()
    wanted: str = ""
    required: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form: a question (``post`` is false), or a change by its name.

    Attributes:
        button: the key of the button's text; empty if the form cannot be sent.
        title: the key of the form's heading; empty without one.
        danger: whether the change cannot be undone.
        needs: the role that the change needs; empty for every role.
        folded: whether only the heading is shown until the form is opened.
    """

    path: str
    button: str
    fields: Sequence[Field] = ()
    post: bool = False
    title: str = ""
    danger: bool = False
    note: Said | None = None
    needs: str = ""
    folded: bool = False
    block: str = "form"


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another page. ``text`` is a key of the texts; ``needs`` is the role that sees the link."""

    text: str
    path: str
    needs: str = ""
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes:
        name: the page's menu entry.
        title: the name of the shown topic, group or other thing; empty for a page about all of them.
        left_out: the servers that did not answer, with the reason.
        late: whether the page was not complete in time.
        cursor: the place from which the shown search continues; empty if all messages were read.
        refresh_s: the seconds after which the browser loads the page again; 0: never.
    """

    name: str
    title: str = ""
    sentence: Said | None = None
    blocks: Sequence[Block] = ()
    links: Sequence[Link] = ()
    notes: Sequence[Said] = ()
    left_out: Sequence[str] = ()
    late: bool = False
    cursor: str = ""
    refresh_s: int = 0

    @property
    def tables(self) -> Sequence[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def charts(self) -> Sequence[Chart]:
        return [block for block in self.blocks if isinstance(block, Chart)]

    def as_json(self, sentence: str) -> dict[str, Any]:
        """All values of the page, under stable English names."""
        facts = {
            name: value for block in self.blocks if isinstance(block, Facts) for name, value, _ in block.rows
        }
        return {
            "page": self.name,
            "name": self.title,
            "sentence": sentence,
            "left_out": list(self.left_out),
            "late": self.late,
            **({"cursor": self.cursor} if self.cursor else {}),
            **({"facts": facts} if facts else {}),
            **{table.name: list(table.rows) for table in self.tables},
            **{chart.name: chart.as_json() for chart in self.charts},
        }


@dataclass(frozen=True, slots=True)
class View:
    """The shown rows of a long table, with the search, order and page that chose them."""

    table: Table
    find: str
    sort: str
    page: int
    pages: int
    total: int
    found: int


def viewed(table: Table, query: Mapping[str, str]) -> View:
    """The rows of a table by the query's ``find``, ``sort`` (a column; with ``-`` the largest first) and
    ``page``. Unknown values are ignored.
    """
    if not table.long:
        return View(table, "", "", 1, 1, len(table.rows), len(table.rows))
    find, sort = query.get("find", "")[:200], query.get("sort", "")
    rows = [row for row in table.rows if find.lower() in _text(row, table)] if find else list(table.rows)
    key = sort.removeprefix("-")
    if key in {column.key for column in table.columns}:
        rows.sort(key=lambda row: _order(row[key]), reverse=sort.startswith("-"))
    else:
        sort = ""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(pages, max(1, whole_number(query.get("page", "")) or 1))
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return View(replace(table, rows=shown), find, sort, page, pages, len(table.rows), len(rows))


def _text(row: Row, table: Table) -> str:
    return " ".join(str(row[column.key]) for column in table.columns).lower()


def _order(value: object) -> tuple[int, float, str]:
    """The sort key of a value: missing values come first, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value).lower()


def as_csv(table: Table) -> str:
    """The table as CSV. A text that a spreadsheet would read as a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow([_cell(row[column.key]) for column in table.columns])
    return out.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return value
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULAS) else text


def time_text(value: datetime | None) -> str:
    """A time for a person, in UTC, to the second."""
    return "" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def moment_text(value: datetime | None) -> str:
    """A time for a person, in UTC, to the millisecond."""
    return "" if value is None else f"{time_text(value)}.{value.microsecond // 1000:03d}"


def size_text(value: float | None) -> str:
    """A size for a person: 512 B, 1.9 KiB."""
    if value is None:
        return ""
    size, units = float(value), ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    at = 0
    while size >= 1024 and at < len(units) - 1:
        size, at = size / 1024, at + 1
    return f"{size:,.0f} {units[at]}" if at == 0 else f"{size:,.1f} {units[at]}"


def span_text(value: float | None) -> str:
    """A span of time for a person: 0.4 s, 41 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if value is None:
        return ""
    if value < 10:
        return f"{value:.1f} s"
    whole = int(value)
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def release_text(value: int | None) -> str:
    """The release of a client, such as 5.3.3, by the number of its protocol version."""
    return "" if value is None else name_of(value).removeprefix("v").replace("_", ".")


def number_text(value: float | None) -> str:
    """A number for a person, with separators of thousands."""
    if value is None:
        return ""
    return f"{value:,.1f}" if value % 1 else f"{value:,.0f}"
