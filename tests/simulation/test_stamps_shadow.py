"""The shadow: what brokers accept compared with stamps, without changing what they do."""

from __future__ import annotations

import pytest
from tools.simulation.plan import make_plan
from tools.simulation.run import simulate
from tools.simulation.shadow import Difference, all_of, difference, lines_of

from orbitmq.broker.stamps import Age


@pytest.mark.parametrize(
    ("takes", "how", "put_off", "expected"),
    [
        (True, Age.NEWER, False, ""),
        (True, Age.OLDER, False, "taken, though older"),
        (True, Age.SAME, False, "taken, of the same stamp"),
        (False, Age.OLDER, False, ""),
        (False, Age.NEWER, False, "not taken, though newer"),
        (False, Age.SAME, False, "not taken, of the same stamp"),
        (False, Age.NEWER, True, "newer, but its frame was not taken"),
        (False, Age.SAME, True, ""),
    ],
)
def test_what_counts_as_a_difference(takes: bool, how: Age, put_off: bool, expected: str) -> None:
    assert difference(takes, how, put_off=put_off) == expected


def test_differences_of_many_seeds_keep_the_first_seed() -> None:
    late, early = Difference("t", "k", 9, "of 9", 2), Difference("t", "k", 3, "of 3")
    total = all_of([late, early, Difference("s", "k", 5, "of 5")])

    assert total == [Difference("s", "k", 5, "of 5"), Difference("t", "k", 3, "of 3", 3, 2)]
    assert [line.split()[0] for line in lines_of(total)] == ["table", "s", "t"]


def test_without_faults_stamps_say_the_same() -> None:
    assert simulate(make_plan(7, ()), shadow=True).differences == ()


def test_a_run_with_the_shadow_keeps_its_promises_and_repeats() -> None:
    outcome = simulate(make_plan(7), shadow=True)

    assert not outcome.violations
    assert simulate(make_plan(7), shadow=True) == outcome
