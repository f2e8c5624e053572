"""``python -m tools.simulation``: what it prints, what it refuses, and how it shows a seed that fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from tools.simulation import command
from tools.simulation.command import main
from tools.simulation.excuses import RULES, Count
from tools.simulation.history import Violation
from tools.simulation.many import Verdict
from tools.simulation.plan import Kind, Plan
from tools.simulation.run import Outcome

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, EXIT_USAGE


def test_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--faults", "reset"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert shown.startswith("seed 3: ")
    assert "no broken promises" in shown
    assert "becomes" not in shown, "the trace is shown when it is asked for"


def test_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--faults", "none", "--trace"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert "pre-online becomes master" in shown
    assert "all serve: " in shown


def test_many_seeds_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "0-1", "--faults", "reset", "--processes", "2", "--json"]
    assert main(words) == EXIT_OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line["seed"] for line in lines) == [0, 1]
    assert all(line["violations"] == [] and line["acknowledged"] > 100 for line in lines)


def test_a_seed_that_fails_is_shown_with_the_faults_that_matter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Plan] = []

    def fails_by_resets(plan: Plan, *, shadow: bool) -> Outcome:
        runs.append(plan)
        broken = any(fault.kind is Kind.RESET for fault in plan.faults)
        violations = (Violation("nothing crashes", "a connection"),) if broken else ()
        lines = ((1.5, "CHECK", "nothing crashes: a connection"),)
        return Outcome(plan, violations, lines, 20.0, 9, 8, 7, {})

    monkeypatch.setattr(command, "run_plan", fails_by_resets)
    assert main(["--seed", "5", "--faults", "cut,reset"]) == EXIT_FAILED
    shown = capsys.readouterr().out.splitlines()
    assert len(runs[0].faults) > 2
    assert sum("(does not matter)" in line for line in shown) == len(runs[0].faults) - 1
    assert "    1.500  CHECK        nothing crashes: a connection" in shown
    assert shown[-1] == "BROKEN  nothing crashes: a connection"


def verdict(seed: int, hidden: int = 0, covered: int = 0) -> Verdict:
    counts = {rule: Count(1000, {"power": covered}, hidden) for rule in RULES}
    return Verdict(seed, "a mode", 1, (), excuses=counts)


def test_seeds_of_the_day_run_beside_the_fixed_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_seeds", lambda seeds, *_, **__: map(verdict, seeds))
    assert main(["--seeds", "0-1,today:2"]) == EXIT_OK
    fixed, _, todays = capsys.readouterr().out.partition(":")[0].removeprefix("seeds ").partition(",")
    assert fixed == "0-1"
    first, last = todays.split("-")
    assert int(last) == int(first) + 1
    day = datetime.strptime(first[:8], "%Y%m%d").replace(tzinfo=UTC)
    assert timedelta(0) <= datetime.now(UTC) - day < timedelta(days=1, hours=1)
    assert first[8:] == "00"


def test_seeds_of_one_day_are_those_of_no_other() -> None:
    one, next_day = (set(command.seeds_of_day(day * 86_400_000, 100)) for day in (20_000, 20_001))
    assert len(one) == 100
    assert not one & next_day
    assert one == set(command.seeds_of_day(20_001 * 86_400_000 - 1, 100))


@pytest.mark.parametrize(
    ("hidden", "covered", "count", "says"),
    [
        (1, 1, 300, ""),
        (1, 1000, 300, "rule 'lost' covers 100.0% of its judgements"),
        (0, 0, 300, "rule 'lost' covers nothing"),
        (0, 0, 299, ""),
        (1, 1000, 299, ""),
    ],
)
def test_a_rule_that_covers_much_or_is_never_needed_fails(
    hidden: int,
    covered: int,
    count: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The excuses of the checkers are printed; their limits are made for the seeds that CI runs."""
    monkeypatch.setattr(
        command, "run_seeds", lambda seeds, *_, **__: (verdict(seed, hidden, covered) for seed in seeds)
    )
    assert main(["--seeds", f"1-{count}"]) == (EXIT_FAILED if says else EXIT_OK)
    shown = capsys.readouterr()
    assert says in shown.err
    assert bool(shown.err) == bool(says)
    (line,) = (line.split() for line in shown.out.splitlines() if line.startswith("lost "))
    assert line[1:3] == [str(1000 * count), str(covered * count)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "9-3"], "--seeds 9-3: expected A-B"),
        (["--seeds", "all"], "--seeds all: expected A-B"),
        (["--seeds", "1-2,"], "--seeds 1-2,: expected A-B"),
        (
            ["--seeds", "today:0"],
            "--seeds today:0: expected A-B, for example 0-299, or today:N, N from 1 to 100",
        ),
        (["--seeds", "today:"], "--seeds today:: expected A-B"),
        (["--seeds", "²-3"], "--seeds ²-3: expected A-B"),
        (["--seed", "1", "--seeds", "1-2"], "expected --seed or --seeds, not both"),
        (["--faults", "fire"], "--faults fire: expected some of kill, power"),
        (["--seeds", "1-2", "--processes", "0"], "--processes 0: expected 1 or more"),
    ],
)
def test_wrong_words(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words]) == EXIT_USAGE
    assert says in capsys.readouterr().err


def test_help_names_every_kind_of_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == EXIT_OK
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert [kind.value for kind in Kind if kind.value not in shown] == []
