"""The slaves whose tables a returning master takes by request codes, and those whose response it
waits for.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.replication_pair import Pair, connect, cut

from orbitmq.broker.role import Role
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.replication.state.copies import TravellingTables
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.topic import TopicConfig


class Codes:
    """Takes tables by request codes, and records the addresses."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def take_back(self, address: str) -> None:
        self.asked.append(address)


@pytest.mark.behaviour("PO-33")
async def test_only_a_slave_that_was_never_linked_over_the_stream_is_asked_by_codes(
    runtime: SimulatedRuntime,
) -> None:
    """If a link of an OrbitMQ slave is gone, codes would give a part of its tables only: it has to connect
    again first.
    """
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
    """Changes lost in the master's half of an older link are there once the new link has sent all tables."""
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
            await pair.master.exchange.request_tables(here)
        asking = asyncio.ensure_future(pair.master.exchange.request_tables(here))
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
