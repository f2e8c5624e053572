"""The verdicts on measurements, and how they are printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks import keys
from benchmarks.growth import LINES, Line, compare, report
from benchmarks.measure import Case, Figure, Target, keep, microseconds, record, summary, table
from benchmarks.peer import in_turn
from benchmarks.run import judged
from benchmarks.verdict import Miss, exit_code, slower, times_worse


def run_of(rate: float, *, failed: int = 0) -> dict[str, Any]:
    return {
        "ops_per_second": rate,
        "messages_per_second": rate,
        "server_cpu_us": 1e6 / rate,
        "latency_us": {"p50": 10.0, "p99": 20.0, "p999": 30.0, "max": 40.0},
        "errors": {"2": failed} if failed else {},
        "mismatched": 0,
    }


def test_a_figure_is_the_median_of_its_runs() -> None:
    figure = summary("x", [run_of(100), run_of(300), run_of(200)])
    assert (figure.rate, figure.runs, figure.failed) == (200, 3, 0)
    assert figure.spread == 1.0


def test_a_target_is_met_when_every_bound_holds_and_nothing_failed() -> None:
    figure: Figure = summary("x", [run_of(100)])
    assert Target(rate_min=100, p99_us_max=20).met(figure)
    assert not Target(rate_min=101).met(figure)
    assert not Target(p999_us_max=29).met(figure)
    assert not Target(rate_min=1).met(summary("x", [run_of(100, failed=1)]))
    assert not Target().judged()
    assert Target(rate_min=80_000, cpu_us_max=12).text() == ">= 80,000/s, <= 12 us CPU"


def test_titles_and_tables() -> None:
    assert Case(connections=64, window=1, durable=True).title == "send 128 B, 64 x 1 SYNC"
    assert Case(mode="pull", window=4, header="rocketmq").title == "pull of 32 x 128 B, 16 x 4, binary"
    assert Case(rate=10_000).title == "send 128 B, 16 x 16 ASYNC at 10,000/s"
    assert table(["a", "b"], [["long", "1"]]) == "| a    | b |\n|------|---|\n| long | 1 |"
    assert (microseconds(1234), microseconds(12_345)) == ("1,234 us", "12.3 ms")


def test_growth_is_judged_by_the_number_of_topics() -> None:
    start = Line("start", "start", "{:.1f} s", most=1, most_full=2)
    assert [start.met(value, 2_000) for value in (1.0, 1.5)] == [True, False]
    assert [start.met(value, 50_000) for value in (1.5, 2.5)] == [True, False]
    assert (start.target(2_000), start.target(50_000)) == ("<= 1.0 s", "<= 2.0 s")
    assert Line("rate", "rate", "{:,.0f}/s", least=1000).met(999, 1) is False
    assert Line("free", "free", "{}").met(1, 1) is None
    found = {line.key: 0.25 for line in LINES}
    text, missed = report(found, 2_000)
    assert len(text.splitlines()) == 2 + len(LINES)
    assert [miss.text for miss in missed if "at a time" in miss.text and "create" in miss.text] == [
        "create topics of 8 queues, 16 at a time: 0/s, wanted >= 1,000/s"
    ]
    lines = compare(found, dict.fromkeys(found, 0.5), 2_000).splitlines()
    assert sum(line.endswith(" 0.50 |") for line in lines) == len(LINES)


def test_a_short_record_replaces_no_full_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.measure.ROOT", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    full = keep("peer", "text", {"record": record(short=False, repeats=4)})
    short = keep("peer", "text", {"record": record(short=True, repeats=1)})
    assert (full.name, short.name) == ("peer.md", "peer-short.md")
    assert '"kind": "short"' in short.with_suffix(".json").read_text()


def test_the_side_that_begins_changes() -> None:
    sides = ["ours", "apache"]
    assert [in_turn(sides, number)[0] for number in range(4)] == ["ours", "apache", "ours", "apache"]


def test_a_goal_missed_by_a_factor_of_two_fails_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.verdict.slower", lambda: 1.0)
    assert exit_code([]) == 0
    assert exit_code([Miss("sends: 160,000/s", 1.9)]) == 0
    assert exit_code([Miss("sends: 160,000/s", 1.9), Miss("pulls: 70,000/s", 2.1)]) == 1
    assert (
        capsys.readouterr().out
        == "FAILED: pulls: 70,000/s: 2.1 times worse than the goal; the limit is 2.0\n"
    )
    # The machine has half the speed.
    monkeypatch.setattr("benchmarks.verdict.slower", lambda: 2.0)
    assert exit_code([Miss("pulls: 70,000/s", 3.9)]) == 0
    assert exit_code([Miss("pulls: 70,000/s", 4.1)]) == 1


def test_how_many_times_worse_than_its_bounds_a_figure_is() -> None:
    assert times_worse(50, least=100) == 2
    assert times_worse(3, most=1.5) == 2
    assert times_worse(200, least=100, most=100) == 2
    assert times_worse(1) == 0
    assert (times_worse(0, most=0), times_worse(1, most=0)) == (1, float("inf"))
    assert times_worse(0, least=1) == float("inf")
    assert Target(rate_min=200, p99_us_max=10).times(summary("x", [run_of(100)])) == 2
    assert Target(rate_min=1).times(summary("x", [run_of(100, failed=1)])) == float("inf")
    assert slower() >= 1


def test_a_figure_twice_as_bad_as_its_target_is_taken_again() -> None:
    rates = iter([40.0, 45.0, 99.0, 100.0])

    def take() -> Figure:
        return summary("x", [run_of(next(rates))])

    assert judged(Target(rate_min=100), take).rate == 99
    assert judged(Target(rate_min=100), take).rate == 100
    assert list(rates) == []


def test_what_keys_cost_is_judged_by_the_ratios_within_a_round() -> None:
    # The machine is three times slower in the second round, which must not count as a cost of keys.
    rates = {keys.OFF: (300.0, 100.0), keys.ONCE: (291.0, 97.0), keys.EACH: (132.0, 44.0)}
    runs = {
        side: [{"rate": rate, "cpu_us": 1000 / rate} for rate in of_rounds]
        for side, of_rounds in rates.items()
    }
    off, once, each = keys.rows(keys.SENDS, runs)
    assert off == [keys.SENDS, keys.OFF, "200/s; 6.67 us", "", "", "", ""]
    assert once[3:] == ["0.970", "1.031", ">= 0.95", "yes"]
    assert each[3:] == ["0.440", "2.273", ">= 0.45", "**no**"]
    assert keys.rows(keys.PULLS, runs)[2][5:] == ["", ""]
