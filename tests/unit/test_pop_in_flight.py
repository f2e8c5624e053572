"""The pure state of pop: deliveries, deadlines, floors; batches in order; retry policies; texts."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seeds import seeds

from orbitmq.broker.change_feed import POP_DELIVERIES, POPS, ChangeFeed, FeedEntry
from orbitmq.broker.events import Events
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.pop import retry_policy
from orbitmq.broker.pop.in_flight import InFlight, PopDelivery, PopQueue, of_runs, runs
from orbitmq.broker.pop.ordered import MAX_BATCH, Batch, OrderedPops
from orbitmq.broker.pop.state import PopState
from orbitmq.replication.state.outbox import everything
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import pop_info
from orbitmq.wire.errors import HeaderError


class Told:
    """Records the notices to listeners."""

    def __init__(self) -> None:
        self.deliveries: dict[str, set[int]] = {}
        self.positions: dict[str, tuple[int, int]] = {}

    def changed(self, _queue: PopQueue, delivery: PopDelivery) -> None:
        self.deliveries[delivery.key] = set(delivery.left)

    def moved(self, queue: PopQueue) -> None:
        self.positions[queue.key] = (queue.next, queue.floor)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def in_flight(told: Told) -> InFlight:
    return InFlight(told.changed, told.moved)


def take(
    in_flight: InFlight, queue: PopQueue, count: int, now_ms: int = 0, invisible_ms: int = 1000
) -> PopDelivery:
    start = queue.next
    offsets = range(start, start + count)
    return in_flight.take(queue, start, offsets, start + count, now_ms=now_ms, invisible_ms=invisible_ms)


def test_the_floor_is_the_first_message_that_is_not_done(in_flight: InFlight, told: Told) -> None:
    queue = in_flight.queue("T", "g", 0)
    first, second = take(in_flight, queue, 4), take(in_flight, queue, 4, now_ms=1)
    assert told.positions[queue.key] == (8, 0)
    assert in_flight.acknowledge(queue, second.receipt, [4, 5, 9]) == {4, 5}
    assert told.positions[queue.key] == (8, 0)
    assert in_flight.acknowledge(queue, first.receipt, [0, 1, 3]) == {0, 1, 3}
    assert told.positions[queue.key] == (8, 2)
    assert in_flight.acknowledge(queue, first.receipt, [2]) == {2}
    assert told.positions[queue.key] == (8, 6)
    assert in_flight.acknowledge(queue, first.receipt, [2]) == set()
    assert in_flight.acknowledge(queue, second.receipt, [6, 7]) == {6, 7}
    assert (told.positions[queue.key], len(in_flight), in_flight.next_due_ms) == ((8, 8), 0, None)


def test_what_is_due_leaves_and_no_receipt_of_it_counts(in_flight: InFlight) -> None:
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 2, now_ms=100)
    assert in_flight.next_due_ms == 1100
    assert in_flight.take_due(1099, 10) == []
    assert in_flight.take_due(1100, 10) == [(queue, delivery)]
    assert in_flight.acknowledge(queue, delivery.receipt, [0]) == set()
    assert in_flight.change(queue, delivery.receipt, 1, now_ms=1100, invisible_ms=5) is None
    in_flight.again(queue, delivery, 2000)
    assert in_flight.take_due(1999, 10) == []
    assert in_flight.take_due(2000, 10) == [(queue, delivery)]


def test_another_time_is_another_receipt(in_flight: InFlight) -> None:
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 2, now_ms=100)
    changed = in_flight.change(queue, delivery.receipt, 0, now_ms=100, invisible_ms=9000)
    assert changed is not None
    assert changed.receipt == (0, 101), "another one though pop and change met in a millisecond"
    assert in_flight.acknowledge(queue, delivery.receipt, [0]) == set()
    assert in_flight.acknowledge(queue, changed.receipt, [0]) == {0}
    assert (delivery.left, queue.in_flight, queue.floor) == ({1}, 1, 1)


def test_a_group_that_is_moved_has_nothing_in_flight_beyond(in_flight: InFlight, told: Told) -> None:
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 5)
    in_flight.move(queue, 2)
    assert (delivery.left, told.positions[queue.key]) == ({0, 1}, (2, 0))
    in_flight.drop(group="g")
    assert (len(in_flight), in_flight.find("T", "g", 0)) == (0, None)
    assert told.deliveries[delivery.key] == set()


@pytest.mark.parametrize("seed", seeds(40))
def test_state_by_chance_against_a_plain_table(seed: int) -> None:
    """Deliveries that end leave no entry, and the notices to listeners add up to the state."""
    dice = random.Random(seed)
    told = Told()
    in_flight = InFlight(told.changed, told.moved)
    queue = in_flight.queue("T", "g", 0)
    plain: dict[int, PopDelivery] = {}
    now = 0
    for _ in range(400):
        now += dice.randrange(3)
        action = dice.randrange(5)
        if action == 0:
            delivery = take(in_flight, queue, dice.randrange(1, 6), now, dice.randrange(1, 50))
            plain.update(dict.fromkeys(delivery.left, delivery))
        elif action in (1, 2) and plain:
            offset = dice.choice(sorted(plain))
            delivery = plain[offset]
            if in_flight.acknowledge(queue, delivery.receipt, [offset]):
                del plain[offset]
        elif action == 3 and plain:
            offset = dice.choice(sorted(plain))
            changed = in_flight.change(
                queue, plain[offset].receipt, offset, now_ms=now, invisible_ms=dice.randrange(1, 50)
            )
            if changed is not None:
                plain[offset] = changed
        else:
            for _, delivery in in_flight.take_due(now, 3):
                assert delivery.due_ms <= now
                gone = set(delivery.left)
                in_flight.remove(queue, delivery, gone)
                for offset in gone:
                    del plain[offset]
        assert queue.in_flight == len(in_flight) == len(plain)
        assert queue.floor == min(plain, default=queue.next)
        assert told.positions.get(queue.key, (0, 0)) == (queue.next, queue.floor)
        left = {key: offsets for key, offsets in told.deliveries.items() if offsets}
        assert left == {each.key: each.left for each in queue.deliveries.values()}
        alive = [each.due_ms for each in queue.deliveries.values() if not each.leaving]
        assert in_flight.next_due_ms == min(alive, default=None)
    assert len(in_flight._due) <= 2 * len(queue.deliveries) + 64 + 1


@given(st.sets(st.integers(0, 200)), st.integers(0, 50))
def test_runs_say_which_offsets(offsets: set[int], start: int) -> None:
    shifted = {start + offset for offset in offsets}
    assert set(of_runs(runs(shifted, start), start)) == shifted


# -- in order --------------------------------------------------------------------------------------------


def test_a_gap_in_a_batch_is_not_passed() -> None:
    """Six was delivered and not acknowledged, seven was: a smaller batch with five alone must not
    hide six.
    """
    orders = OrderedPops(ChangeFeed())

    def dealt(offsets: list[int], now_ms: int) -> Batch:
        return orders.take("T", "g", 0, offsets, now_ms=now_ms, invisible_ms=10, attempt_id=None)

    dealt([5, 6, 7], 0)
    assert orders.acknowledge("T", "g", 0, 7, 0) == 5
    assert orders.blocked_until("T", "g", 0, None, 9) == 10
    assert orders.blocked_until("T", "g", 0, None, 10) is None
    assert dealt([5], 20).offsets == [5, 6, 7]
    assert orders.acknowledge("T", "g", 0, 5, 20) == 6
    assert orders.blocked_until("T", "g", 0, None, 21) is None
    again = dealt([6, 8], 30)
    assert (again.offsets, again.counts) == ([6, 7, 8], {6: 1})
    assert orders.acknowledge("T", "g", 0, 6, 30) == 8
    assert orders.acknowledge("T", "g", 0, 6, 30) is None, "twice"
    assert orders.acknowledge("T", "g", 0, 8, 29) is None, "an old receipt"
    assert orders.acknowledge("T", "g", 0, 8, 30) == 9


def test_a_repeated_attempt_gets_the_same_and_counts_once() -> None:
    orders = OrderedPops(ChangeFeed())
    orders.take("T", "g", 0, [1, 2], now_ms=0, invisible_ms=1000, attempt_id="a")
    assert orders.blocked_until("T", "g", 0, "a", 5) is None
    assert orders.blocked_until("T", "g", 0, "b", 5) == 1000
    assert orders.take("T", "g", 0, [1, 2], now_ms=5, invisible_ms=1000, attempt_id="a").counts == {}
    later = orders.take("T", "g", 0, [1, 2], now_ms=2000, invisible_ms=1000, attempt_id="c")
    assert later.counts == {1: 1, 2: 1}


def test_the_table_file_is_the_one_of_java() -> None:
    orders = OrderedPops(ChangeFeed())
    java = {"table": {"T@g": {"0": {"popTime": 7, "i": 60, "o": [5, 1, 3], "l": 8, "cm": 2, "oc": {"5": 1}}}}}
    orders.restore(java)
    batch = orders.find("T", "g", 0)
    assert batch is not None
    assert (batch.offsets, batch.done_offsets, batch.counts) == ([5, 6, 8], {6}, {5: 1})
    assert '\n\t\t"T@g":{\n\t\t\t0:{' in "".join(orders.file_text())
    assert Batch.of_plain(batch.to_plain()) == batch
    assert MAX_BATCH < 64


# -- policies and texts ----------------------------------------------------------------------------------


def test_delays_of_policies() -> None:
    group = bodies.SubscriptionGroupConfig(group_name="g")
    assert retry_policy.delay_ms(group, 3) == 0
    group.group_retry_policy = bodies.GroupRetryPolicy(
        bodies.GroupRetryPolicyType.CUSTOMIZED, customized_retry_policy=bodies.CustomizedRetryPolicy()
    )
    assert [retry_policy.delay_ms(group, times) for times in (0, 1, 99)] == [10_000, 30_000, 7_200_000]
    group.group_retry_policy = bodies.GroupRetryPolicy(
        bodies.GroupRetryPolicyType.EXPONENTIAL, exponential_retry_policy=bodies.ExponentialRetryPolicy()
    )
    assert [retry_policy.delay_ms(group, times) for times in (-1, 0, 2, 40)] == [
        5000,
        5000,
        20_000,
        7_200_000,
    ]


def test_names_of_retry_topics_lead_back() -> None:
    for kind in ("0", "1", "2"):
        assert pop_info.normal_topic(pop_info.retry_topic("a_b", "g_h", kind), "g_h") == "a_b"


def test_missed_offsets_as_text() -> None:
    missed = {0: [5, 7], 3: [1]}
    assert pop_info.decode_missed(pop_info.encode_missed(missed)) == missed
    assert pop_info.decode_missed("") == {}
    with pytest.raises(HeaderError, match="missedOffsets"):
        pop_info.decode_missed("x")


def test_what_is_in_flight_in_a_queue_that_is_forgotten_is_not_done(in_flight: InFlight, told: Told) -> None:
    queue = in_flight.queue("T", "g", 0)
    take(in_flight, queue, 4)
    told.positions.clear()
    in_flight.drop_queue(queue)
    assert told.positions == {queue.key: (-1, -1)}
    assert in_flight.find("T", "g", 0) is None


def test_a_delivery_that_is_over_says_nothing_of_the_queue_that_has_its_name_now(
    in_flight: InFlight, told: Told
) -> None:
    """Its redelivery may be stored after the group went back and its queue was dropped."""
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 4)
    in_flight.move(queue, 0)
    in_flight.drop_queue(queue)
    take(in_flight, in_flight.queue("T", "g", 0), 2)
    in_flight.remove(queue, delivery, {0})
    assert told.positions == {queue.key: (2, 0)}


def pops() -> tuple[ChangeFeed, PopState]:
    feed = ChangeFeed()
    return feed, PopState(feed, ConsumerOffsets(VirtualClock(), feed, Events()))


def test_a_broker_that_is_told_only_the_beginning_of_the_tables_misses_nothing_in_flight() -> None:
    feed, state = pops()
    queue = state.in_flight.queue("T", "g", 0)
    take(state.in_flight, queue, 4)
    told = list(everything(feed))
    for count in range(len(told) + 1):
        other_feed, other = pops()
        for entry in told[:count]:
            other_feed.apply(entry)
        found = other.in_flight.queue("T", "g", 0)
        in_flight = {offset for delivery in found.deliveries.values() for offset in delivery.left}
        assert in_flight >= set(range(found.next)), [entry.table for entry in told[:count]]
    assert (found.next, in_flight) == (4, {0, 1, 2, 3})


def test_what_a_broker_dealt_out_itself_is_no_news_to_it() -> None:
    feed, state = pops()
    queue = state.in_flight.queue("T", "g", 0)
    delivery = take(state.in_flight, queue, 4)
    told = {entry.table: entry for entry in everything(feed)}
    state.in_flight.acknowledge(queue, delivery.receipt, range(4))
    assert [feed.is_news(told[table]) for table in (POP_DELIVERIES, POPS)] == [False, False]
    take(state.in_flight, queue, 2)
    later = {entry.table: entry for entry in everything(feed)}
    other_feed, other = pops()
    take(other.in_flight, other.in_flight.queue("T", "g", 0), 4)
    assert [other_feed.is_news(later[table]) for table in (POP_DELIVERIES, POPS)] == [True, True]
    assert feed.is_news(FeedEntry(1, 0, POPS, "no queue", 1)), "making it says what is wrong"


def test_asking_whether_pops_are_news_makes_no_queue() -> None:
    """A queue that the check creates would count as popped: its group's commits would go through it."""
    other_feed, other = pops()
    take(other.in_flight, other.in_flight.queue("T", "g", 0), 4)
    told = {entry.table: entry for entry in everything(other_feed)}
    feed, state = pops()
    assert [feed.is_news(told[table]) for table in (POP_DELIVERIES, POPS)] == [True, True]
    assert list(state.in_flight) == []


