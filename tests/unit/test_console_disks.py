"""The time until a disk is full, from the growth of a broker's log."""

from __future__ import annotations

import pytest

from orbitmq.console.disks import LEAST_MS, MOST_BROKERS, Disks, Outlook

pytestmark = pytest.mark.behaviour("CS-39")

GIB = 1024**3
MINUTE = 60_000
NOW = 1_800_000_000_000


def status(end: int, *, begin: int = 0, oldest_ms: int = 0, free: str = "30.0 GiB") -> dict[str, str]:
    return {
        "commitLogMaxOffset": str(end),
        "commitLogMinOffset": str(begin),
        "earliestMessageTimeStamp": str(oldest_ms),
        "commitLogDirCapacity": f"Total : 100.0 GiB, Free : {free}.",
    }


def test_a_log_that_grows_fills_the_disk_up_to_where_the_broker_refuses() -> None:
    disks = Disks()
    assert disks.note(NOW, "a", status(0)) == Outlook()
    assert disks.note(NOW + LEAST_MS - 1, "a", status(GIB)) == Outlook()
    # The log grows 1 GiB in 10 minutes; of the 30 GiB that are free, 10 are not used.
    assert disks.note(NOW + LEAST_MS, "a", status(GIB)) == Outlook(pytest.approx(20 * 600), True)
    assert disks.note(NOW + LEAST_MS, "b", status(GIB)) == Outlook(), "each broker for itself"


def test_a_log_that_does_not_grow_fills_no_disk() -> None:
    disks = Disks()
    disks.note(NOW, "a", status(5 * GIB))
    assert disks.note(NOW + LEAST_MS, "a", status(5 * GIB)) == Outlook(None, True)


@pytest.mark.parametrize(("free", "outlook"), [("30.0 GiB", None), ("11.0 GiB", 600.0), ("9.0 GiB", 0.0)])
def test_a_log_whose_oldest_messages_are_deleted_fills_a_disk_only_when_more_comes_than_before(
    free: str, outlook: float | None
) -> None:
    """The log grows 1 GiB in 10 minutes: 12 GiB in 2 hours, of which it holds 10."""
    disks = Disks()
    disks.note(NOW, "a", status(20 * GIB, begin=11 * GIB))
    then = NOW + LEAST_MS
    told = status(21 * GIB, begin=11 * GIB, oldest_ms=then - 120 * MINUTE, free=free)
    found = disks.note(then, "a", told)
    assert found.is_known
    assert found.seconds == (None if outlook is None else pytest.approx(outlook))


def test_another_log_begins_anew() -> None:
    disks = Disks()
    disks.note(NOW, "a", status(5 * GIB))
    assert disks.note(NOW + LEAST_MS, "a", status(0)) == Outlook()
    assert disks.note(NOW + 2 * LEAST_MS, "a", status(GIB)).seconds == pytest.approx(20 * 600)


def test_only_the_last_six_hours_count() -> None:
    disks = Disks()
    for minute in range(600):
        disks.note(NOW + minute * MINUTE, "a", status(min(minute, 100) * GIB))
    assert disks.note(NOW + 600 * MINUTE, "a", status(100 * GIB)) == Outlook(None, True)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"commitLogMaxOffset": "7"},
        {**status(0), "commitLogMaxOffset": "many"},
        {**status(0), "commitLogDirCapacity": "Total : 1.2.3 GiB, Free : 1 GiB."},
    ],
)
def test_what_a_broker_does_not_tell_is_not_known(told: dict[str, str]) -> None:
    disks = Disks()
    disks.note(NOW, "a", told)
    assert disks.note(NOW + LEAST_MS, "a", told) == Outlook()


def test_numbers_with_a_comma_and_small_units_are_read() -> None:
    disks = Disks()
    disks.note(NOW, "a", status(0))
    told = {**status(512), "commitLogDirCapacity": "Total : 100,0 KiB, Free : 10752 B."}
    assert disks.note(NOW + LEAST_MS, "a", told).seconds == pytest.approx(600.0)


def test_brokers_that_are_gone_do_not_pile_up() -> None:
    disks = Disks()
    for number in range(MOST_BROKERS + 1):
        disks.note(NOW, f"{number}", status(0))
    assert disks.note(NOW + LEAST_MS, f"{MOST_BROKERS}", status(GIB)).is_known
    assert disks.note(NOW + LEAST_MS, "0", status(GIB)) == Outlook()
