"""``orbitmq simulate``: what it prints, what it refuses, and how it shows a seed that fails."""

from __future__ import annotations

import json

import pytest

from orbitmq.cli import simulate
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from orbitmq.cli.main import main
from orbitmq.testing.simulation.history import Violation
from orbitmq.testing.simulation.plan import Kind, Plan
from orbitmq.testing.simulation.run import Outcome


def test_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--faults", "reset"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert shown.startswith("seed 3: ")
    assert "no broken promises" in shown
    assert "becomes" not in shown, "the trace is shown when it is asked for"


def test_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--faults", "none", "--trace"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert "pre-online becomes master" in shown
    assert "all serve: " in shown


def test_many_seeds_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--seeds", "0-1", "--faults", "reset", "--processes", "2", "--json"]
    assert main(words) == EXIT_OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line["seed"] for line in lines) == [0, 1]
    assert all(line["violations"] == [] and line["acknowledged"] > 100 for line in lines)


def test_a_seed_that_fails_is_shown_with_the_faults_that_matter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Plan] = []

    def fails_by_resets(plan: Plan) -> Outcome:
        runs.append(plan)
        broken = any(fault.kind is Kind.RESET for fault in plan.faults)
        violations = (Violation("nothing crashes", "a connection"),) if broken else ()
        return Outcome(plan, violations, ((1.5, "CHECK", "nothing crashes: a connection"),), 20.0, 9, 8, 7)

    monkeypatch.setattr(simulate, "simulate", fails_by_resets)
    assert main(["simulate", "--seed", "5", "--faults", "cut,reset"]) == EXIT_FAILED
    shown = capsys.readouterr().out.splitlines()
    assert len(runs[0].faults) > 2
    assert sum("(does not matter)" in line for line in shown) == len(runs[0].faults) - 1
    assert "    1.500  CHECK        nothing crashes: a connection" in shown
    assert shown[-1] == "BROKEN  nothing crashes: a connection"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "9-3"], "--seeds 9-3: expected A-B"),
        (["--seeds", "all"], "--seeds all: expected A-B"),
        (["--seed", "1", "--seeds", "1-2"], "expected --seed or --seeds, not both"),
        (["--faults", "fire"], "--faults fire: expected some of kill, power"),
        (["--seeds", "1-2", "--processes", "0"], "--processes 0: expected 1 or more"),
    ],
)
def test_wrong_words(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *words]) == EXIT_USAGE
    assert says in capsys.readouterr().err
