"""A master that restarts knows which slaves it has not sent all changes."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.replication_pair import DISK_S, Link, Pair, Side, connect, cut

from orbitmq.broker.change_feed import (
    DELAYS,
    ESCAPED_HALVES,
    OFFSETS,
    POPS,
    PROGRESS,
    TIMERS,
    UNTOLD,
    ChangeFeed,
    FedTable,
    FeedEntry,
)
from orbitmq.broker.events import Events
from orbitmq.broker.role import Role
from orbitmq.replication.state.durable_tables import DurableTables
from orbitmq.replication.state.frames import Ack
from orbitmq.replication.state.lagging_followers import LaggingFollowers
from orbitmq.replication.state.outbox import MAX_ENTRIES, WINDOW, SendingLink
from orbitmq.replication.state.tables_sender import SILENT_SECONDS
from orbitmq.replication.state.terms import NONE, Terms
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.topic import DataVersion

pytestmark = pytest.mark.behaviour("PO-42")


class Tabled:
    """A table that has only a version."""

    version = DataVersion(0, 0, 0)


def untold(side: Side) -> list[int]:
    return [number for number in range(9) if number in side.exchange._lagging]


async def lead(pair: Pair) -> tuple[Link, Link]:
    """Let the master lead, with a slave that has all its tables."""
    pair.master.become(Role.PRE_ONLINE)
    pair.master.become(Role.MASTER)
    links = connect(pair.master, pair.slave)
    pair.master.tables.offsets.commit("g", "T", 0, 10)
    await pair.sleep(1)
    return links


async def begin_anew(pair: Pair) -> None:
    """Restart the master with the tables on its disk; it takes its slave's tables and leads."""
    pair.master.become(Role.PRE_ONLINE)
    pair.master.exchange.terms.begun = NONE  # a new process knows no term
    here, _ = connect(pair.master, pair.slave)
    await pair.master.exchange.request_tables(here)


@pytest.mark.parametrize("closed", [True, False])
async def test_what_a_slave_was_not_told_it_does_not_take_back(
    runtime: SimulatedRuntime, closed: bool
) -> None:
    """The slave lost its link, or did not respond on it."""
    async with Pair(runtime) as pair:
        here, there = await lead(pair)
        assert untold(pair.master) == []
        if closed:
            cut(here, there)
        else:
            here.other = None
        pair.master.tables.offsets.commit("g", "T", 0, 20)
        await pair.sleep(2 * SILENT_SECONDS + 0.1)
        assert untold(pair.master) == [1]
        if not closed:
            there.owner.peers.closed(there)
        await begin_anew(pair)
        assert pair.master.tables.offsets.query("g", "T", 0) == 20
        pair.master.become(Role.MASTER)
        await pair.sleep(0.5)
        assert untold(pair.master) == []
        assert pair.slave.tables.offsets.query("g", "T", 0) == 20


