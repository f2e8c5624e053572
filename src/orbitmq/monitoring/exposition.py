"""Writes metrics as text for Prometheus (format 0.0.4), up to a limit of series.

The series of many topics and groups are written as rows: their labels are prepared once, and one formatting
operation writes the numbers of all rows. The text of unchanged numbers is reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from orbitmq.runtime.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The most series in one rendered part, which takes well below a millisecond.
LINES = 400
# The most metrics with the same rows whose texts are kept.
MAX_KEPT = 16


class Exposition:
    """The text of one scrape.

    Args:
        common: labels that every series has.
        limit: the most series of the text.

    Attributes:
        cut: how many series were left out because of the limit.
    """

    def __init__(self, common: Mapping[str, str], limit: int) -> None:
        self.common = _pairs(common)
        self.cut = 0
        self._room = limit
        self._families: dict[str, MetricFamily] = {}

    @property
    def room(self) -> int:
        """How many more series the limit allows."""
        return self._room

    def family(self, name: str, kind: str, meaning: str, **common: str) -> MetricFamily:
        """The metric of this name, created at the first call; it is shown even without series.

        Args:
            kind: ``counter``, ``gauge`` or ``histogram``.
            common: labels that each of its series has.
        """
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = self.new_family(name, kind, meaning, common)
        return family

    def new_family(self, name: str, kind: str, meaning: str, common: Mapping[str, str]) -> MetricFamily:
        """Create a metric."""
        return MetricFamily(self, name, kind, meaning, common)

    def take(self, series: int = 1) -> bool:
        """Reserve room for this number of further series, if there is enough."""
        if self._room < series:
            self.cut += series
            return False
        self._room -= series
        return True

    def take_some(self, series: int) -> int:
        """Reserve room for these series, as far as the limit allows; returns for how many."""
        taken = min(series, self._room)
        self.cut += series - taken
        self._room -= taken
        return taken

    def take_groups(self, groups: int, series: int) -> int:
        """As :meth:`take_some`, for whole groups of ``series`` series each; returns the number of groups."""
        taken = min(groups, self._room // series)
        self.cut += (groups - taken) * series
        self._room -= taken * series
        return taken

    def give_place(self) -> None:
        """Raise the limit by one series."""
        self._room += 1

    def parts(self) -> Iterator[bytes]:
        """The whole text in parts of at most ``LINES`` series; rows written together form one part."""
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
        names: the names of the labels.
        rows: the values of the labels in each row.
    """

    __slots__ = ("_buckets", "_kept", "_text", "names", "rows")

    def __init__(self, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
        self.names = names
        self.rows = rows
        lines = [_pairs(dict(zip(names, row, strict=True))).replace("%", "%%") + "} %d\n" for row in rows]
        self._text = "".join(lines).encode()
        self._buckets: LabelRows | None = None
        # By the beginning of the lines: the numbers of the last scrape, and their text if they did not
        # change.
        self._kept: dict[bytes, tuple[tuple[int, ...], bytes]] = {}

    def buckets(self, bounds: Sequence[float]) -> LabelRows:
        """The labels of a histogram's buckets in each row. All calls must have the same bounds."""
        if self._buckets is None:
            rows = [(*row, end) for row in self.rows for end in _ends(bounds)]
            self._buckets = LabelRows((*self.names, "le"), rows)
        return self._buckets

    def text(self, begin: bytes, values: Sequence[int]) -> bytes:
        """The lines of the first rows, one for each value; every line begins with ``begin``."""
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
            # Labels have only escaped line ends, so each line end is a row's.
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
        # The metric's head and its single series, and the texts of rows.
        self.lines = [f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"]
        self.rows: list[bytes] = []

    def add(self, value: float, **labels: str) -> None:
        """Add one series, unless the limit is reached. Each call in a scrape must have other labels."""
        if self._exposition.take():
            own = _pairs(labels)
            self.lines.append(f"{self._begin}{',' if own else ''}{own}}} {value!r}\n")

    def add_rows(self, values: Sequence[int], rows: LabelRows) -> None:
        """Add one series for each row, as far as the limit allows."""
        taken = self._exposition.take_some(len(values))
        if taken:
            self.rows.append(rows.text(self._row_begin(), values[:taken]))

    def add_histogram_rows(self, found: Sequence[Histogram], rows: LabelRows) -> None:
        """Add one histogram for each row, as far as the limit allows; all must have the same bounds."""
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
        """Add the series of one histogram: one for each bound, the sum and the count."""
        bounds = _ends(found.bounds)
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


def _ends(bounds: Sequence[float]) -> list[str]:
    """The label ``le`` of a histogram's buckets, written as Apache's broker does: 1024.0, not 1024."""
    return [*(repr(float(bound)) for bound in bounds), "+Inf"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
