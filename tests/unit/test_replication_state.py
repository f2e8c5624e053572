"""Tables travel with the log, over links in memory."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest
from tests.unit.test_broker_change_feed import Tables, change_something

from orbitmq.broker.change_feed import (
    ACLS,
    ACTED,
    OFFSETS,
    TOPICS,
    USERS,
    ChangeFeed,
    FedTable,
    FeedEntry,
)
from orbitmq.broker.component import StoredTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.progress import DelayProgress, LevelProgress
from orbitmq.broker.events import Events
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.role import Role, RoleState, RoleTaken
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.message.model import MessageQueue
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.replication.state.acted_tables import ActedTables
from orbitmq.replication.state.acting_term import ActingTerm
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.copies import TravellingTables
from orbitmq.replication.state.durable_tables import DurableTables
from orbitmq.replication.state.exchange import SLICE, StateExchange
from orbitmq.replication.state.frames import Ack, Changes, decode_ack, decode_state, encode
from orbitmq.replication.state.inbox import MAX_WAITING, Complete, Inbox
from orbitmq.replication.state.outbox import FRAME_BYTES, MAX_ENTRIES, WINDOW, Outbox, SendingLink, everything
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.bodies.topic import DataVersion, TopicConfig

# What it takes to bring a change to the disk.
DISK_S = 0.01


class Side:
    """One broker: its tables, its role, and how far its log goes."""

    def __init__(self, runtime: SimulatedRuntime, role: Role) -> None:
        self.runtime = runtime
        self.tables = Tables(runtime.clock)  # type: ignore[arg-type]
        self.peers = Peers()
        self.role = RoleState(role, 0)
        self.noted: list[str] = []
        self.refusals: list[OSError] = []
        self.locks = LockCopy(runtime.clock, BrokerConfig(), self.role, self.tables.locks, Timing(4.0, 1.0))
        self.exchange = StateExchange(
            runtime.clock,
            self.tables.events,
            self.role,
            self.tables.feed,
            self,
            self.peers,  # type: ignore[arg-type]
            DurableTables(self.save),
            self.locks,
            self.noted.append,
            self.refusals.append,
        )
        self.saved: list[str] = []
        self.disk_s = DISK_S
        self.crashed = False

    async def save(self, *tables: str) -> None:
        self.saved.extend(tables)
        await self.runtime.clock.sleep(self.disk_s)

    @property
    def max_commit_log_offset(self) -> int:
        return self.tables.log_end

    def become(self, role: Role, *, taken: bool = True) -> None:
        changed = self.role.move(role, 0)
        assert changed is not None
        self.tables.events.publish(changed)
        if taken:
            self.tables.events.publish(RoleTaken())

    def content(self) -> dict[str, Any]:
        return self.tables.content()


class Link:
    """One end of a link; frames arrive a moment later, in order."""

    def __init__(self, owner: Side, broker_id: int, is_master: bool) -> None:
        self.owner = owner
        self.broker_id = broker_id
        self.is_master = is_master
        self.address = f"10.0.0.{broker_id}:1"
        self.other: Link | None = None
        self.sealed = False
        self.sent = 0
        self._on_the_way: list[tuple[FrameKind, bytes]] = []

    def send(self, kind: FrameKind, payload: bytes) -> None:
        self.sent += 1
        self._on_the_way.append((kind, payload))
        if len(self._on_the_way) == 1:
            asyncio.get_running_loop().call_later(0.001, self._arrive)

    def _arrive(self) -> None:
        frames, self._on_the_way = self._on_the_way, []
        for kind, payload in frames:
            if self.other is not None:
                self.other.owner.peers.received(self.other, kind, payload)


def connect(master: Side, slave: Side, *, sealed: bool = False) -> tuple[Link, Link]:
    here, there = Link(master, 1, False), Link(slave, 0, True)
    here.sealed = there.sealed = sealed
    here.other, there.other = there, here
    master.peers.opened(here)
    slave.peers.opened(there)
    return here, there


def cut(here: Link, there: Link) -> None:
    here.other = there.other = None
    here.owner.peers.closed(here)
    there.owner.peers.closed(there)


class Pair:
    def __init__(self, runtime: SimulatedRuntime, slave_role: Role = Role.SLAVE) -> None:
        self.runtime = runtime
        self.master, self.slave = Side(runtime, Role.MASTER), Side(runtime, slave_role)

    async def __aenter__(self) -> Pair:
        await self.master.exchange.start()
        await self.slave.exchange.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.master.exchange.stop()
        await self.slave.exchange.stop()

    async def sleep(self, seconds: float) -> None:
        await self.runtime.clock.sleep(seconds)


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
                change_something(pair.slave.tables, dice)  # a slave whose tables went another way
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
    """They were made in memory only, and written with the next change."""
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
        await master.exchange.ask(here)
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
            await master.exchange.ask(here)
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
    """It had the log already: its messages were of topics that nobody knew any more."""
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
    """Changes are made in slices, and the leader is lost after the first one."""
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
        await pair.sleep(0.0005)  # the frames of before and of after arrive together
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
        for content in (there, here):  # one that acts begins a term of its own
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


@pytest.mark.behaviour("PO-08")
@pytest.mark.behaviour("PO-09")
@pytest.mark.behaviour("PO-10")
async def test_a_returning_master_takes_what_was_changed_meanwhile(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        links = connect(master, slave)
        for queue in range(3):
            master.tables.offsets.commit("g", "T", queue, 10)
        await pair.sleep(0.2)
        cut(*links)
        master.tables.offsets.commit("g", "Only there", 0, 3)
        slave.become(Role.ACTING_MASTER)
        assert slave.exchange.terms.term == 1
        slave.tables.offsets.commit("g", "T", 1, 25)
        slave.tables.topics.update(TopicConfig("made meanwhile"))
        master.become(Role.PRE_ONLINE)
        slave.become(Role.SLAVE)
        here, _ = connect(master, slave)
        await master.exchange.ask(here)
        assert master.tables.offsets.queues("g", "T") == {0: 10, 1: 25, 2: 10}
        assert master.tables.offsets.query("g", "Only there", 0) == 3
        assert "made meanwhile" in master.tables.topics
        master.become(Role.MASTER)
        assert master.exchange.terms.term == 2
        await pair.sleep(0.3)
        assert slave.content() == master.content()


async def test_tables_that_are_older_are_not_taken(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.tables.offsets.commit("g", "T", 0, 1)
        for number in range(9):
            master.tables.offsets.commit("g", "T", 0, 10 + number)
        assert master.tables.offsets.version.is_newer_than(slave.tables.offsets.version)
        master.become(Role.PRE_ONLINE)
        here, _ = connect(master, slave)
        await master.exchange.ask(here)
        assert master.tables.offsets.query("g", "T", 0) == 18


async def test_a_master_of_an_older_term_is_told_and_not_heard(runtime: SimulatedRuntime) -> None:
    """A frozen master that thaws: meanwhile another broker has led."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.become(Role.ACTING_MASTER)
        slave.tables.offsets.commit("g", "T", 0, 50)
        slave.become(Role.SLAVE)
        master.tables.offsets.commit("g", "T", 0, 3)
        connect(master, slave)
        await pair.sleep(0.3)
        assert slave.tables.offsets.query("g", "T", 0) == 50
        assert master.tables.offsets.query("g", "T", 0) == 50
        assert master.exchange.terms.term == 1
        master.tables.offsets.commit("g", "T", 0, 51)
        await pair.sleep(0.3)
        assert slave.tables.offsets.query("g", "T", 0) == 51


