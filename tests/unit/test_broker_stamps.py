"""Stamps: which of two changes of a key is the later one, and how a stamp is sent with its change."""

from __future__ import annotations

from itertools import product

import pytest

from orbitmq.broker.change_feed import ChangeFeed, FedTable, FeedEntry, stamp_of
from orbitmq.broker.stamps import Age, Stamp, Stamps, age

TABLE = "aTable"


class _Tables:
    """One broker with one table; its key "pair" also changes the key "other"."""

    def __init__(self, *, leads: bool = True) -> None:
        self.leads = leads
        self.feed = ChangeFeed()
        self.stamps = self.feed.stamps = Stamps(lambda: self.leads)
        self.values: dict[str, int] = {}
        self.feed.register(TABLE, FedTable(int, self.set))

    def set(self, key: str, value: int | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value
        self.feed.changed(TABLE, key, value)
        if key == "pair":
            self.set("other", value)

    def entry(self, key: str) -> FeedEntry:
        """The entry that this broker sends about a key."""
        return FeedEntry.decode(self.feed.entry(1, TABLE, key, self.values.get(key)).encode())

    def stamp(self, key: str) -> Stamp | None:
        return self.stamps.of(TABLE, key)


def _refuse(_key: str, _value: object) -> None:
    raise LookupError("missing")


@pytest.mark.parametrize(
    ("received", "here", "expected"),
    [
        (Stamp(1, 5), Stamp(1, 4), Age.NEWER),
        (Stamp(1, 4), Stamp(1, 5), Age.OLDER),
        (Stamp(2, 1), Stamp(1, 9), Age.NEWER),
        (Stamp(1, 9), Stamp(2, 1), Age.OLDER),
        (Stamp(1, 4), Stamp(1, 4), Age.SAME),
        (Stamp(0, 1), None, Age.NEWER),
        (None, Stamp(0, 1), Age.OLDER),
        (None, None, Age.SAME),
    ],
)
def test_the_higher_term_then_the_higher_number_is_newer(
    received: Stamp | None, here: Stamp | None, expected: Age
) -> None:
    assert age(received, here) is expected


def test_of_two_changes_each_side_says_the_opposite() -> None:
    stamps = [None, *(Stamp(term, number) for term, number in product(range(3), repeat=2))]
    opposite = {Age.NEWER: Age.OLDER, Age.OLDER: Age.NEWER, Age.SAME: Age.SAME}

    for one, other in product(stamps, repeat=2):
        assert age(one, other) is opposite[age(other, one)]


def test_own_changes_have_the_own_term_and_growing_numbers() -> None:
    broker = _Tables()
    broker.set("a", 1)
    broker.stamps.begin(3)
    broker.set("b", 2)
    broker.set("a", 3)

    assert (broker.stamp("b"), broker.stamp("a")) == (Stamp(3, 2), Stamp(3, 3))
    assert broker.stamp("unknown") is None


def test_a_deleted_key_keeps_the_stamp_of_its_deletion() -> None:
    broker = _Tables()
    broker.stamps.begin(1)
    broker.set("a", 1)
    broker.set("a", None)

    assert broker.entry("a").value is None
    assert broker.entry("a").stamp == Stamp(1, 2)


def test_a_received_change_keeps_its_stamp_with_all_that_it_changes() -> None:
    leader, follower = _Tables(), _Tables()
    leader.stamps.begin(7)
    leader.set("pair", 1)
    follower.feed.apply(leader.entry("pair"))

    assert follower.stamp("pair") == follower.stamp("other") == leader.stamp("pair")


def test_a_slave_that_never_led_gives_no_stamp_and_its_leader_is_newer() -> None:
    leader, slave = _Tables(), _Tables(leads=False)
    leader.stamps.begin(3)
    leader.set("a", 0)
    slave.feed.apply(leader.entry("a"))
    slave.set("a", 1)
    leader.set("a", 2)

    assert slave.stamp("a") is None
    assert age(leader.stamp("a"), slave.stamp("a")) is Age.NEWER


def test_a_slave_that_acted_never_shares_a_stamp_with_the_leader_after_it() -> None:
    master, slave = _Tables(), _Tables(leads=False)
    slave.leads = True
    slave.stamps.begin(2)
    slave.set("a", 0)
    slave.leads = False
    master.feed.apply(slave.entry("a"))
    master.stamps.begin(3)
    master.set("b", 1)
    slave.feed.apply(master.entry("b"))
    master.set("a", 2)
    slave.set("a", 1)

    assert (slave.stamp("a"), master.stamp("a")) == (Stamp(2, 3), Stamp(3, 3))


def test_the_next_leader_goes_on_behind_the_numbers_that_it_received() -> None:
    leader, follower = _Tables(), _Tables()
    leader.stamps.begin(7)
    for value in range(5):
        leader.set("a", value)
    follower.feed.apply(leader.entry("a"))
    follower.stamps.begin(8)
    follower.set("b", 1)

    assert follower.stamp("b") == Stamp(8, 6)


def test_a_change_of_the_journal_keeps_its_stamp() -> None:
    before, after = _Tables(), _Tables()
    before.stamps.begin(2)
    before.set("a", 1)
    after.feed.restore(before.entry("a"))
    after.set("b", 1)

    assert (after.stamp("a"), after.stamp("b")) == (Stamp(2, 1), Stamp(2, 2))


def test_a_change_without_a_stamp_takes_the_stamp_away() -> None:
    broker = _Tables()
    broker.set("a", 1)
    broker.feed.apply(FeedEntry(1, 0, TABLE, "a", 2))

    assert broker.stamp("a") is None


def test_a_refused_change_leaves_the_next_own_change_its_own_stamp() -> None:
    broker = _Tables()
    with pytest.raises(ValueError, match="no table"):
        broker.feed.apply(FeedEntry(1, 0, "unknown", "a", 2, None, Stamp(9, 9)))
    broker.feed.register("broken", FedTable(int, _refuse))
    with pytest.raises(ValueError, match="missing"):
        broker.feed.apply(FeedEntry(1, 0, "broken", "a", 2, None, Stamp(9, 9)))
    broker.set("a", 1)

    assert broker.stamp("a") == Stamp(0, 1)


def test_forgotten_stamps_lose_to_any_stamp() -> None:
    broker = _Tables()
    broker.stamps.begin(4)
    broker.set("a", 1)
    broker.stamps.forget()

    assert age(Stamp(0, 1), broker.stamp("a")) is Age.NEWER


def test_without_stamps_a_change_is_the_same_bytes_as_before_there_were_any() -> None:
    broker = _Tables()
    broker.feed.stamps = None
    broker.set("a", 1)

    line = b'{"sequence":1,"log_offset":0,"table":"aTable","key":"a","value":1,"version":null}'
    assert broker.feed.entry(1, TABLE, "a", 1).encode() == line
    assert stamp_of(FeedEntry.decode(line)) is None
