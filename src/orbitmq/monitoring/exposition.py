"""Writes metrics as text for Prometheus (format 0.0.4), up to a limit of series.

Series of many topics and groups are written as rows: their labels are prepared once, and one formatting of
bytes writes the numbers of a hundred rows. Numbers that stand still are not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from orbitmq.runtime.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The series of one rendered part: well below a millisecond of work.
LINES = 400
# Metrics that have the same rows; the texts of more than these are not kept.
MAX_KEPT = 16


class Exposition:
    """The text of one scrape.

    Args:
        common: labels that every series has.
        limit: how many series the text may have.

    Attributes:
        cut: series that were left out for the limit.
    """

    def __init__(self, common: Mapping[str, str], limit: int) -> None:
        self.common = _pairs(common)
        self.cut = 0
        self._room = limit
        self._families: dict[str, MetricFamily] = {}

    @property
    def room(self) -> int:
        """How many series the text can still take."""
        return self._room

    def family(self, name: str, kind: str, meaning: str, **common: str) -> MetricFamily:
        """A metric with all its series; it is there without any, too. Asked for again it is the same one.

        Args:
            kind: ``counter``, ``gauge`` or ``histogram``.
            common: labels that each of its series has.
        """
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = self.new_family(name, kind, meaning, common)
        return family

    def new_family(self, name: str, kind: str, meaning: str, common: Mapping[str, str]) -> MetricFamily:
        """A metric that is not there yet."""
        return MetricFamily(self, name, kind, meaning, common)

    def take(self, series: int = 1) -> bool:
        """Reserve room for this number of further series, if there is enough."""
        if self._room < series:
            self.cut += series
            return False
        self._room -= series
        return True

    def take_some(self, series: int) -> int:
        """Reserve room for as many of these series as there is room for; returns their number."""
        taken = min(series, self._room)
        self.cut += series - taken
        self._room -= taken
        return taken

    def take_groups(self, groups: int, series: int) -> int:
        """As :meth:`take_some`, of groups of so many series, each whole."""
        taken = min(groups, self._room // series)
        self.cut += (groups - taken) * series
        self._room -= taken * series
        return taken

    def give_place(self) -> None:
        """Make room for one more series."""
        self._room += 1

    def parts(self) -> Iterator[bytes]:
        """The whole text in parts; most have ``LINES`` series at most, or as many as were written as rows."""
        for family in self._families.values():
            for begin in range(0, len(family.lines), LINES):
                yield "".join(family.lines[begin : begin + LINES]).encode()
            yield from family.rows

    def render(self) -> bytes:
        """The whole text."""
        return b"".join(self.parts())


class LabelRows:
    """The labels of several series, prepared once for all metrics and scrapes that have the same rows.

    Args:
        names: of the labels.
        rows: their values, of each row.
    """

    __slots__ = ("_buckets", "_kept", "_text", "names", "rows")

    def __init__(self, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
        self.names = names
        self.rows = rows
        lines = [_pairs(dict(zip(names, row, strict=True))).replace("%", "%%") + "} %d\n" for row in rows]
        self._text = "".join(lines).encode()
        self._buckets: LabelRows | None = None
        # The numbers of the last scrape by the beginning of their lines, with the text if they stood still.
        self._kept: dict[bytes, tuple[tuple[int, ...], bytes]] = {}

    def buckets(self, bounds: Sequence[float]) -> LabelRows:
        """The labels of a histogram's buckets in each row; the bounds are always the same ones."""
        if self._buckets is None:
            ends = [*map(repr, bounds), "+Inf"]
            rows = [(*row, end) for row in self.rows for end in ends]
            self._buckets = LabelRows((*self.names, "le"), rows)
        return self._buckets

    def text(self, begin: bytes, values: Sequence[int]) -> bytes:
        """The lines of the first rows, one of each value; every line begins with ``begin``."""
        numbers = tuple(values)
        before, text = self._kept.get(begin, ((), b""))
        stand_still = before == numbers
        if stand_still and text:
            return text
        text = self._lines(begin, numbers)
        if len(self._kept) < MAX_KEPT or begin in self._kept:
            self._kept[begin] = numbers, text if stand_still else b""
        return text

    def _lines(self, begin: bytes, values: tuple[int, ...]) -> bytes:
        text = self._text
        if len(values) < len(self.rows):
            # Line ends in labels are escaped: each line end is that of a row.
            text = b"\n".join(text.split(b"\n", len(values))[: len(values)]) + b"\n"
        return begin + (text % values).replace(b"\n", b"\n" + begin, len(values) - 1)


class MetricFamily:
    """One metric: its name, its type, its series."""

    def __init__(
        self, exposition: Exposition, name: str, kind: str, meaning: str, common: Mapping[str, str]
    ) -> None:
        self._exposition = exposition
        self._name = name
        self._common = ",".join(filter(None, (exposition.common, _pairs(common))))
        self._begin = f"{name}{{{self._common}"
        # The head with single series, and the text of rows.
        self.lines = [f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"]
        self.rows: list[bytes] = []

    def add(self, value: float, **labels: str) -> None:
        """One series, unless the limit is reached. The same labels come once in a scrape."""
        if self._exposition.take():
            own = _pairs(labels)
            self.lines.append(f"{self._begin}{',' if own else ''}{own}}} {value!r}\n")

    def add_rows(self, values: Sequence[int], rows: LabelRows) -> None:
        """A series of each row, as far as the limit allows."""
        taken = self._exposition.take_some(len(values))
        if taken:
            self.rows.append(rows.text(self._row_begin(), values[:taken]))

    def add_histogram_rows(self, found: Sequence[Histogram], rows: LabelRows) -> None:
        """A histogram of each row, as far as the limit allows; all have the same bounds."""
        taken = self._exposition.take_groups(len(found), len(found[0].bounds) + 3) if found else 0
        if taken:
            found = found[:taken]
            numbers = [number for each in found for number in accumulate(each.counts)]
            counts = numbers[len(found[0].bounds) :: len(found[0].bounds) + 1]
            self.rows += [
                rows.buckets(found[0].bounds).text(self._row_begin("_bucket"), numbers),
                rows.text(self._row_begin("_sum"), [int(each.total) for each in found]),
                rows.text(self._row_begin("_count"), counts),
            ]

    def _row_begin(self, suffix: str = "") -> bytes:
        return f"{self._name}{suffix}{{{self._common}{',' if self._common else ''}".encode()

    def add_histogram(self, found: Histogram, **labels: str) -> None:
        """The series of one histogram: one for each bound, their sum and their number."""
        bounds = [*map(repr, found.bounds), "+Inf"]
        if not self._exposition.take(len(bounds) + 2):
            return
        name, common = self._name, ",".join(filter(None, (self._common, _pairs(labels))))
        numbers = list(accumulate(found.counts))
        self.lines += [
            f'{name}_bucket{{{common},le="{bound}"}} {number}\n'
            for bound, number in zip(bounds, numbers, strict=True)
        ]
        self.lines.append(f"{name}_sum{{{common}}} {found.total!r}\n{name}_count{{{common}}} {numbers[-1]}\n")


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