@pytest.mark.behaviour("PO-31")
async def test_a_master_that_began_the_same_term_as_its_slave_is_told_and_not_heard(
    runtime: SimulatedRuntime,
) -> None:
    """Seed 1063: it came back while no name server ran, and led without what its slave had done."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.become(Role.ACTING_MASTER)
        slave.tables.offsets.commit("g", "T", 0, 50)
        master.become(Role.PRE_ONLINE)
        master.become(Role.MASTER)
        master.tables.offsets.commit("g", "T", 0, 3)
        master.tables.offsets.commit("g", "T", 1, 7)
        slave.become(Role.SLAVE)
        assert master.exchange.terms.term == slave.exchange.terms.term == 1
        links = connect(master, slave)
        await pair.sleep(0.3)
        for side in (master, slave):
            assert side.tables.offsets.queues("g", "T") == {0: 50, 1: 7}
        term = master.exchange.terms.term
        # What it did is its master's now: it follows like any other.
        cut(*links)
        master.tables.offsets.commit("g", "T", 0, 51)
        connect(master, slave)
        await pair.sleep(0.3)
        assert slave.tables.offsets.query("g", "T", 0) == 51
        assert master.exchange.terms.term == slave.exchange.terms.term == term


@pytest.mark.behaviour("PO-43")
@pytest.mark.parametrize("telling", ["its master tells something", "nothing is told"])
async def test_who_stops_to_act_tells_what_its_last_work_has_changed(
    runtime: SimulatedRuntime, telling: str
) -> None:
    """Seed 1634: it told its tables first. What it handed on last was gone with what its master told then."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        connect(master, slave)
        await pair.sleep(0.3)
        slave.become(Role.ACTING_MASTER)
        slave.tables.offsets.commit("g", "T", 0, 50)
        slave.become(Role.SLAVE, taken=False)
        if telling == "its master tells something":
            master.tables.offsets.commit("g", "T", 1, 3)
        await pair.sleep(0.3)
        slave.tables.offsets.commit("g", "last", 0, 7)
        slave.tables.events.publish(RoleTaken())
        await pair.sleep(0.3)
        for side in (master, slave):
            assert side.tables.offsets.query("g", "T", 0) == 50
            assert side.tables.offsets.query("g", "last", 0) == 7
        master.tables.offsets.commit("g", "T", 1, 9)
        await pair.sleep(0.3)
        assert slave.tables.offsets.query("g", "T", 1) == 9


