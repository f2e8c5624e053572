"""Tables are sent beside the log: a slave has those of its master."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.replication_pair import DISK_S, Pair, Side, connect, cut
from tests.unit.test_broker_change_feed import change_something

from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.role import Role
from orbitmq.replication.state.exchange import SLICE
from orbitmq.replication.state.outbox import MAX_ENTRIES, WINDOW
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.topic import TopicConfig


@pytest.mark.parametrize("orbitmq_seed", range(15))
async def test_the_slaves_tables_are_the_masters_within_a_moment(
    runtime: SimulatedRuntime, orbitmq_seed: int
) -> None:
    dice = random.Random(orbitmq_seed)
    async with Pair(runtime) as pair:
        links = None
        for _ in range(200):
            if dice.random() < 0.05:
                if links is not None:
                    cut(*links)
                links = connect(pair.master, pair.slave) if links is None or dice.random() < 0.5 else None
            change_something(pair.master.tables, dice)
            if links is None and dice.random() < 0.1:
                change_something(pair.slave.tables, dice)  # a slave whose tables differ
            await pair.sleep(dice.random() / 20)
        if links is None:
            connect(pair.master, pair.slave)
        await pair.sleep(0.2)
        assert pair.slave.content() == pair.master.content()


@pytest.mark.behaviour("MO-13")
async def test_a_topic_is_there_within_a_fifth_of_a_second(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        connect(pair.master, pair.slave)
        pair.master.tables.topics.update(TopicConfig("new"))
        await pair.sleep(0.2)
        assert "new" in pair.slave.tables.topics


@pytest.mark.behaviour("MO-17")
async def test_a_topic_is_told_at_once_and_counts_when_it_is_on_the_followers_disk(
    runtime: SimulatedRuntime,
) -> None:
    async with Pair(runtime) as pair:
        connect(pair.master, pair.slave)
        await pair.sleep(0.2)
        pair.slave.saved.clear()
        pair.master.tables.offsets.commit("g", "T", 0, 5)
        pair.master.tables.topics.update(TopicConfig("new"))
        push = asyncio.ensure_future(pair.master.exchange.push())
        await pair.sleep(DISK_S / 2)
        assert "new" in pair.slave.tables.topics
        assert TOPICS in pair.slave.saved
        await pair.sleep(DISK_S / 2)
        assert not push.done()
        await push
        pair.slave.saved.clear()
        pair.master.tables.offsets.commit("g", "T", 0, 6)
        await pair.master.exchange.push()
        assert pair.slave.saved == []


@pytest.mark.behaviour("MO-17")
async def test_topics_that_wait_for_the_log_when_the_link_ends_are_saved(runtime: SimulatedRuntime) -> None:
    """They must not stay in memory until the next change is written."""
    async with Pair(runtime) as pair:
        ends = connect(pair.master, pair.slave)
        await pair.sleep(0.2)
        pair.master.tables.log_end = 1000
        pair.master.tables.topics.update(TopicConfig("new"))
        await pair.sleep(0.2)
        pair.slave.saved.clear()
        assert "new" not in pair.slave.tables.topics
        cut(*ends)
        assert "new" in pair.slave.tables.topics
        await pair.sleep(0)
        assert TOPICS in pair.slave.saved


@pytest.mark.behaviour("PO-22")
async def test_who_lost_its_disk_takes_tables_of_any_version(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.tables.topics.update(TopicConfig("old"))
        for role in (Role.PRE_ONLINE, Role.MASTER) * 3:
            master.become(role)
        master.become(Role.PRE_ONLINE)
        before = master.exchange.terms.term
        master.exchange.terms.outdate()
        here, _ = connect(master, slave)
        await master.exchange.request_tables(here)
        assert "old" in master.tables.topics
        master.become(Role.MASTER)
        assert master.exchange.terms.term > before > 0


@pytest.mark.behaviour("PO-40")
async def test_who_lost_its_disk_adds_what_older_tables_have_alone(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        master, acted, other = pair.master, pair.slave, Side(runtime, Role.SLAVE)
        await other.exchange.start()
        for side in (acted, other):
            side.tables.topics.update(TopicConfig("both", read_queue_nums=4))
        other.tables.topics.update(TopicConfig("alone"))
        acted.become(Role.ACTING_MASTER)
        acted.tables.topics.update(TopicConfig("both", read_queue_nums=8))
        acted.become(Role.SLAVE)
        master.become(Role.PRE_ONLINE)
        master.exchange.terms.outdate()
        for side in (acted, other):
            here, _ = connect(master, side)
            await master.exchange.request_tables(here)
        assert "alone" in master.tables.topics
        both = master.tables.topics.get("both")
        assert both is not None
        assert both.read_queue_nums == 8
        here_version, there_version = master.tables.topics.version, acted.tables.topics.version
        assert here_version.state_version == there_version.state_version == 1
        await other.exchange.stop()


@pytest.mark.behaviour("MO-08")
async def test_a_change_waits_for_the_log_that_it_speaks_of(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, _ = connect(pair.master, pair.slave)
        pair.master.tables.offsets.commit("g", "T", 0, 5)
        await pair.sleep(0.2)
        pair.master.tables.log_end = 1000
        pair.master.tables.offsets.commit("g", "T", 0, 9)
        await pair.sleep(1)
        assert pair.slave.tables.offsets.query("g", "T", 0) == 5
        push = asyncio.ensure_future(pair.master.exchange.push())
        await pair.sleep(1)
        assert not push.done()
        pair.slave.tables.log_end = 1000
        await push
        assert pair.slave.tables.offsets.query("g", "T", 0) == 9
        assert here.sent > 0


async def test_a_slave_that_came_just_now_has_the_tables_before_its_master_goes(
    runtime: SimulatedRuntime,
) -> None:
    """It has the log already, and without the tables its messages would belong to unknown topics."""
    async with Pair(runtime) as pair:
        pair.master.tables.topics.update(TopicConfig("new"))
        connect(pair.master, pair.slave)
        await pair.master.exchange.push()
        assert "new" in pair.slave.tables.topics


async def test_what_the_leader_told_counts_when_it_is_gone(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        links = connect(pair.master, pair.slave)
        pair.master.tables.log_end = 1000
        pair.master.tables.offsets.commit("g", "T", 0, 9)
        await pair.sleep(0.2)
        cut(*links)
        pair.slave.become(Role.ACTING_MASTER)
        assert pair.slave.tables.offsets.query("g", "T", 0) == 9


@pytest.mark.behaviour("PO-47")
@pytest.mark.parametrize("event", ["the link ends", "the slave acts"])
@pytest.mark.parametrize("newer", ["waits for the log", "is ready too"])
@pytest.mark.parametrize("orbitmq_seed", range(3))
async def test_an_older_change_is_never_made_behind_a_newer_one(
    runtime: SimulatedRuntime, event: str, newer: str, orbitmq_seed: int
) -> None:
    """Changes are applied in slices, and the leader is lost after the first one."""
    choice = random.Random(orbitmq_seed)
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        links = connect(master, slave)
        await pair.sleep(0.2)
        for number in range(SLICE):
            master.tables.offsets.commit("g", f"T{number}", 0, 1)
        master.tables.offsets.commit("g", "moves on", 0, 10)
        for _ in range(100):
            change_something(master.tables, choice)
        master.tables.topics.update(TopicConfig("told at once"))
        await pair.sleep(0.0005)  # the earlier frames and the later ones arrive together
        master.tables.log_end = 1000
        master.tables.offsets.commit("g", "moves on", 0, 99)
        for _ in range(100):
            change_something(master.tables, choice)
        master.tables.topics.update(TopicConfig("told at once", 2, 2))
        if newer == "is ready too":
            slave.tables.log_end = 1000
        lost: list[int] = []

        def lose() -> None:
            cut(*links)
            if event == "the slave acts":
                slave.become(Role.ACTING_MASTER)

        def count(_table: str, _key: str, _value: object) -> None:
            lost.append(0)
            if len(lost) == SLICE:
                asyncio.get_running_loop().call_soon(lose)

        slave.tables.feed.subscribe(count)
        await pair.sleep(1)
        assert slave.tables.offsets.query("g", "moves on", 0) == 99
        there, here = slave.content(), master.content()
        for content in (there, here):  # an acting broker begins a new term
            for table in ("topics", "groups", "offsets"):
                content[table]["dataVersion"]["stateVersion"] = 0
        assert there == here


async def test_many_tables_are_told_in_pieces_that_the_other_side_takes(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        count = MAX_ENTRIES * (WINDOW + 3)
        for number in range(count):
            pair.master.tables.offsets.commit("g", f"T{number}", 0, number)
        here, _ = connect(pair.master, pair.slave)
        assert here.sent <= WINDOW + 1
        await pair.sleep(1)
        assert len(pair.slave.tables.offsets.table()) == count
