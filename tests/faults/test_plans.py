"""The list of faults: each has a name of its own, and goals and tables name faults that there are."""

from __future__ import annotations

from benchmarks.faults.goals import GOALS
from benchmarks.faults.plans import BY_NAME, FAULTS, FREEZES_S, TABLE


def test_each_fault_has_a_name_and_a_title_of_its_own() -> None:
    assert len(BY_NAME) == len(FAULTS)
    assert len({fault.title for fault in FAULTS}) == len(FAULTS)


def test_goals_and_the_table_name_faults_that_are_played() -> None:
    assert set(GOALS) <= set(BY_NAME)
    assert set(TABLE) <= set(BY_NAME)


def test_every_role_is_frozen_for_as_long_as_every_other() -> None:
    for role in ("master", "slave", "acting", "nameserver"):
        assert {f"freeze-{role}-{seconds}" for seconds in FREEZES_S} <= set(BY_NAME)
