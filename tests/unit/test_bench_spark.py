"""The record of `make bench-spark`: repeated cases, and the page's sentences about the goals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from benchmarks.spark import Comparison, Effort
from benchmarks.spark_cases import (
    APACHE_CASES,
    CASES,
    DURABLE_CASES,
    KIB,
    SHORT_KEYS,
    SMALL_CASES,
    WAITS,
    known_keys,
)
from benchmarks.spark_record import OURS, READER, Record
from benchmarks.spark_sides import Run, SparkEndedError
from benchmarks.spark_waits import MEASURES

ROWS = "3,000,000 x 1 KiB"


def run(rate: float, *, rows: int = 1_000_000) -> Run:
    seconds = rows / rate
    return Run(rows, seconds, spark_s=seconds, broker_s=seconds / 4, rss_mb=700, foreign=0.01)


def test_runs_can_be_bounded() -> None:
    first, last = CASES[0], WAITS[-1]
    assert Effort().bounded(first) == first
    fewer = Effort(runs=2).bounded(first)
    assert (fewer.warmups, fewer.repeats, fewer.rows) == (2, 2, first.rows)
    assert Effort(runs=2).repeats(last) == last.repeats == 1


def record_of(content: dict[str, Any] | None = None) -> Record:
    return Record(content or {}, short=False)


def test_each_case_has_a_key_of_its_own() -> None:
    keys = known_keys()
    assert len(keys) == len(set(keys)) == len((*CASES, *DURABLE_CASES, *SMALL_CASES, *APACHE_CASES, *WAITS))
    assert set(SHORT_KEYS) <= set(keys)


def test_a_case_that_is_taken_again_replaces_its_figures_and_no_others() -> None:
    first = record_of()
    for key in ("default", "count"):
        first.put(key, "rows", {OURS: [run(500_000)]}, {OURS: "4.2.0"})
    again = record_of(first.content)
    again.put("count", "rows", {OURS: [run(900_000)]}, {OURS: "4.2.0"})
    entries = again.content["entries"]
    assert entries["default"] == first.content["entries"]["default"]
    assert Run(**entries["count"]["sides"][OURS][0]).rate == 900_000
    assert {"taken", "commit", "rows"} <= set(entries["count"])


def test_the_page_names_aims_that_were_missed() -> None:
    record = record_of()
    versions = {OURS: "4.2.0", "Kafka 4.0.0": "4.2.0"}
    record.put(
        "default", "3,000,000 x 1 KiB", {OURS: [run(500_000)], "Kafka 4.0.0": [run(250_000)]}, versions
    )
    record.put("wide", "3,000,000 x 1 KiB", {OURS: [run(600_000)], "Kafka 4.0.0": []}, versions)
    record.put("floor", "3,000,000 x 1 KiB", {OURS: [run(600_000)]}, versions)
    found = {"p50_ms": 100.0, "worst_ms": 120.0, "cpu_ms": 90.0, "rows": 1.0, "foreign": 0.0}
    record.put("trigger-8", "", {OURS: [found]}, versions)
    outcome = {"runs": [{"rows": 100, "seconds": 0.1, "cpu_s": 0.1}], "peak_mb": 80.0}
    record.put(READER, ROWS, {OURS: [outcome]}, {})
    record.put("sink-durable", ROWS, {OURS: [run(150_000)]}, {OURS: "4.2.0"})
    page = record.page()
    lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("|")}
    assert "| **700,000** |" in lines["default columns -> noop"]
    assert "|  2.00 |" in lines["default columns -> noop"]
    assert "**" not in lines["with properties / headers"]
    assert "100 ms (100-100), 90 CPU-ms, 1 rows" in lines["trigger of 1 row, 8 queues"]
    assert "Spark 4.2.0, local[2]" in page
    assert "150,000" in page.partition("## SYNC_FLUSH")[2]
    assert "The reader without Spark" in page


def test_a_table_names_the_broker_of_apache_that_its_rows_come_from() -> None:
    record = record_of()
    record.put("apache-default", "500,000 x 1 KiB", {"Apache 5.5.0": [run(150_000)]}, {})
    assert "## 500,000 x 1 KiB from Apache 5.5.0" in record.page()


class _Side:
    """A side whose queries fail a given number of times."""

    def __init__(self, title: str, *outcomes: bool) -> None:
        self.title = title
        self.spark = SimpleNamespace(version="4.2.0")
        self.outcomes = list(outcomes)
        self.begun = 0

    def warm(self, _case: object, _rows: object, _at_most: int) -> None:
        if self.outcomes and not self.outcomes.pop(0):
            raise SparkEndedError("Spark ended, see spark.log:\n  at Job.scala\nCaused by: too late")

    def quiet(self, case: object, rows: object) -> Run:
        self.warm(case, rows, 1)
        return run(300_000)

    def begin_anew(self) -> None:
        self.begun += 1


def compare(ours: _Side, kafka: _Side) -> Record:
    record = record_of()
    systems: list[Any] = [SimpleNamespace(side=side, make=lambda rows: None) for side in (ours, kafka)]
    Comparison(systems, record, {"default"}, Effort(runs=2)).reads(CASES[:1], KIB)
    return record


def test_a_peer_whose_query_fails_once_is_measured_by_another_spark() -> None:
    kafka = _Side("Kafka 4.0.0", False)
    entry = compare(_Side(OURS), kafka).content["entries"]["default"]
    assert kafka.begun == 1
    assert len(entry["sides"]["Kafka 4.0.0"]) == 2
    assert entry["failed"] == {}


def test_a_peer_that_fails_twice_is_left_out_and_the_page_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    kafka = _Side("Kafka 4.0.0", True, True, False, False)
    record = compare(_Side(OURS), kafka)
    entry = record.content["entries"]["default"]
    assert set(entry["sides"]) == {OURS}
    assert entry["failed"] == {"Kafka 4.0.0": "Caused by: too late"}
    assert "Kafka 4.0.0 failed, again: Caused by: too late" in capsys.readouterr().out
    record.put("wide", ROWS, {OURS: [run(1)], "Kafka 4.0.0": [run(1)]}, {})
    assert "failed |" in next(line for line in record.page().splitlines() if line.startswith("| default"))


def test_a_peer_that_fails_is_left_out_of_a_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_row(system: Any, _key: str) -> dict[str, float]:
        system.side.warm(None, None, 1)
        return {"seconds": 7.0, "session_s": 4.0}

    monkeypatch.setitem(MEASURES, "start", first_row)
    record = record_of()
    sides = (_Side(OURS), _Side("Kafka 4.0.0", False, False))
    systems: list[Any] = [SimpleNamespace(side=side, make=lambda rows: None) for side in sides]
    Comparison(systems, record, {"start"}, Effort(short=True)).waits()
    entry = record.content["entries"]["start"]
    assert set(entry["sides"]) == {OURS}
    assert entry["failed"] == {"Kafka 4.0.0": "Caused by: too late"}


def test_ours_may_not_fail() -> None:
    with pytest.raises(SparkEndedError):
        compare(_Side(OURS, False), _Side("Kafka 4.0.0"))