class Delivering(Side):
    """With the tables of what a broker delivers."""

    def __init__(self, runtime: SimulatedRuntime, role: Role) -> None:
        super().__init__(runtime, role)
        self.delays = DelayProgress(runtime.clock, 3, self.tables.feed)
        self.halves = EscapedHalves(self.tables.feed)
        self.modes = RequestModes(self.tables.feed, Events())

    def stored(self) -> list[StoredTable]:
        tables = self.tables
        own = [table.source for table in self.exchange.tables()]
        return [tables.topics, tables.groups, tables.offsets, self.delays, self.halves, self.modes, *own]

    async def started_again(self, role: Role = Role.SLAVE) -> Delivering:
        """The same broker with what is in the files of this one."""
        await self.exchange.stop()
        again = Delivering(self.runtime, role)
        for before, after in zip(self.stored(), again.stored(), strict=True):
            after.restore(fastjson.loads("".join(before.file_text())))
        await again.exchange.start()
        return again

    @property
    def delivered(self) -> tuple[list[int], int, dict[int, int]]:
        """The halves that escaped, the place of a delay level, the offsets of a group."""
        return list(self.halves), self.delays.place(2).offset, self.tables.offsets.queues("g", "T")


@pytest.mark.behaviour("PO-32")
@pytest.mark.parametrize("comes", ["told", "asked", "started again"])
@pytest.mark.parametrize("terms", [1, 2])
async def test_what_a_slave_did_before_it_was_stopped_is_news_to_its_master(
    runtime: SimulatedRuntime, terms: int, comes: str
) -> None:
    """Seed 4593: it came back as a slave and took its master's tables; a half message was asked about twice.

    Its master began the same term, or one more, while it was away. What that one did is not undone.

    Args:
        comes: how the master learns it: it is told, it asks, or it is told and knows its term from its files.
    """
    pull, pop = (SetMessageRequestModeRequestBody("T", "g", mode) for mode in MessageRequestMode)
    pair = Pair(runtime)
    pair.master = master = Delivering(runtime, Role.MASTER)
    pair.slave = slave = Delivering(runtime, Role.SLAVE)
    async with pair:
        links = connect(master, slave)
        for queue_id in range(2):
            master.tables.offsets.commit("g", "T", queue_id, 10)
        master.delays.move(1, LevelProgress(3))
        master.modes.put(pull)
        await pair.sleep(0.3)
        cut(*links)
        slave.become(Role.ACTING_MASTER)
        slave.halves.add(7)
        slave.delays.move(2, LevelProgress(5))
        slave.tables.offsets.commit("g", "T", 0, 25)
        pair.slave = slave = await slave.started_again()
        for _ in range(terms):
            master.become(Role.PRE_ONLINE)
            master.become(Role.MASTER)
        assert (slave.exchange.terms.term, master.exchange.terms.term) == (1, terms)
        master.tables.offsets.commit("g", "T", 1, 30)
        master.delays.move(1, LevelProgress(4))
        master.modes.put(pop)
        master.tables.topics.update(TopicConfig("made meanwhile"))
        if comes == "asked":
            master.become(Role.PRE_ONLINE)
        elif comes == "started again":
            pair.master = master = await master.started_again(Role.MASTER)
        links = connect(master, slave)
        if comes == "asked":
            await master.exchange.ask(links[0])
            master.become(Role.MASTER)
        await pair.sleep(0.3)
        for side in (master, slave):
            assert side.delivered == ([7], 5, {0: 25, 1: 30})
            assert side.delays.place(1).offset == 4
            assert side.modes.get("T", "g") == pop
            assert "made meanwhile" in side.tables.topics
            assert side.exchange.terms.term == terms + 1
        # All is told: once more it comes as any other slave.
        master.halves.remove(7)
        cut(*links)
        pair.slave = slave = await slave.started_again()
        connect(master, slave)
        await pair.sleep(0.3)
        assert master.delivered == slave.delivered == ([], 5, {0: 25, 1: 30})
        assert master.exchange.terms.term == slave.exchange.terms.term == terms + 1


