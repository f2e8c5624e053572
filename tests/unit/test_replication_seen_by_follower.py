"""A reset or an end of a batch at an acting slave is not undone by its returning master."""

from __future__ import annotations

import pytest
from tests.unit.replication_pair import Link, Pair, connect, cut

from orbitmq.broker.change_feed import OFFSETS, POP_ORDERS, RESETS
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.role import Role
from orbitmq.replication.state.seen_by_follower import SeenByFollower
from orbitmq.testing import SimulatedRuntime


async def come_back(pair: Pair) -> tuple[Link, Link]:
    """Let the master that was cut off, but lived on, lead again."""
    pair.master.become(Role.PRE_ONLINE)
    if pair.slave.role.role is not Role.SLAVE:
        pair.slave.become(Role.SLAVE)
    links = connect(pair.master, pair.slave)
    await pair.master.exchange.request_tables(links[0])
    pair.master.become(Role.MASTER)
    await pair.sleep(0.3)
    return links


def lead(pair: Pair) -> tuple[Link, Link]:
    pair.master.become(Role.PRE_ONLINE)
    pair.master.become(Role.MASTER)
    return connect(pair.master, pair.slave)


@pytest.mark.behaviour("PO-37")
async def test_a_reset_that_the_acting_slave_has_told_does_not_come_again(runtime: SimulatedRuntime) -> None:
    """The master that lived on still has the reset, and must not send it, or the group goes from 90 back to
    10.
    """
    async with Pair(runtime) as pair:
        links = lead(pair)
        master, slave = pair.master.tables.offsets, pair.slave.tables.offsets
        for queue_id in range(2):
            master.commit("g", "T", queue_id, 100)
            master.reset("g", "T", queue_id, 10)
        await pair.sleep(0.3)
        cut(*links)
        pair.slave.become(Role.ACTING_MASTER)
        assert slave.take_reset("g", "T", 0) == 10
        slave.commit("g", "T", 0, 90)
        links = await come_back(pair)
        for offsets in (master, slave):
            assert offsets.query("g", "T", 0) == 90
            assert [offsets.has_reset("g", "T", queue_id) for queue_id in range(2)] == [False, True]
        # The master is cut off and returns again.
        cut(*links)
        pair.slave.become(Role.ACTING_MASTER)
        assert slave.take_reset("g", "T", 1) == 10
        await come_back(pair)
        assert not master.has_reset("g", "T", 1)


@pytest.mark.behaviour("PO-37")
async def test_a_reset_that_the_acting_slave_never_knew_waits_for_its_group(
    runtime: SimulatedRuntime,
) -> None:
    """An operator made it at the cut-off master, so no member has received it."""
    async with Pair(runtime) as pair:
        links = lead(pair)
        master, slave = pair.master.tables.offsets, pair.slave.tables.offsets
        for queue_id in range(2):
            master.commit("g", "T", queue_id, 100)
        master.reset("g", "T", 1, 10)
        await pair.sleep(0.3)
        cut(*links)
        for queue_id in range(2):
            master.reset("g", "T", queue_id, 30)
        pair.slave.become(Role.ACTING_MASTER)
        assert slave.take_reset("g", "T", 1) == 10
        slave.commit("g", "T", 0, 120)
        await come_back(pair)
        for offsets in (master, slave):
            assert [offsets.query("g", "T", queue_id) for queue_id in range(2)] == [30, 30]


@pytest.mark.behaviour("PO-37")
async def test_a_slave_that_did_not_act_takes_no_reset_away(runtime: SimulatedRuntime) -> None:
    async with Pair(runtime) as pair:
        links = lead(pair)
        pair.master.tables.offsets.reset("g", "T", 0, 10)
        await pair.sleep(0.3)
        cut(*links)
        assert pair.slave.tables.offsets.take_reset("g", "T", 0) == 10
        await come_back(pair)
        assert pair.master.tables.offsets.has_reset("g", "T", 0)


@pytest.mark.behaviour("PO-37")
async def test_a_batch_of_an_earlier_run_that_the_slave_never_knew_blocks_on(
    runtime: SimulatedRuntime,
) -> None:
    """The slave's knowledge was in the memory of the ended process; the batch must not be delivered twice."""
    async with Pair(runtime) as pair:
        links = lead(pair)
        master, _ = (OrderedPops(side.tables.feed) for side in (pair.master, pair.slave))
        await pair.sleep(0.3)
        cut(*links)
        master.take("T", "g", 0, [5, 6, 7], now_ms=1000, invisible_ms=3_600_000, attempt_id=None)
        pair.master.exchange._seen_by = SeenByFollower()  # a new process has no record of that
        pair.slave.become(Role.ACTING_MASTER)
        await come_back(pair)
        assert master.blocked_until("T", "g", 0, None, 2000) == 3_601_000


@pytest.mark.behaviour("PO-37")
async def test_a_queue_that_was_freed_at_the_acting_slave_is_free_at_the_master(
    runtime: SimulatedRuntime,
) -> None:
    """It must not stay blocked until the batch's earlier deadline; a batch that the slave never knew stays
    blocked.
    """
    async with Pair(runtime) as pair:
        links = lead(pair)
        master, slave = (OrderedPops(side.tables.feed) for side in (pair.master, pair.slave))
        hour_ms = 3_600_000
        master.take("T", "g", 0, [5, 6, 7], now_ms=1000, invisible_ms=hour_ms, attempt_id=None)
        await pair.sleep(0.3)
        cut(*links)
        master.take("T", "g", 1, [5], now_ms=1000, invisible_ms=hour_ms, attempt_id=None)
        pair.slave.become(Role.ACTING_MASTER)
        slave.free("T", "g", 0)
        await come_back(pair)
        for orders in (master, slave):
            assert orders.blocked_until("T", "g", 0, None, 2000) is None
            assert orders.blocked_until("T", "g", 1, None, 2000) == 1000 + hour_ms


def test_what_a_follower_knew() -> None:
    handed_out = SeenByFollower()
    assert handed_out.knew(1, RESETS, "from an earlier run"), "it was told within 0.2 s"
    assert not handed_out.knew(1, POP_ORDERS, "from an earlier run")
    assert not handed_out.knew(1, OFFSETS, "k")
    handed_out.changed(7, POP_ORDERS, "k", 1, own=True)
    assert not handed_out.knew(1, POP_ORDERS, "k")
    handed_out.note_applied(1, 6)
    assert not handed_out.knew(1, POP_ORDERS, "k")
    handed_out.note_applied(1, 7)
    assert handed_out.knew(1, POP_ORDERS, "k")
    assert not handed_out.knew(2, POP_ORDERS, "k"), "another follower"
    handed_out.changed(8, POP_ORDERS, "k", 1, own=True)
    assert not handed_out.knew(1, POP_ORDERS, "k"), "of its present value it has not heard"
    handed_out.changed(9, POP_ORDERS, "k", 1, own=False)
    assert handed_out.knew(1, POP_ORDERS, "k"), "others told it"