async def test_what_a_slave_was_told_is_newer_than_the_disk(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = await lead(pair)
        pair.master.tables.offsets.commit("g", "T", 0, 20)
        pair.master.tables.offsets.commit("g", "back", 0, 3)
        await pair.sleep(1)
        there.owner.peers.closed(there)
        here.other = None
        pair.master.tables.offsets.commit("g", "T", 0, 10)
        pair.master.tables.offsets.commit("g", "back", 0, 9)
        await begin_anew(pair)
        assert pair.master.tables.offsets.query("g", "T", 0) == 20
        assert pair.master.tables.offsets.query("g", "back", 0) == 3


async def test_who_acted_since_is_believed_all_the_same(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        cut(*await lead(pair))
        assert untold(pair.master) == [1]
        pair.slave.become(Role.ACTING_MASTER)
        pair.slave.tables.offsets.commit("g", "T", 0, 4)
        pair.slave.become(Role.SLAVE)
        await begin_anew(pair)
        assert pair.master.tables.offsets.query("g", "T", 0) == 4


async def test_of_several_links_of_one_slave_the_newest_counts(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        here, there = await lead(pair)
        here.other = None
        there.owner.peers.closed(there)
        again = connect(pair.master, pair.slave)
        pair.master.tables.offsets.commit("g", "T", 0, 20)
        await pair.sleep(1)
        assert untold(pair.master) == []
        pair.master.peers.closed(here)
        assert untold(pair.master) == []
        cut(*again)
        assert untold(pair.master) == [1]
        assert untold(pair.slave) == []


async def test_it_is_in_a_file_and_told_to_nobody(runtime: SimulatedRuntime) -> None:
    feed = ChangeFeed()
    told: list[tuple[str, str, object]] = []
    feed.subscribe(lambda *change: told.append(change))
    table = LaggingFollowers(feed, Events())
    for number in (2, 1, 2):
        table.note(number, lacked=7)
    table.note_applied(3, applied=7)
    table.note_applied(1, applied=6)
    assert told == [(UNTOLD, "2", True), (UNTOLD, "1", True)]
    assert not feed.travels(UNTOLD)
    text = "".join(table.file_text())
    assert json.loads(text) == {"slaves": [1, 2]}
    again = LaggingFollowers(ChangeFeed(), Events())
    again.restore(json.loads(text))
    assert [number in again for number in range(4)] == [False, True, True, False]
    async with Pair(runtime) as pair:
        await lead(pair)
        assert pair.master.tables.feed.travels(OFFSETS)
        pair.master.exchange._lagging.note(7, lacked=1)
        await pair.sleep(1)
        assert untold(pair.slave) == []


async def test_who_is_being_told_everything_lacks_something_until_it_has_all(
    runtime: SimulatedRuntime,
) -> None:
    """Its tables have the master's term after the first frame, although it lacks the rest of the
    newer ones.
    """
    async with Pair(runtime) as pair:
        pair.master.become(Role.PRE_ONLINE)
        pair.master.become(Role.MASTER)
        for number in range(WINDOW * MAX_ENTRIES):
            pair.master.tables.offsets.commit("g", f"T{number}", 0, 10)
        connect(pair.master, pair.slave)
        await pair.sleep(0.02)
        assert pair.slave.tables.offsets.version.state_version == pair.master.exchange.terms.term
        assert pair.slave.tables.offsets.query("g", f"T{WINDOW * MAX_ENTRIES - 1}", 0) is None
        assert untold(pair.master) == [1]
        await pair.sleep(1)
        assert untold(pair.master) == []


def test_who_answers_but_falls_behind_lacks_something() -> None:
    link = SendingLink(sealed=False)
    entry = FeedEntry(1, 0, OFFSETS, "k", 1)
    for look in range(4):
        for _ in range(10):
            list(link.frames(1, link.sent + 1, [entry]))
        assert link.is_stuck() is (look > 0)
        assert link.acknowledged(Ack(link.received + 5, 0))
    assert link.acknowledged(Ack(link.number, link.sent))
    assert not link.is_stuck()


def test_who_was_killed_lacks_something_of_tables_of_one_term() -> None:
    feed = ChangeFeed()
    terms = Terms(feed)
    feed.register(OFFSETS, FedTable(int, lambda _key, _value: None, versioned := Tabled()))
    # the master may have lost its tables, the slave may have them from a master of RocketMQ
    assert not terms.has_older(0, untold=True)
    versioned.version = DataVersion(3, 0, 0)
    assert [terms.has_older(term, untold=True) for term in (2, 3, 4)] == [True, True, False]
    assert [terms.has_older(term) for term in (2, 3, 4)] == [True, False, False]


@pytest.mark.behaviour("PO-44")
async def test_a_slave_forgets_that_it_acted_when_its_masters_disk_has_what_it_did(
    runtime: SimulatedRuntime,
) -> None:
    async with Pair(runtime) as pair:
        cut(*await lead(pair))
        pair.slave.become(Role.ACTING_MASTER)
        pair.slave.tables.offsets.commit("g", "T", 0, 30)
        pair.slave.become(Role.SLAVE)
        await begin_anew(pair)
        pair.master.saved.clear()
        pair.master.disk_s = 6 * DISK_S
        pair.master.become(Role.MASTER)
        pair.master.tables.offsets.commit("g", "T", 1, 5)  # this commit is sent in its own frame meanwhile
        await pair.sleep(pair.master.disk_s - 0.005)
        assert pair.slave.exchange.acted.term
        assert pair.slave.tables.offsets.query("g", "T", 1) == 5
        await pair.sleep(1)
        assert not pair.slave.exchange.acted.term
        assert {OFFSETS, DELAYS, TIMERS, ESCAPED_HALVES, POPS} <= {*pair.master.saved}
        assert pair.slave.content() == pair.master.content()


@pytest.mark.behaviour("PO-44")
async def test_every_follower_waits_for_the_disk(runtime: SimulatedRuntime) -> None:
    """The slaves are sent the tables side by side: the second must wait for the write that the first one
    started.
    """
    saved: list[str] = []

    async def save(*tables: str) -> None:
        await runtime.clock.sleep(DISK_S)
        saved.extend(tables)

    kept = DurableTables(save)
    kept.owes_progress = True

    async def told() -> int:
        await kept.progress()
        return len(saved)

    assert await asyncio.gather(told(), told()) == [len(PROGRESS)] * 2
    assert tuple(saved) == PROGRESS