@pytest.mark.behaviour("PO-47")
async def test_what_a_slave_did_is_older_than_what_its_master_changed_before_it_was_made(
    runtime: SimulatedRuntime,
) -> None:
    """The master serves while it makes, in slices, the changes received from the slave that acted."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.become(Role.ACTING_MASTER)
        for number in range(SLICE):
            slave.tables.offsets.commit("g", f"T{number}", 0, 1)
        for queue_id in range(2):
            slave.tables.offsets.commit("g", "T", queue_id, 25)
        slave.become(Role.SLAVE)
        changes: list[str] = []

        def serve() -> None:
            master.tables.offsets.commit("g", "T", 0, 20)
            master.tables.offsets.commit("g", "T", 1, 40)

        def count(table: str, key: str, _value: object) -> None:
            changes.append(key)
            if len(changes) == SLICE:
                asyncio.get_running_loop().call_soon(serve)

        master.tables.feed.subscribe(count)
        connect(master, slave)
        await pair.sleep(0.5)
        for side in (master, slave):
            assert side.tables.offsets.query("g", "T0", 0) == 1
            assert side.tables.offsets.queues("g", "T") == {0: 25, 1: 40}


@pytest.mark.behaviour("PO-32")
@pytest.mark.parametrize("terms", [1, 2])
async def test_a_slave_that_acted_undoes_no_topic_or_group_of_a_master_that_served_since(
    runtime: SimulatedRuntime, terms: int
) -> None:
    """It knows them as they were before: one that was deleted came again, one that was changed went back."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        links = connect(master, slave)
        master.tables.topics.update(TopicConfig("changed", 4, 4))
        master.tables.topics.update(TopicConfig("deleted", 4, 4))
        master.tables.groups.update(SubscriptionGroupConfig(group_name="g1", retry_max_times=3))
        await pair.sleep(0.3)
        cut(*links)
        slave.become(Role.ACTING_MASTER)
        for _ in range(terms):
            master.become(Role.PRE_ONLINE)
            master.become(Role.MASTER)
        master.tables.topics.update(TopicConfig("changed", 8, 8))
        master.tables.topics.delete("deleted")
        master.tables.groups.update(SubscriptionGroupConfig(group_name="g1", retry_max_times=9))
        slave.become(Role.SLAVE)
        connect(master, slave)
        await pair.sleep(0.3)
        for side in (master, slave):
            topic, group = side.tables.topics.get("changed"), side.tables.groups.get("g1")
            assert topic is not None
            assert group is not None
            assert (topic.read_queue_nums, group.retry_max_times) == (8, 9)
            assert "deleted" not in side.tables.topics