@pytest.mark.behaviour("PO-37")
def test_pops_of_before_a_reset_that_waits_are_no_news() -> None:
    """A returning slave sends such pops; the group's committed offset must not move beyond the reset
    again.
    """
    other_feed, other = pops()
    take(other.in_flight, other.in_flight.queue("T", "g", 0), 4)
    told = {entry.table: entry for entry in everything(other_feed)}
    feed = ChangeFeed()
    offsets = ConsumerOffsets(VirtualClock(), feed, Events())
    PopState(feed, offsets)
    offsets.reset("g", "T", 0, 0)
    assert [feed.is_news(told[table]) for table in (POP_DELIVERIES, POPS)] == [False, False]
    offsets.take_reset("g", "T", 0)
    assert [feed.is_news(told[table]) for table in (POP_DELIVERIES, POPS)] == [True, True]


def test_more_time_leaves_the_receipt_as_it_is(in_flight: InFlight, told: Told) -> None:
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 2)
    assert in_flight.extend(queue, delivery.receipt, due_ms=5000)
    assert in_flight.take_due(4999, 10) == []
    assert in_flight.acknowledge(queue, delivery.receipt, [0]) == {0}
    assert in_flight.take_due(5000, 10) == [(queue, delivery)]
    assert not in_flight.extend(queue, delivery.receipt, due_ms=9000), "it is leaving"
    again = take(in_flight, queue, 1, invisible_ms=60_000)
    assert in_flight.extend(queue, again.receipt, due_ms=10)
    assert in_flight.next_due_ms == 10
    assert in_flight.take_due(10, 10) == [(queue, again)]


def test_a_message_that_is_given_up_has_a_delivery_of_its_own(in_flight: InFlight, told: Told) -> None:
    queue = in_flight.queue("T", "g", 0)
    delivery = take(in_flight, queue, 3)
    assert in_flight.give_up(queue, delivery.receipt, 1, now_ms=100, why=("no good", "c"))
    assert not in_flight.give_up(queue, delivery.receipt, 1, now_ms=100, why=("no good", "c"))
    assert not in_flight.give_up(queue, (7, 7), 0, now_ms=100, why=("no good", "c"))
    assert delivery.left == {0, 2}
    [(_, dead)] = in_flight.take_due(100, 10)
    assert (dead.dead, dead.left, dead.why_dead) == (True, {1}, ("no good", "c"))
    assert told.positions[queue.key] == (3, 0)


def test_that_a_message_was_given_up_is_kept() -> None:
    _, state = pops()
    queue = state.in_flight.queue("T", "g", 0)
    state.in_flight.add_dead(queue, 5, now_ms=1000, why=("no good", "c"))
    _, again = pops()
    again.restore(json.loads("".join(state.file_text())))
    [delivery] = again.in_flight.queue("T", "g", 0).deliveries.values()
    assert (delivery.dead, delivery.left) == (True, {5})
