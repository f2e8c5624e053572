"""A killed master serves before it hears from its slave, which has changes that the master's disk lacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.replication_pair import Pair, connect
from tests.unit.test_replication_lagging_followers import lead

from orbitmq.broker.role import Role
from orbitmq.replication.state.outbox import MAX_ENTRIES
from orbitmq.replication.state.terms import NONE
from orbitmq.replication.state.unsynced_start import UnsyncedStart
from orbitmq.testing import SimulatedRuntime

pytestmark = pytest.mark.behaviour("PO-45")


async def killed(pair: Pair, *, groups: int = 1) -> None:
    """Kill the master, whose disk lacks commits that its slave has, one of them backwards."""
    here, there = await lead(pair)
    offsets = pair.master.tables.offsets
    for number in range(groups):
        offsets.commit(f"group-{number}", "T", 0, 20)
    offsets.commit("g", "back", 0, 3)
    await pair.sleep(1)
    there.owner.peers.closed(there)
    here.other = None
    for number in range(groups):
        offsets.commit(f"group-{number}", "T", 0, 10)
    offsets.commit("g", "back", 0, 9)
    pair.master.crashed = True
    pair.master.become(Role.PRE_ONLINE)
    # A new process has no term.
    pair.master.exchange.terms.begun = NONE
    pair.master.exchange._unsynced._is_over = False


def found(pair: Pair, group: str, topic: str) -> list[int | None]:
    return [side.tables.offsets.query(group, topic, 0) for side in (pair.master, pair.slave)]


@pytest.mark.parametrize("groups", [1, 3 * MAX_ENTRIES], ids=["", "many frames"])
async def test_a_slave_that_links_is_asked_before_it_takes_anything(
    runtime: SimulatedRuntime, groups: int
) -> None:
    async with Pair(runtime) as pair:
        await killed(pair, groups=groups)
        pair.master.become(Role.FENCED)
        connect(pair.master, pair.slave)
        pair.master.tables.offsets.commit("since", "T", 0, 5)
        await pair.sleep(0.5)
        pair.master.tables.offsets.commit("since", "T", 0, 6)
        await pair.sleep(0.5)
        for number in range(groups):
            assert found(pair, f"group-{number}", "T") == [20, 20]
        assert found(pair, "g", "back") == [3, 3]
        assert found(pair, "since", "T") == [6, 6]
        assert pair.slave.content() == pair.master.content()


async def test_what_was_changed_since_is_not_undone(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        await killed(pair)
        pair.master.become(Role.FENCED)
        pair.master.tables.offsets.commit("g", "back", 0, 1)
        pair.master.become(Role.PRE_ONLINE)
        here, _ = connect(pair.master, pair.slave)
        await pair.master.exchange.request_tables(here)
        pair.master.become(Role.MASTER)
        await pair.sleep(0.5)
        assert found(pair, "group-0", "T") == [20, 20]
        assert found(pair, "g", "back") == [1, 1]


async def test_who_leads_has_asked_or_asks_nobody_any_more(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        await killed(pair)
        pair.master.become(Role.FENCED)
        pair.master.become(Role.MASTER)
        connect(pair.master, pair.slave)
        await pair.sleep(0.5)
        assert found(pair, "group-0", "T") == [10, 10]


async def test_a_slave_that_was_not_told_all_undoes_nothing(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        await killed(pair)
        pair.master.exchange._lagging.note(1, lacked=0)
        pair.master.become(Role.FENCED)
        connect(pair.master, pair.slave)
        await pair.sleep(0.5)
        assert found(pair, "group-0", "T") == [10, 10]


def test_it_is_alone_until_somebody_has_told_it_all() -> None:
    alone = UnsyncedStart()
    assert not alone.lacks(9)
    alone.begins(3)
    alone.changed("t", "a")
    alone.begins(4)  # a second term without a word from the slave
    assert [alone.lacks(term) for term in (2, 3, 4)] == [False, True, True]
    assert alone.has_changed("t", "a")
    assert not alone.has_changed("t", "b")
    alone.note_synced()
    assert alone.is_on
    alone.ends()
    alone.begins(5)
    assert not alone.is_on
    assert not alone.has_changed("t", "a")


@pytest.mark.parametrize("over", [UnsyncedStart.note_synced, UnsyncedStart.ends])
def test_who_has_heard_somebody_or_led_is_alone_no_more(over: Callable[[UnsyncedStart], None]) -> None:
    alone = UnsyncedStart()
    over(alone)
    alone.begins(3)
    assert not alone.is_on
