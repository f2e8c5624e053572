"""The queue chooser and the fault table."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.routing import BrokerQueues, TopicRoute
from orbitmq.client.producer.faults import PROFILE_4X, PROFILE_5X, PROFILES, FaultTable
from orbitmq.client.producer.queue_choice import QueueChooser, by_hash, by_random, queue_index
from orbitmq.message.model import Message, MessageQueue


def make_route(**queues: int) -> TopicRoute:
    publish = tuple(
        MessageQueue("t", name, number) for name in sorted(queues) for number in range(queues[name])
    )
    return TopicRoute(
        "t",
        publish,
        publish,
        {name: {0: f"{name}:1"} for name in queues},
        {name: count for name, count in queues.items() if count},
        tuple(BrokerQueues(name, count, count, 6) for name, count in sorted(queues.items())),
    )


def table(profile: str = "4.x", seed: int = 1) -> FaultTable:
    return FaultTable(PROFILES[profile], random.Random(seed))


def chooser(faults: FaultTable | None = None, seed: int = 1) -> QueueChooser:
    return QueueChooser(random.Random(seed), faults)


# -- plain round robin -------------------------------------------------------------------------------------


@pytest.mark.behaviour("TI-03")
@pytest.mark.parametrize("size", [5, 6])
def test_ten_picks_go_round_from_a_random_start(size: int) -> None:
    route = make_route(a=size)
    starts = set()
    for seed in range(40):
        picker = chooser(seed=seed)
        picks = [picker.choose(route) for _ in range(10)]
        ids = [pick.queue_id for pick in picks if pick]
        assert all((later - earlier) % size == 1 for earlier, later in pairwise(ids))
        starts.add(ids[0])
    assert len(starts) > 1


@pytest.mark.behaviour("TI-01")
def test_two_producers_start_at_different_queues_more_often_than_not() -> None:
    route = make_route(a=16)
    starts = Counter(chooser(seed=seed).choose(route) for seed in range(200))
    assert len(starts) > 10


@pytest.mark.behaviour("TI-04")
def test_a_retry_avoids_the_last_broker() -> None:
    route = make_route(a=4, b=1)
    picker = chooser()
    for _ in range(20):
        pick = picker.choose(route, ["a"])
        assert pick is not None
        assert pick.broker_name == "b"


@pytest.mark.behaviour("TI-04")
def test_a_second_retry_prefers_a_broker_not_tried_yet() -> None:
    route = make_route(a=4, b=4, c=1)
    picker = chooser()
    pick = picker.choose(route, ["a", "b"])
    assert pick is not None
    assert pick.broker_name == "c"
    pick = picker.choose(route, ["c", "a", "b"])
    assert pick is not None
    assert pick.broker_name != "b"


@pytest.mark.behaviour("TI-06")
def test_with_one_broker_a_retry_takes_its_next_queue() -> None:
    route = make_route(a=4)
    picker = chooser()
    first, second = picker.choose(route), picker.choose(route, ["a"])
    assert first
    assert second
    assert second.queue_id == (first.queue_id + 1) % 4


@pytest.mark.behaviour("TI-05")
def test_a_new_message_may_pick_the_failed_broker_again() -> None:
    route = make_route(a=1, b=1)
    picker = chooser()
    picker.choose(route, ["a"])
    assert {pick.broker_name for pick in (picker.choose(route) for _ in range(4)) if pick} == {"a", "b"}


def test_no_queue_from_an_empty_route() -> None:
    assert chooser().choose(make_route()) is None
    assert chooser(table()).choose(make_route()) is None


# -- fault table -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("FT-02")
@pytest.mark.behaviour("FT-04")
@pytest.mark.parametrize(
    ("latency", "duration"),
    [
        (49, 0),
        (50, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1000, 60_000),
        (2999, 120_000),
        (3000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
    ],
)
def test_the_4x_table(latency: int, duration: int) -> None:
    assert PROFILE_4X.not_available_for(latency) == duration


@pytest.mark.behaviour("FT-03")
@pytest.mark.parametrize(
    ("latency", "duration"),
    [(549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000), (15_000, 30_000)],
)
def test_the_5x_table(latency: int, duration: int) -> None:
    assert PROFILE_5X.not_available_for(latency) == duration


@pytest.mark.behaviour("FT-05")
@pytest.mark.parametrize(("profile", "until"), [("4.x", 600_000), ("5.x", 10_000)])
def test_isolation_counts_as_a_fixed_latency(profile: str, until: int) -> None:
    faults = table(profile)
    faults.update("a", 3, 0, isolation=True)
    assert not faults.is_available("a", until - 1)
    assert faults.is_available("a", until)


@pytest.mark.behaviour("FT-06")
def test_the_measured_latency_is_what_is_stored() -> None:
    faults = table()
    faults.update("a", 3, 0, isolation=True)
    assert faults.snapshot(0)[0].latency == 0.003


@pytest.mark.behaviour("FT-07")
def test_4x_one_fast_success_ends_an_isolation() -> None:
    faults = table("4.x")
    faults.update("a", 2000, 0, isolation=False)
    assert not faults.is_available("a", 1)
    faults.update("a", 5, 1, isolation=False)
    assert faults.is_available("a", 1)


@pytest.mark.behaviour("FT-08")
def test_5x_a_success_never_shortens_an_isolation() -> None:
    faults = table("5.x")
    faults.update("a", 2000, 0, isolation=False)
    faults.update("a", 5, 1, isolation=False)
    assert not faults.is_available("a", 4999)
    faults.update("a", 600, 10, isolation=False)
    assert faults.is_available("a", 5000)


@pytest.mark.behaviour("FT-09")
def test_an_unknown_broker_is_available() -> None:
    assert table().is_available("never heard of", 0)
    assert table().is_reachable("never heard of")


@pytest.mark.behaviour("FT-18")
def test_pick_one_at_least_takes_turns_in_the_better_half() -> None:
    faults = table()
    assert faults.pick_one_at_least(0) is None
    for number, name in enumerate("abcd"):
        faults.update(name, 1000 + number, 0, isolation=False)
    picks = [faults.pick_one_at_least(1) for _ in range(6)]
    assert set(picks) == {"a", "b"}
    assert all(one != two for one, two in pairwise(picks))
    faults.remove("d")
    assert {faults.pick_one_at_least(1) for _ in range(6)} == {"a"}
    for name in "ab":
        faults.remove(name)
    assert {faults.pick_one_at_least(1) for _ in range(3)} == {"c"}


@pytest.mark.behaviour("FT-19")
@pytest.mark.parametrize("seed", range(4))
def test_available_comes_before_fast_and_fast_before_early(seed: int) -> None:
    """The better half of two items is one item: always the better one, in either order."""

    def better(*updates: tuple[str, float, float, bool], at_ms: float) -> set[str | None]:
        faults = table(seed=seed)
        for name, latency_ms, now_ms, isolation in updates:
            faults.update(name, latency_ms, now_ms, isolation=isolation)
        return {faults.pick_one_at_least(at_ms) for _ in range(3)}

    slow, barred = ("slow but available", 400, 0, False), ("fast but barred", 1, 0, True)
    assert better(slow, barred, at_ms=1) == better(barred, slow, at_ms=1) == {"slow but available"}
    # Both are barred at 1 ms; the one that is barred longer answered faster.
    fast, slower = ("fast, barred for 600 s", 1, 0, True), ("slower, barred for 30 s", 600, 0, False)
    assert better(fast, slower, at_ms=1) == better(slower, fast, at_ms=1) == {"fast, barred for 600 s"}
    early, late = ("barred until 30.0 s", 600, 0, False), ("barred until 30.5 s", 600, 500, False)
    assert better(early, late, at_ms=501) == better(late, early, at_ms=501) == {"barred until 30.0 s"}


@pytest.mark.behaviour("FT-20")
def test_equal_items_take_a_random_order() -> None:
    picks = set()
    for seed in range(20):
        faults = table(seed=seed)
        for name in "abc":
            faults.update(name, 700, 0, isolation=False)
        picks.add(faults.pick_one_at_least(1))
    assert len(picks) > 1


@pytest.mark.behaviour("FT-21")
def test_5x_pick_one_at_least_takes_a_reachable_one() -> None:
    faults = table("5.x")
    faults.update("a", 1, 0, isolation=True, reachable=False)
    assert faults.pick_one_at_least(0) is None
    faults.update("b", 1, 0, isolation=True, reachable=True)
    assert faults.pick_one_at_least(0) == "b"


@pytest.mark.behaviour("FT-28")
def test_the_detector_probes_each_broker_every_two_seconds() -> None:
    faults = table("5.x")
    faults.update("a", 1, 0, isolation=True, reachable=False)
    assert faults.due_probes(0) == ["a"]
    assert faults.due_probes(1999) == []
    assert faults.due_probes(2000) == ["a"]
    faults.probed("a", reachable=True)
    faults.probed("gone", reachable=True)
    assert faults.is_reachable("a")
    assert [item.broker_name for item in faults.snapshot(0)] == ["a"]


# -- the chooser with faults -------------------------------------------------------------------------------


@pytest.mark.behaviour("FT-01")
@pytest.mark.behaviour("FT-26")
def test_without_the_mechanism_nothing_but_the_last_broker_is_avoided() -> None:
    route = make_route(a=2, b=2)
    picker = chooser()
    assert {pick.broker_name for pick in (picker.choose(route) for _ in range(4)) if pick} == {"a", "b"}
    for tried, others in ((["a"], {"b"}), (["a", "b"], {"a"})):
        picks = [picker.choose(route, tried) for _ in range(8)]
        assert {pick.broker_name for pick in picks if pick} == others
    only = make_route(a=2)
    picks = [picker.choose(only, ["a"]) for _ in range(4)]
    assert [pick.broker_name for pick in picks if pick] == ["a"] * 4


@pytest.mark.behaviour("FT-13")
def test_4x_takes_the_next_queue_of_an_available_broker() -> None:
    faults = table()
    faults.update("a", 2000, 0, isolation=False)
    picker = chooser(faults)
    route = make_route(a=4, b=2)
    picks = [picker.choose(route, (), 1) for _ in range(6)]
    assert {pick.broker_name for pick in picks if pick} == {"b"}
    assert Counter(pick.queue_id for pick in picks if pick) == {0: 3, 1: 3}
    assert any(
        pick and pick.broker_name == "a" for pick in (picker.choose(route, (), 120_000) for _ in range(6))
    )


@pytest.mark.behaviour("FT-15")
def test_a_retry_avoids_the_last_broker_even_when_it_counts_as_available() -> None:
    faults = table()
    picker = chooser(faults)
    for _ in range(5):
        pick = picker.choose(make_route(a=4, b=1), ["a"], 0)
        assert pick
        assert pick.broker_name == "b"


@pytest.mark.behaviour("FT-22")
@pytest.mark.behaviour("FT-23")
def test_4x_all_isolated_takes_the_better_half_as_a_new_valid_queue() -> None:
    faults = table()
    faults.update("a", 600, 0, isolation=True)
    faults.update("b", 900, 0, isolation=True)
    route = make_route(a=4, b=4)
    before = list(route.publish)
    picker = chooser(faults)
    picks = {picker.choose(route, (), 1) for _ in range(16)}
    assert picks == {queue for queue in before if queue.broker_name == "a"}
    assert list(route.publish) == before


@pytest.mark.behaviour("FT-24")
def test_a_pick_without_writable_queues_is_forgotten() -> None:
    faults = table()
    faults.update("gone", 600, 0, isolation=True)
    faults.update("a", 900, 0, isolation=True)
    pick = chooser(faults).choose(make_route(a=2), (), 1)
    assert pick
    assert pick.broker_name == "a"
    assert [item.broker_name for item in faults.snapshot(0)] == ["a"]


@pytest.mark.behaviour("FT-16")
def test_5x_prefers_available_then_reachable_then_anything() -> None:
    faults = table("5.x")
    faults.update("a", 1, 0, isolation=True, reachable=False)
    faults.update("b", 1, 0, isolation=True, reachable=True)
    picker = chooser(faults)
    route = make_route(a=2, b=2, c=2)
    assert {pick.broker_name for pick in (picker.choose(route, (), 1) for _ in range(6)) if pick} == {"c"}
    assert {pick.broker_name for pick in (picker.choose(route, ["c"], 1) for _ in range(6)) if pick} == {"b"}
    faults.update("b", 1, 0, isolation=True, reachable=False)
    faults.update("c", 1, 0, isolation=True, reachable=False)
    picks = {pick.broker_name for pick in (picker.choose(route, (), 1) for _ in range(6)) if pick}
    assert picks == {"a", "b", "c"}


@pytest.mark.behaviour("FT-27")
def test_5x_a_retry_starts_at_a_new_random_place() -> None:
    route = make_route(a=32, b=32)
    picker = chooser(table("5.x"))
    ids = [pick.queue_id for pick in (picker.choose(route, ["a"], 0) for _ in range(20)) if pick]
    assert any((later - earlier) % 32 != 1 for earlier, later in pairwise(ids))


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4), max_size=4),
    st.sampled_from(["off", "4.x", "5.x"]),
    st.lists(
        st.tuples(
            st.sampled_from("abcdx"),
            st.integers(0, 20_000),
            st.booleans(),
            st.booleans(),
            st.lists(st.sampled_from("abcd"), max_size=3),
        ),
        max_size=30,
    ),
    st.integers(0, 2**31),
)
def test_always_a_queue_of_the_route_and_the_route_stays(
    queues: dict[str, int],
    profile: str,
    events: list[tuple[str, int, bool, bool, list[str]]],
    seed: int,
) -> None:
    route = make_route(**queues)
    before = route.publish
    faults = None if profile == "off" else table(profile, seed)
    picker = chooser(faults, seed)
    for now, (broker, latency, isolation, reachable, tried) in enumerate(events):
        if faults is not None:
            faults.update(broker, latency, now, isolation=isolation, reachable=reachable)
        pick = picker.choose(route, tried, now)
        assert (pick in before) if before else pick is None
        assert route.publish is before


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 200), st.integers(0, 2**31))
def test_the_spread_is_within_one_of_even(queues: int, brokers: int, sends: int, seed: int) -> None:
    route = make_route(**{f"b{number}": queues for number in range(brokers)})
    picker = chooser(seed=seed)
    counts = Counter(picker.choose(route) for _ in range(sends))
    least = min((counts[queue] for queue in route.publish), default=0)
    assert max(counts.values(), default=0) - least <= 1


# -- selectors ---------------------------------------------------------------------------------------------


def test_hash_selector_is_javas() -> None:
    queues = make_route(a=4).publish
    message = Message("t", b"x")
    assert by_hash(queues, message, "order-1") == by_hash(queues, message, "order-1")
    assert queue_index(-7, 4) == 3
    assert queue_index("polygenelubricants", 8) == 0  # hashCode is Integer.MIN_VALUE
    assert queue_index(True, 3) == queue_index("True", 3)
    assert queue_index(2**40, 5) == queue_index(str(2**40), 5)


def test_random_selector_uses_all_queues() -> None:
    queues = make_route(a=4).publish
    select = by_random(random.Random(3))
    assert {select(queues, Message("t", b"x"), None) for _ in range(60)} == set(queues)