@pytest.mark.behaviour("PO-31")
async def test_a_master_that_lived_on_takes_nothing_back_of_a_slave_that_did_not_lead(
    runtime: SimulatedRuntime,
) -> None:
    """Seed 1228: its slave knew an older place of a popped queue, and a message in flight was forgotten."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        master.become(Role.PRE_ONLINE)
        master.become(Role.MASTER)
        links = connect(master, slave)
        master.tables.offsets.commit("g", "T", 0, 10)
        await pair.sleep(0.3)
        cut(*links)
        version = master.tables.offsets.version
        master.tables.offsets.commit("g", "T", 0, 11)
        queue = MessageQueue("T", "b", 0)
        master.tables.locks.lock("g", "one", [queue])
        assert master.tables.offsets.version == version, "the version counts some changes only"
        master.become(Role.PRE_ONLINE)
        here, _ = connect(master, slave)
        await master.exchange.ask(here)
        assert master.tables.offsets.query("g", "T", 0) == 11
        assert master.tables.locks.any_held("g")


@pytest.mark.behaviour("PO-31")
async def test_a_reset_that_a_group_was_told_does_not_come_again(runtime: SimulatedRuntime) -> None:
    """A slave that lagged behind knew it still, and the group went through the same messages again."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        master.become(Role.PRE_ONLINE)
        master.become(Role.MASTER)
        links = connect(master, slave)
        master.tables.offsets.reset("g", "T", 0, 10)
        master.tables.offsets.reset("g", "T", 1, 10)
        await pair.sleep(0.3)
        cut(*links)
        for queue_id in range(2):
            assert master.tables.offsets.take_reset("g", "T", queue_id) == 10
            master.tables.offsets.commit("g", "T", queue_id, 20)
        master.tables.offsets.reset("g", "T", 1, 3)
        master.become(Role.PRE_ONLINE)
        here, _ = connect(master, slave)
        await master.exchange.ask(here)
        assert not master.tables.offsets.has_reset("g", "T", 0)
        assert master.tables.offsets.queues("g", "T") == {0: 20, 1: 3}, "a reset that waits is not undone"


@pytest.mark.behaviour("PO-19")
async def test_a_reset_at_a_slave_that_acted_counts_where_it_skips_messages(
    runtime: SimulatedRuntime,
) -> None:
    """Its master served all the time: back behind what that one has seen done it does not go."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        for queue_id in range(2):
            master.tables.offsets.commit("g", "T", queue_id, 10)
        slave.become(Role.ACTING_MASTER)
        slave.tables.offsets.reset("g", "T", 0, 30)
        slave.tables.offsets.reset("g", "T", 1, 5)
        slave.become(Role.SLAVE)
        connect(master, slave)
        await pair.sleep(0.3)
        for side in (master, slave):
            assert side.tables.offsets.queues("g", "T") == {0: 30, 1: 10}
            assert side.tables.offsets.has_reset("g", "T", 0)
            assert not side.tables.offsets.has_reset("g", "T", 1)


@pytest.mark.behaviour("PO-31")
@pytest.mark.parametrize("follows", [True, False])
async def test_a_mode_of_a_slave_that_knows_less_is_not_taken(
    runtime: SimulatedRuntime, follows: bool
) -> None:
    """The table has no version; one that never followed in our term is even older (its term is lower)."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        modes = [RequestModes(side.tables.feed, Events()) for side in (master, slave)]
        pull, pop = (SetMessageRequestModeRequestBody("T", "g", mode) for mode in MessageRequestMode)
        master.become(Role.PRE_ONLINE)
        master.become(Role.MASTER)
        modes[0].put(pull)
        if follows:
            links = connect(master, slave)
            await pair.sleep(0.3)
            cut(*links)
        else:
            modes[1].put(pull)
        modes[0].put(pop)
        master.become(Role.PRE_ONLINE)
        here, _ = connect(master, slave)
        await master.exchange.ask(here)
        assert modes[0].get("T", "g") == pop
        if not follows:
            return
        # One that led since then is right.
        slave.become(Role.ACTING_MASTER)
        modes[1].put(pull)
        slave.become(Role.SLAVE)
        await master.exchange.ask(here)
        assert modes[0].get("T", "g") == pull


@pytest.mark.behaviour("PO-27")
async def test_a_slave_that_came_again_is_asked_on_its_new_link(runtime: SimulatedRuntime) -> None:
    """A cut had left our half of the old one, and nobody answered there."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        slave.tables.topics.update(TopicConfig("made meanwhile"))
        master.become(Role.PRE_ONLINE)
        _, there = connect(master, slave)
        slave.peers.closed(there)
        there.other = None
        connect(master, slave)
        codes = TableCodes(None, None, None)  # type: ignore[arg-type]
        tables = TravellingTables(master.peers, master.exchange, codes, master.locks)
        await tables.take(1, "10.0.0.1:1")
        assert "made meanwhile" in master.tables.topics


class Codes:
    """Takes tables by request codes; knows of whom."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def take_back(self, address: str) -> None:
        self.asked.append(address)


