"""A broker is sent all tables piece by piece, while they change."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.turns import Turns
from tests.unit.replication_pair import Pair, Side, connect
from tests.unit.test_broker_change_feed import Tables

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.pop.state import PopState
from orbitmq.broker.role import Role
from orbitmq.replication.state.outbox import MAX_ENTRIES, WINDOW, everything
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire.bodies.topic import TopicConfig

# More entries than are sent before the other side responds.
MANY = MAX_ENTRIES * (WINDOW + 4)


def make_topics(side: Side) -> None:
    for number in range(MANY):
        side.tables.topics.update(TopicConfig(f"t{number}", 4, 4))


def change_the_last(side: Side) -> None:
    """Change the entries that are sent last."""
    side.tables.topics.update(TopicConfig(f"t{MANY - 2}", 8, 8))
    side.tables.topics.delete(f"t{MANY - 1}")


def check_the_last(side: Side) -> None:
    changed = side.tables.topics.get(f"t{MANY - 2}")
    assert changed is not None
    assert changed.read_queue_nums == 8
    assert f"t{MANY - 1}" not in side.tables.topics
    assert sum(topic.topic_name.startswith("t") for topic in side.tables.topics) == MANY - 1


@pytest.mark.behaviour("MO-13")
async def test_a_slave_that_links_has_what_changed_while_it_was_told(runtime: SimulatedRuntime) -> None:
    """Values from the start of the transfer must not arrive last, and a deleted topic must not return."""
    async with Pair(runtime) as pair:
        make_topics(pair.master)
        connect(pair.master, pair.slave)
        await pair.sleep(0.01)
        change_the_last(pair.master)
        await pair.sleep(2)
        check_the_last(pair.slave)


@pytest.mark.behaviour("MO-13")
async def test_a_returning_master_has_what_changed_at_its_slave_while_it_was_told(
    runtime: SimulatedRuntime,
) -> None:
    """The response alone carries the changes of an acting slave, so it must not lack any."""
    async with Pair(runtime, Role.ACTING_MASTER) as pair:
        make_topics(pair.slave)
        pair.master.become(Role.PRE_ONLINE)
        here, _ = connect(pair.master, pair.slave)
        asking = asyncio.ensure_future(pair.master.exchange.request_tables(here))
        await pair.sleep(0.01)
        assert not asking.done()
        change_the_last(pair.slave)
        await asking
        check_the_last(pair.master)


@pytest.mark.behaviour("MO-13")
async def test_messages_popped_while_a_slave_is_told_stay_in_flight_there(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = (PopState(side.tables.feed, side.tables.offsets) for side in (pair.master, pair.slave))
        for number in range(MANY // 2):  # the offsets of all queues are sent before
            queue = here.in_flight.queue("T", f"g{number}", 0)
            delivery = here.in_flight.take(queue, 0, range(5), 5, now_ms=1, invisible_ms=1000)
            here.in_flight.acknowledge(queue, delivery.receipt, range(5))
        connect(pair.master, pair.slave)
        await pair.sleep(0.01)
        delivery = here.in_flight.take(queue, 5, range(5, 10), 10, now_ms=2, invisible_ms=1000)
        here.in_flight.acknowledge(queue, delivery.receipt, range(5, 9))
        await pair.sleep(2)
        told = there.in_flight.find("T", queue.group, 0)
        assert told is not None
        assert (told.next, [set(each.left) for each in told.deliveries.values()]) == (10, [{9}])


def test_nothing_is_kept_of_changes_when_all_is_told() -> None:
    tables = Tables(VirtualClock())
    for topic in ("one", "two"):
        tables.topics.update(TopicConfig(topic))
    telling = everything(tables.feed)
    next(telling)
    listening = len(tables.feed._listeners)
    tables.topics.delete("two")
    assert "two" not in [entry.key for entry in telling]
    assert len(tables.feed._listeners) == listening - 1
    telling = everything(tables.feed)
    next(telling)
    del telling
    assert len(tables.feed._listeners) == listening - 1, "a link that ends leaves nothing behind"


@pytest.mark.behaviour("HB-11")
async def test_whole_tables_are_told_in_slices(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame is encoded at a time, since encoding all frames of a link blocks the event loop for 0.1 s."""
    async with Pair(runtime) as pair:
        count = MAX_ENTRIES * (WINDOW + 2)
        for number in range(count):
            pair.master.tables.offsets.commit("g", f"T{number}", 0, number)
        turns = Turns(monkeypatch, ChangeFeed, "entry")
        connect(pair.master, pair.slave)
        await pair.sleep(1)
        assert len(pair.slave.tables.offsets.table()) == count
        assert turns.total >= count
        assert turns.longest <= MAX_ENTRIES + 10
