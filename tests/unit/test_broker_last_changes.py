"""Which of two brokers' changes of a key is the later one, whatever their clocks show."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from orbitmq.broker.last_changes import MAX_DELETED, MAX_NUMBER, LastChanges
from orbitmq.broker.stamps import Age

TABLE = "aTable"


@dataclass
class Side:
    """One broker with a clock of its own."""

    now_ms: int = 1_000
    counts: bool = True
    last: LastChanges = field(init=False)

    def __post_init__(self) -> None:
        self.last = LastChanges(lambda: self.now_ms, lambda _deleted: self.counts)

    def change(self, key: str, *, deleted: bool = False) -> int:
        self.last.changed(TABLE, key, deleted=deleted)
        return self.last.of(TABLE, key, deleted=deleted)

    def hear(self, key: str, number: int, *, deleted: bool = False) -> Age:
        """Accept a change of another broker if it is later."""
        age = self.last.age(TABLE, key, number)
        if age is Age.NEWER:
            with self.last.receiving(number):
                self.last.changed(TABLE, key, deleted=deleted)
        return age


@pytest.mark.behaviour("AU-43")
@pytest.mark.parametrize("ahead_ms", [-86_400_000, 0, 86_400_000])
def test_a_change_by_a_broker_that_knew_the_other_one_is_later_whatever_its_clock_says(ahead_ms: int) -> None:
    here, there = Side(10**9), Side(10**9 + ahead_ms)
    for _ in range(3):
        assert there.hear("app", here.change("app")) is Age.NEWER
        deleted = there.change("app", deleted=True)
        assert here.hear("app", deleted, deleted=True) is Age.NEWER
        assert there.hear("app", deleted, deleted=True) is Age.SAME


@pytest.mark.behaviour("AU-43")
def test_a_key_that_one_side_changed_needs_no_clock() -> None:
    """That holds however often the other side changes other keys."""
    here, there = Side(5_000), Side(9_000)
    assert there.hear("app", here.change("app")) is Age.NEWER
    for number in range(10):
        there.change(f"other-{number}")
    assert there.hear("app", here.change("app", deleted=True), deleted=True) is Age.NEWER


def test_what_has_no_number_is_older_than_any_and_undoes_nothing() -> None:
    here, starting = Side(), Side(now_ms=10**12, counts=False)
    assert starting.change("root") == 0
    assert here.hear("root", 0) is Age.SAME
    number = here.change("root")
    assert here.hear("root", 0) is Age.OLDER
    assert starting.hear("root", number) is Age.NEWER
    here.change("root", deleted=True)
    assert here.hear("root", 0) is Age.OLDER


def test_a_change_without_a_number_forgets_the_former_number() -> None:
    side = Side()
    side.change("app")
    side.counts = False
    assert side.change("app") == 0
    side.counts = True
    side.change("app", deleted=True)
    side.counts = False
    side.change("app", deleted=True)
    assert side.last.deleted(TABLE) == []


def test_beyond_the_limit_the_oldest_deletion_is_forgotten_and_counts_for_all_older_keys() -> None:
    here, away = Side(), Side()
    old = away.change("old")
    assert here.hear("old", old) is Age.NEWER
    first = here.change("old", deleted=True)
    for number in range(MAX_DELETED):
        assert here.last.forgotten == 0
        here.change(f"user-{number}", deleted=True)
    assert here.last.forgotten == first
    assert len(here.last.deleted(TABLE)) == MAX_DELETED
    assert "old" not in here.last.deleted(TABLE)
    assert here.hear("old", old) is Age.OLDER
    assert here.hear("unknown", first + 1) is Age.NEWER
    # A key without a number, like a user from the settings, is no forgotten deletion, so it counts as
    # unchanged.
    assert here.last.age(TABLE, "inner", 0) is Age.SAME


def test_the_file_of_a_table_keeps_numbers_and_deletions() -> None:
    before, after = Side(now_ms=5_000), Side(now_ms=1)
    numbers = {key: before.change(key) for key in ("a", "b")}
    deleted = before.change("gone", deleted=True)
    before.last.forget(7)
    after.last.restore(TABLE, ["a", "b", "of an older build"], before.last.plain(TABLE))
    assert {key: after.last.of(TABLE, key, deleted=False) for key in numbers} == numbers
    assert after.last.of(TABLE, "of an older build", deleted=False) == 0
    assert (after.last.deleted(TABLE), after.last.of(TABLE, "gone", deleted=True)) == (["gone"], deleted)
    assert after.last.forgotten == 7
    assert after.change("a") > deleted


def test_a_file_without_numbers_is_older_than_any() -> None:
    side = Side()
    side.last.restore(TABLE, ["a"], {"aTable": {"a": {}}})
    assert side.hear("a", 1) is Age.NEWER


def test_no_number_is_above_the_limit() -> None:
    side = Side()
    assert side.hear("a", MAX_NUMBER) is Age.NEWER
    assert side.change("a") == MAX_NUMBER
