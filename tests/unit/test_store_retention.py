"""The files to delete, by age and by the disk's use: the decision alone."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store import StoreConfig
from orbitmq.store.upkeep.held import HeldFiles
from orbitmq.store.upkeep.retention import MAX_FILES_PER_PASS, Cleaning, decide

HOUR_MS = 3_600_000
CONFIG = StoreConfig(root="/store", file_reserved_ms=72 * HOUR_MS, delete_hours=frozenset((4, 16)))
NOW = 1_000 * HOUR_MS
OLD = NOW - 73 * HOUR_MS
YOUNG = NOW - 71 * HOUR_MS


@pytest.mark.parametrize(
    ("due", "used", "finished", "expected"),
    [
        pytest.param(True, 0.1, [], Cleaning(0, False), id="nothing there"),
        pytest.param(True, 0.1, [OLD, OLD, YOUNG], Cleaning(2, False), id="expired ones at the hour"),
        pytest.param(False, 0.1, [OLD, OLD, YOUNG], Cleaning(0, False), id="not at another hour"),
        pytest.param(False, 0.76, [OLD, OLD, YOUNG], Cleaning(2, False), id="at any hour on a fuller disk"),
        pytest.param(False, 0.76, [YOUNG, YOUNG], Cleaning(0, False), id="but only expired ones"),
        pytest.param(False, 0.86, [YOUNG, YOUNG], Cleaning(2, False), id="all but the last on a full disk"),
        pytest.param(False, 0.91, [YOUNG], Cleaning(1, True), id="no message on a disk without room"),
        pytest.param(True, 0.1, [NOW - 72 * HOUR_MS], Cleaning(1, False), id="exactly expired"),
        pytest.param(True, 0.1, [YOUNG, OLD], Cleaning(0, False), id="never one behind one that stays"),
        pytest.param(True, 0.1, [NOW + HOUR_MS], Cleaning(0, False), id="from the future"),
    ],
)
def test_one_pass(due: bool, used: float, finished: list[int], expected: Cleaning) -> None:
    assert decide(CONFIG, NOW, due, used, finished, len(finished)) == expected


@given(
    due=st.booleans(),
    used=st.floats(0, 1),
    ages=st.lists(st.integers(-HOUR_MS, 200 * HOUR_MS), max_size=40),
    reserved_hours=st.integers(0, 200),
    held_from=st.integers(0, 41),
)
def test_what_is_kept(due: bool, used: float, ages: list[int], reserved_hours: int, held_from: int) -> None:
    config = dataclasses.replace(CONFIG, file_reserved_ms=reserved_hours * HOUR_MS)
    finished = [NOW - age for age in ages]
    plan = decide(config, NOW, due, used, finished, held_from)
    assert 0 <= plan.delete <= min(len(finished), MAX_FILES_PER_PASS)
    if used <= config.disk_force_clean_ratio:
        assert all(time + config.file_reserved_ms <= NOW for time in finished[: plan.delete])
        assert plan.delete <= held_from
    assert plan.refuse_writes == (used > config.disk_full_ratio)


def test_files_are_held_from_the_first_with_a_message_that_waits() -> None:
    held = HeldFiles(100)
    assert held.first is None
    held.hold(250)
    held.hold(299)
    held.hold(700, 3)
    assert held.first == 200
    held.hold(250, -1)
    assert held.first == 200
    held.hold(299, -1)
    assert held.first == 700
    held.hold(701, -3)
    assert held.first is None
    held.are_known = False
    assert held.first == 0