@pytest.mark.behaviour("PO-33")
async def test_only_a_slave_that_was_never_linked_over_the_stream_is_asked_by_codes(
    runtime: SimulatedRuntime,
) -> None:
    """Of one of ours whose link is gone they tell a part of its tables: it is to come and be asked again."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        master.become(Role.PRE_ONLINE)
        codes = Codes()
        tables = TravellingTables(master.peers, master.exchange, codes, master.locks)  # type: ignore[arg-type]
        ends = connect(master, slave)
        cut(*ends)
        with pytest.raises(ExchangeError, match="is gone"):
            await tables.take(1, "10.0.0.1:1")
        assert codes.asked == []
        assert await tables.take(2, "10.0.0.2:1") is None
        # A broker of RocketMQ in its place has another address.
        assert await tables.take(1, "10.0.0.9:1") is None
        assert codes.asked == ["10.0.0.2:1", "10.0.0.9:1"]
        slave.tables.topics.update(TopicConfig("made meanwhile"))
        connect(master, slave)
        await tables.take(1, "10.0.0.1:1")
        assert "made meanwhile" in master.tables.topics


@pytest.mark.behaviour("PO-27")
async def test_the_newest_link_of_a_slave_says_what_it_has(runtime: SimulatedRuntime) -> None:
    """What had gone into our half of an older one is there when all was told on the new one."""
    async with Pair(runtime) as pair:
        master, slave = pair.master, pair.slave
        here, there = connect(master, slave)
        await pair.sleep(0.1)
        slave.peers.closed(there)
        here.other = None
        master.tables.offsets.commit("g", "T", 0, 7)
        waiting = asyncio.ensure_future(master.exchange.shared_with(1))
        await pair.sleep(0.1)
        connect(master, slave)
        assert await master.exchange.shared_with(1)
        await pair.sleep(0.01)
        assert slave.tables.offsets.query("g", "T", 0) == 7
        assert not waiting.done()
        master.peers.closed(here)
        assert await waiting


async def test_who_does_not_answer_is_not_waited_for(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = connect(pair.master, pair.slave)
        there.other = None
        with pytest.raises(ExchangeError):
            await pair.master.exchange.ask(here)
        asking = asyncio.ensure_future(pair.master.exchange.ask(here))
        await pair.sleep(0.1)
        cut(here, there)
        with pytest.raises(ExchangeError):
            await asking


async def test_an_acting_master_takes_nothing(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        connect(pair.master, pair.slave)
        pair.slave.become(Role.ACTING_MASTER)
        pair.master.tables.offsets.commit("g", "T", 0, 3)
        await pair.sleep(0.3)
        assert pair.slave.tables.offsets.query("g", "T", 0) is None


# -- the pure parts ----------------------------------------------------------------------------------------


def entry(log_offset: int, key: str = "k", value: int | None = 1, table: str = OFFSETS) -> FeedEntry:
    return FeedEntry(1, log_offset, table, key, value)


@pytest.mark.behaviour("PO-32")
def test_the_last_term_in_which_a_slave_acted_is_kept_until_its_master_is_told() -> None:
    """Seed 4593: one that was killed, acted once more, or started as a slave, did not know it any more."""
    feed, written = ChangeFeed(), []
    feed.subscribe(lambda table, key, _value: written.append((table, key)))
    acted = ActingTerm(feed)
    acted.begins(2)
    acted.begins(3)
    assert acted.term == 3
    assert set(written) == {(ACTED, "term")}, "the journal of who acts brings it to the disk"
    again = ActingTerm(ChangeFeed())
    again.restore(fastjson.loads("".join(acted.file_text())))
    assert again.term == 3
    journalled = ChangeFeed()
    from_journal = ActingTerm(journalled)
    journalled.apply(feed.entry(1, ACTED, "term", acted.term))
    assert from_journal.term == 3
    acted.told()
    acted.told()
    assert acted.term == 0
    assert len(written) == 3
    again.restore(fastjson.loads("".join(acted.file_text())))
    assert again.term == 0


@pytest.mark.behaviour("PO-32")
async def test_that_a_slave_acted_outlives_two_kills(runtime: SimulatedRuntime) -> None:
    """After the first start it was in the journal only, which the tables' first writing drops."""
    for acts in (True, False, False):
        feed = ChangeFeed()
        acted = ActingTerm(feed)
        persistence = Persistence(runtime, "/store/config", feed, Events())
        persistence.register(ACTED, acted)
        persistence.load()
        if acts:
            acted.begins(3)
            await persistence.flush(ACTED)
        else:
            assert acted.term == 3
            assert await persistence.fold()


