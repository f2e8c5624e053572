"""The client's state machines under random histories, and rows that only an unusual state leads to."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.routes import EAGER_INTERVAL_MS, RouteCache
from orbitmq.client.core.routing import BrokerQueues, TopicRoute
from orbitmq.client.producer.faults import PROFILES, FaultTable
from orbitmq.client.producer.queue_choice import QueueChooser
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.testing.machine.simulated import VirtualClock

ROUTES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4), max_size=4)


def make_route(**queues: int) -> TopicRoute:
    publish = tuple(MessageQueue("t", name, n) for name in sorted(queues) for n in range(queues[name]))
    return TopicRoute(
        "t",
        publish,
        publish,
        {name: {0: f"{name}:1"} for name in queues},
        {name: count for name, count in queues.items() if count},
        tuple(BrokerQueues(name, count, count, 6) for name, count in sorted(queues.items())),
    )


class FixedStart(random.Random):
    """Draws the number that the test sets."""

    def __init__(self, start: int) -> None:
        super().__init__(1)
        self.start = start

    def getrandbits(self, k: int, /) -> int:
        return self.start


@pytest.mark.behaviour("TI-02")
def test_the_counter_moves_before_it_is_used() -> None:
    route = make_route(a=5)
    pick = QueueChooser(FixedStart(2)).choose(route)
    assert pick == route.publish[3]


@pytest.mark.behaviour("FT-17")
@pytest.mark.parametrize("start", [2**31 - 2, 2**31 - 1, 2**31, 2**63])
def test_no_position_is_ever_negative(start: int) -> None:
    route = make_route(a=3, b=2)
    picker = QueueChooser(FixedStart(start))
    assert Counter(picker.choose(route) for _ in range(10)) == dict.fromkeys(route.publish, 2)


@pytest.mark.behaviour("FT-14")
@pytest.mark.parametrize("profile", ["4.x", "5.x"])
def test_a_retry_never_prefers_the_broker_that_just_failed(profile: str) -> None:
    """Profiles up to 4.7.1 do prefer it, which repeats a message at the one broker known to be bad."""
    faults = FaultTable(PROFILES[profile], random.Random(1))
    picker = QueueChooser(random.Random(1), faults)
    route = make_route(a=4, b=1)
    assert {pick.broker_name for _ in range(8) if (pick := picker.choose(route, ["a"], 0))} == {"b"}


@pytest.mark.behaviour("FT-25")
def test_a_broken_fault_table_never_fails_a_send(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FaultTable):
        def is_available(self, broker_name: str, now_ms: float) -> bool:
            raise RuntimeError("broken")

    picker = QueueChooser(random.Random(1), Broken(PROFILES["4.x"], random.Random(1)))
    route = make_route(a=2, b=2)
    assert {picker.choose(route, (), 1) for _ in range(4)} == set(route.publish)
    assert {pick.broker_name for _ in range(4) if (pick := picker.choose(route, ["a"], 1))} == {"b"}
    assert "the next queue in turn is taken" in caplog.text


@given(
    ROUTES,
    ROUTES,
    st.sampled_from(["off", "4.x", "5.x"]),
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.integers(0, 20_000), st.booleans(), st.booleans(), st.booleans()
        ),
        max_size=40,
    ),
    st.integers(0, 2**31),
)
def test_choices_stay_inside_a_route_that_changes(
    first: dict[str, int],
    second: dict[str, int],
    profile: str,
    events: list[tuple[str, int, bool, bool, bool]],
    seed: int,
) -> None:
    faults = None if profile == "off" else FaultTable(PROFILES[profile], random.Random(seed))
    picker = QueueChooser(random.Random(seed), faults)
    routes = [make_route(**first), make_route(**second)]
    images = [repr(route) for route in routes]
    tried: list[str] = []
    for now, (broker, latency, isolation, reachable, change) in enumerate(events):
        if change:
            routes.reverse()
            images.reverse()
        if faults is not None:
            faults.update(broker, latency, now * 100, isolation=isolation, reachable=reachable)
        pick = picker.choose(routes[0], tried, now * 100)
        if routes[0].publish:
            assert pick in routes[0].publish
            others = routes[0].write_queues.keys() - set(tried)
            # As long as one broker is untried, a tried one is not chosen.
            if others and profile == "off":
                assert pick is not None
                assert pick.broker_name in others
            tried = [*tried, broker] if isolation else []
        else:
            assert pick is None
    assert [repr(route) for route in routes] == images


@given(
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(1, 60),
    st.sampled_from(["4.x", "5.x"]),
    st.integers(0, 2**31),
)
def test_with_some_brokers_barred_the_others_share_evenly(
    brokers: int, queues: int, barred: int, sends: int, profile: str, seed: int
) -> None:
    names = [f"b{number}" for number in range(brokers)]
    bad = set(names[: min(barred, brokers - 1)])
    faults = FaultTable(PROFILES[profile], random.Random(seed))
    for name in sorted(bad):
        faults.update(name, 100, 0, isolation=True, reachable=False)
    route = make_route(**dict.fromkeys(names, queues))
    picker = QueueChooser(random.Random(seed), faults)
    counts = Counter(picker.choose(route, (), 1) for _ in range(sends))
    good = [queue for queue in route.publish if queue.broker_name not in bad]
    assert set(counts) <= set(good)
    assert max(counts.values()) - min(counts[queue] for queue in good) <= 1


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["suspect", "tick"])), max_size=60))
def test_however_many_suspect_a_route_it_is_asked_for_five_times_a_second_at_most(
    steps: list[tuple[int, str]],
) -> None:
    cache = RouteCache()
    cache.put("t", make_route(a=1), 0)
    now, asked, last_suspicion = 0.0, [0.0], float("-inf")
    for passed, what in steps:
        now += passed
        if what == "suspect":
            last_suspicion = now
            ask = cache.suspect("t", now)
        else:
            ask = cache.due(now) == ["t"]
        if ask:
            cache.asked("t", now)
            asked.append(now)
        if last_suspicion > asked[-1]:
            # A suspicion is not lost: the route is fetched as soon as the interval allows.
            assert cache.next_due_ms(now) <= asked[-1] + EAGER_INTERVAL_MS
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert all(gap >= EAGER_INTERVAL_MS for gap in gaps)


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_what_may_be_committed_is_never_behind_an_unfinished_message(
    offsets: list[int], chance: random.Random
) -> None:
    held = ProcessQueue(MessageQueue("t", "a", 0), 0)
    messages = []
    for offset in sorted(offsets):
        message = ReceivedMessage.__new__(ReceivedMessage)
        message.queue_offset, message.body = offset, b"12"
        messages.append(message)
    held.next_offset = 31
    assert held.add(messages) == messages
    assert held.add(messages) == []
    order = offsets[:]
    chance.shuffle(order)
    last = -1
    for done, offset in enumerate(order, 1):
        assert held.finish(offset)
        committable = held.committable()
        unfinished = set(order[done:])
        assert committable == (min(unfinished) if unfinished else 31)
        assert committable >= last
        assert not held.finish(offset)
        last = committable
    assert held.unfinished_bytes == 0


@pytest.mark.behaviour("LK-01")
def test_a_lock_that_is_not_renewed_is_free_after_a_minute() -> None:
    clock = VirtualClock()
    locks = QueueLocks(clock, ChangeFeed())
    queue = MessageQueue("t", "a", 0)
    assert locks.lock("g", "one", [queue]) == [queue]
    clock.advance(59)
    assert locks.lock("g", "one", [queue]) == [queue]
    clock.advance(59)
    assert locks.lock("g", "two", [queue]) == []
    clock.advance(2)
    assert locks.lock("g", "two", [queue]) == [queue]
    assert locks.any_held("g")
