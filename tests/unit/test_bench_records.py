"""Records of benchmarks hold the last run of each measurement, and no series of values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PAGE_LIMIT, RECORD_LIMIT = 36_000, 110_000
"""Limits in bytes. The largest page and record are those of the faults: 73 runs of some 15 figures."""
LONGEST_SERIES = 10


def series(value: Any, place: str) -> Iterator[str]:
    """The places of lists of numbers that are longer than a record needs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from series(inner, f"{place}/{key}")
    elif isinstance(value, list):
        if len(value) > LONGEST_SERIES and all(isinstance(one, int | float) for one in value):
            yield f"{place}: {len(value)} numbers"
        for index, inner in enumerate(value):
            yield from series(inner, f"{place}/{index}")


@pytest.mark.parametrize("path", sorted(RESULTS.iterdir()), ids=lambda path: path.name)
def test_a_record_is_one_run_and_not_its_history(path: Path) -> None:
    assert path.stat().st_size <= (RECORD_LIMIT if path.suffix == ".json" else PAGE_LIMIT)
    if path.suffix == ".json":
        assert list(series(json.loads(path.read_text(encoding="utf-8")), "")) == []


def test_each_kind_of_kill_and_each_fault_is_there_once() -> None:
    modes = [run["mode"] for run in json.loads((RESULTS / "kills.json").read_text())["runs"]]
    assert len(modes) == len(set(modes))
    entries = json.loads((RESULTS / "faults.json").read_text())["entries"]
    played = [(entry["pair"], entry["fault"]) for entry in entries]
    assert len(played) == len(set(played))


def test_a_series_in_a_record_is_found() -> None:
    assert list(series({"runs": [{"back_s": [0.1] * 11}]}, "")) == ["/runs/0/back_s: 11 numbers"]
