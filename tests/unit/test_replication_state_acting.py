"""Tables after a slave has acted: the changes that a returning master takes over, and the others."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.replication_pair import Pair, Side, connect, cut

from orbitmq.broker.component import StoredTable
from orbitmq.broker.delay.progress import DelayProgress, LevelProgress
from orbitmq.broker.events import Events
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.role import Role, RoleTaken
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.message.model import MessageQueue
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.copies import TravellingTables
from orbitmq.replication.state.exchange import SLICE
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.bodies.topic import TopicConfig


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
        await master.exchange.request_tables(here)
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
        await master.exchange.request_tables(here)
        assert master.tables.offsets.query("g", "T", 0) == 18


async def test_a_master_of_an_older_term_is_told_and_not_heard(runtime: SimulatedRuntime) -> None:
    """A frozen master thaws after another broker has led."""
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
    """Seed 1063: the master returned without a name server, and must not lead without its slave's changes."""
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
        # Its master has all its changes, so it follows like any other slave.
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
    """Seed 1634: if it sends its tables too early, its master's tables replace its last changes."""
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
    """A broker with the tables of deliveries."""

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
        """A restart: a broker with the contents of this one's table files."""
        await self.exchange.stop()
        again = Delivering(self.runtime, role)
        for before, after in zip(self.stored(), again.stored(), strict=True):
            after.restore(fastjson.loads("".join(before.file_text())))
        await again.exchange.start()
        return again

    @property
    def delivered(self) -> tuple[list[int], int, dict[int, int]]:
        """The escaped half messages, the offset of a delay level, the offsets of a group."""
        return list(self.halves), self.delays.place(2).offset, self.tables.offsets.queues("g", "T")


@pytest.mark.behaviour("PO-32")
@pytest.mark.parametrize("comes", ["told", "asked", "started again"])
@pytest.mark.parametrize("terms", [1, 2])
async def test_what_a_slave_did_before_it_was_stopped_is_news_to_its_master(
    runtime: SimulatedRuntime, terms: int, comes: str
) -> None:
    """Seed 4593: a slave that restarts must not lose its changes to its master's tables, or a half message is
    checked twice.

    Its master began the same term, or one more, meanwhile, and the master's own changes are not undone.

    Args:
        comes: how the master gets the changes: by a frame, by a request, or by a frame when its term comes
            from its files.
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
            await master.exchange.request_tables(links[0])
            master.become(Role.MASTER)
        await pair.sleep(0.3)
        for side in (master, slave):
            assert side.delivered == ([7], 5, {0: 25, 1: 30})
            assert side.delays.place(1).offset == 4
            assert side.modes.get("T", "g") == pop
            assert "made meanwhile" in side.tables.topics
            assert side.exchange.terms.term == terms + 1
        # All changes are sent: at the next link it follows like any other slave.
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
    """The master serves while it applies, in slices, the changes received from the slave that acted."""
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
    """The slave has their earlier state; a deleted one must not return, and a changed one must not go
    back.
    """
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
    """Seed 1228: its slave has an older offset of a popped queue, which must not drop a message in flight."""
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
        await master.exchange.request_tables(here)
        assert master.tables.offsets.query("g", "T", 0) == 11
        assert master.tables.locks.any_held("g")


@pytest.mark.behaviour("PO-31")
async def test_a_reset_that_a_group_was_told_does_not_come_again(runtime: SimulatedRuntime) -> None:
    """A slave that lagged behind still has it, and the group must not read the same messages again."""
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
        await master.exchange.request_tables(here)
        assert not master.tables.offsets.has_reset("g", "T", 0)
        assert master.tables.offsets.queues("g", "T") == {0: 20, 1: 3}, "a reset that waits is not undone"


@pytest.mark.behaviour("PO-19")
async def test_a_reset_at_a_slave_that_acted_counts_where_it_skips_messages(
    runtime: SimulatedRuntime,
) -> None:
    """Its master served all the time, so the reset does not go back to messages that the master has seen
    consumed.
    """
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
    """The table has no version; a slave that never followed in the master's term is even older, as its own is
    lower.
    """
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
        await master.exchange.request_tables(here)
        assert modes[0].get("T", "g") == pop
        if not follows:
            return
        # A slave that has led since then has the newer mode.
        slave.become(Role.ACTING_MASTER)
        modes[1].put(pull)
        slave.become(Role.SLAVE)
        await master.exchange.request_tables(here)
        assert modes[0].get("T", "g") == pull


@pytest.mark.behaviour("PO-27")
async def test_a_slave_that_came_again_is_asked_on_its_new_link(runtime: SimulatedRuntime) -> None:
    """A cut leaves the master's half of the old link, on which no response comes."""
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