class Users:
    """Users and rules of a broker, in the simplest form."""

    def __init__(self, feed: ChangeFeed) -> None:
        self.feed = feed
        self.found: dict[tuple[str, str], str] = {}
        for table in (USERS, ACLS):
            feed.register(table, FedTable(str, partial(self.put, table), items=partial(self._items, table)))

    def put(self, table: str, key: str, value: str | None) -> None:
        if value is None:
            self.found.pop((table, key), None)
        else:
            self.found[table, key] = value
        self.feed.changed(table, key, value)

    def _items(self, wanted: str) -> list[tuple[str, str]]:
        return [(key, value) for (table, key), value in self.found.items() if table == wanted]


@pytest.mark.behaviour("AU-37")
async def test_users_go_over_sealed_links_only(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = Users(pair.master.tables.feed), Users(pair.slave.tables.feed)
        here.put(USERS, "app", "of the master")
        here.put(ACLS, "app", "rules")
        there.put(USERS, "own", "of the slave")
        there.put(ACLS, "own", "rules")
        links = connect(pair.master, pair.slave)
        await pair.sleep(0.2)
        here.put(USERS, "later", "of the master")
        await pair.sleep(0.2)
        assert list(there.found) == [(USERS, "own"), (ACLS, "own")]
        # A false master tells some, and all that it has.
        forged = [FeedEntry(9, 0, table, "evil", "forged") for table in (USERS, ACLS)]
        pair.slave.peers.received(
            links[1], FrameKind.STATE, encode(Changes(3, 0, 99, forged, begins=True, ends=True))
        )
        await pair.sleep(0.2)
        assert list(there.found) == [(USERS, "own"), (ACLS, "own")]
        cut(*links)
        connect(pair.master, pair.slave, sealed=True)
        await pair.sleep(0.2)
        assert there.found == here.found
        here.put(USERS, "app", None)
        await pair.sleep(0.2)
        assert sorted(there.found) == [(ACLS, "app"), (USERS, "later")]


def test_an_acting_slave_tells_other_slaves_no_users(runtime: SimulatedRuntime) -> None:
    """That goes by a request, which is not sealed."""
    side = Side(runtime, Role.SLAVE)
    Users(side.tables.feed).put(USERS, "app", "secret-of-app-1")
    side.tables.offsets.commit("g", "T", 0, 5)
    side.exchange.acted.begins(3)
    told = ActedTables(side.tables.feed, side.exchange, side.exchange.acted).acted()
    assert b"T@g@0" in told
    assert b"secret-of-app-1" not in told


def test_that_a_slave_acted_is_not_told_as_a_table() -> None:
    """Its master would take it for its own acting."""
    feed = ChangeFeed()
    ActingTerm(feed).begins(3)
    assert list(everything(feed)) == []


def test_frames_tell_in_which_term_their_sender_acted_first() -> None:
    """The first frame of an answer says it, also when its entries are too many for one."""
    entries = [FeedEntry(1, 0, OFFSETS, str(at), at) for at in range(2 * MAX_ENTRIES)]
    payloads = SendingLink(sealed=False).frames(5, 9, entries, begins=True, ends=True, asked=True, acted_in=3)
    first = next(frame for frame in map(decode_state, payloads) if isinstance(frame, Changes))
    assert (first.begins, first.term, first.acted_in) == (True, 5, 3)


def test_only_the_last_change_of_a_key_is_told() -> None:
    tables = Tables(VirtualClock())
    outbox = Outbox(tables.feed)
    tables.feed.subscribe(outbox.note)
    tables.offsets.commit("g", "T", 0, 1)
    tables.offsets.commit("g", "T", 1, 1)
    tables.offsets.commit("g", "T", 0, 2)
    told = outbox.take()
    assert [(each.key, each.value) for each in told] == [("T@g@1", 1), ("T@g@0", 2)]
    assert {each.sequence for each in told} == {3}
    assert len(outbox) == 0


def test_a_missing_frame_is_noticed() -> None:
    inbox = Inbox()
    inbox.take(Changes(1, 0, 1, []), lambda _: True)
    with pytest.raises(LinkError):
        inbox.take(Changes(3, 0, 1, []), lambda _: True)


def test_changes_are_given_out_in_order_once_and_acknowledged_then() -> None:
    inbox = Inbox()
    inbox.take(Changes(1, 0, 5, [entry(10, "a"), entry(20, "b")]), lambda _: True)
    assert inbox.ready(9) == []
    assert [each.key for each in inbox.ready(10) if isinstance(each, FeedEntry)] == ["a"]
    assert inbox.applied == 0
    assert [each.key for each in inbox.ready(30) if isinstance(each, FeedEntry)] == ["b"]
    assert inbox.applied == 0
    inbox.made()
    assert inbox.applied == 5
    assert inbox.ready(99) == []


def test_all_that_a_table_holds_includes_what_changed_meanwhile() -> None:
    inbox = Inbox()
    frames = [
        Changes(1, 0, 1, [entry(0, "before")]),
        Changes(2, 0, 2, [entry(0, "a")], begins=True),
        Changes(3, 0, 3, [entry(0, "changed")]),
        Changes(4, 0, 4, [entry(0, "T", table=TOPICS)], ends=True),
    ]
    for frame in frames:
        inbox.take(frame, lambda _: True)
    [complete] = [each for each in inbox.ready(0) if isinstance(each, Complete)]
    assert complete == Complete({OFFSETS: {"a", "changed"}, TOPICS: {"T"}}, asked=False)


def test_so_many_changes_wait_for_the_log_and_no_more() -> None:
    inbox = Inbox()
    for number in range(MAX_WAITING // 1000 + 1):
        many = [entry(1, str(at)) for at in range(1000)]
        inbox.take(Changes(number + 1, 0, number, many), lambda _: True)
    assert len(inbox.ready(0)) >= 1000
    assert len(inbox) <= MAX_WAITING


def test_acknowledgements_of_what_was_not_sent_are_refused() -> None:
    sending = SendingLink(sealed=False)
    assert not sending.acknowledged(Ack(1, 0))
    assert len(list(sending.frames(0, 7, []))) == 1
    assert not sending.acknowledged(Ack(1, 8))
    assert sending.acknowledged(Ack(1, 7))
    assert not sending.acknowledged(Ack(0, 7))


def test_frames_have_a_limit_of_entries_and_of_bytes() -> None:
    sending = SendingLink(sealed=False)
    entries = [FeedEntry(1, 0, TOPICS, str(at), "x" * 10_000) for at in range(400)]
    entries += [FeedEntry(1, 0, OFFSETS, str(at), at) for at in range(2000)]
    payloads = list(sending.frames(3, 9, entries, begins=True, ends=True))
    frames = [decode_state(payload) for payload in payloads]
    assert max(map(len, payloads)) <= FRAME_BYTES
    told = [frame for frame in frames if isinstance(frame, Changes)]
    assert max(len(frame.entries) for frame in told) <= MAX_ENTRIES
    assert [each for frame in told for each in frame.entries] == entries
    assert [frame.number for frame in told] == list(range(1, len(told) + 1))
    assert [frame.begins for frame in told].count(True) == 1
    assert told[0].begins
    assert told[-1].ends
    assert [frame.ends for frame in told].count(True) == 1
    assert [frame.sequence for frame in told] == [0] * (len(told) - 1) + [9]


@pytest.mark.parametrize("payload", [b"", b"\xc1", encode(Ack(1, 2)), b"\x00" * 10])
def test_garbage_is_no_frame(payload: bytes) -> None:
    with pytest.raises(LinkError):
        decode_state(payload)
    if payload != encode(Ack(1, 2)):
        with pytest.raises(LinkError):
            decode_ack(payload)


def test_versions_compare_by_state_first() -> None:
    assert DataVersion(2, 0, 0).is_newer_than(DataVersion(1, 9, 9))
