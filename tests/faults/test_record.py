"""The record of faults: what was measured stays until its fault is played again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import measure
from benchmarks.faults import record
from benchmarks.faults.figures import HEADINGS
from benchmarks.faults.goals import Judged
from benchmarks.faults.kills import MODES, Tally, failures
from benchmarks.faults.record import Entry


def entry(fault: str, measured: str, pair: str = "OrbitMQ") -> Entry:
    place = {"taken": "2026-11-22 21:00:00", "cpus": 2, "load_before": 1.0}
    goals = [Judged("route, s", measured, "0.2", "yes")]
    return Entry(fault, pair, 1, "abc", place, True, ["cell"] * (len(HEADINGS) - 1), goals, [])


def test_an_entry_replaces_the_same_fault_of_the_same_servers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (record, measure):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    record.add([entry("stop-master", "0.31"), entry("kill-master", "0.11")], short=False)
    record.add([entry("kill-master", "0.12"), entry("kill-master", "0.13", "Apache")], short=False)
    assert [one.goals[0].measured for one in record.kept(short=False).values()] == ["0.12", "0.31", "0.13"]
    assert record.kept(short=True) == {}
    page = (tmp_path / "benchmarks" / "results" / "faults.md").read_text()
    assert "0.12" in page
    assert "0.11" not in page


def test_kills_of_runs_at_the_same_time_are_one_tally() -> None:
    whole = Tally("sync-flush")
    whole.add(Tally("sync-flush", kills=3, acknowledged=10, took_s=5, seeds=[1], back_s=[0.5]))
    whole.add(Tally("sync-flush", kills=2, acknowledged=20, took_s=4, seeds=[2], lost=[7]))
    assert (whole.kills, whole.acknowledged, whole.took_s, whole.seeds) == (5, 30, 5, [1, 2])
    assert len(failures(whole)) == 1


@pytest.mark.parametrize("mode", MODES)
def test_what_no_mode_may_cost(mode: str) -> None:
    assert failures(Tally(mode)) == []
    assert failures(Tally(mode, lost=[1], had=1))
    assert failures(Tally(mode, twice=1))
    assert failures(Tally(mode, unknown=1))
