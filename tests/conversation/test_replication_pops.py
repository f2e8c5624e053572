"""Popped messages while slaves follow, act, and return their role to their master."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import ack, pop
from tests.conversation.test_broker_pop_moved import commit, place
from tests.replicas import ACTING, MASTER, SLAVE, role_of, same_end, store

from orbitmq.broker.pop import hand_over
from orbitmq.broker.role import Role
from orbitmq.message import reserved
from orbitmq.replication.members.other_slaves import ASKS
from orbitmq.store import NewMessage
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.orbitmq(replicas=2, settings=ACTING)


@pytest.mark.behaviour("PP-14")
@pytest.mark.parametrize("wait_s", [1, 12])
async def test_a_group_that_went_back_at_the_acting_slave_stays_there(
    orbitmq_world: World, wait_s: float
) -> None:
    """The slave drops the queue's entry when its offset says all; the master must not continue at its own
    older one.
    """
    world = orbitmq_world
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as master:
        await master.create("T")
        for number in range(20):
            await master.sent(b"%d" % number)
        popped = await pop(master)
        for number in range(len(popped.records)):
            await ack(master, popped.receipt(number))
        await world.until(lambda: same_end(world))
        await world.sleep(8)
    world.crash(MASTER)
    await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER, 60)
    async with BrokerPeer(world.runtime, world.brokers[SLAVE].address) as slave:
        await commit(slave, 3)
        await world.sleep(wait_s)
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER, 60)
    await world.sleep(3)
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as master:
        assert await place(master) == 3
        assert (await pop(master)).bodies[0] == b"3"


@pytest.mark.behaviour("PP-14")
async def test_a_slave_has_the_place_of_a_group_that_pops(orbitmq_world: World) -> None:
    """The slave needs more than the offset for the disk, which is that of the first unsettled message."""
    world = orbitmq_world
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as master:
        await master.create("T")
        for number in range(4):
            await master.sent(b"%d" % number)
        await pop(master, queue_id=0, max_msg_nums=3)
        await world.until(lambda: same_end(world))
        await world.sleep(1)
        assert await place(master) == 3
    async with BrokerPeer(world.runtime, world.brokers[SLAVE].address) as slave:
        assert await place(slave) == 3
    assert world.brokers[SLAVE].services.offsets.kept("cg", "T") == {0: 0}


@pytest.mark.behaviour("PO-38")
async def test_a_revive_queue_that_goes_on_elsewhere_is_not_read_from_its_old_end(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of RocketMQ's such queues have millions of offsets, and reading them would block the slave
    for seconds.
    """
    world, end = orbitmq_world, 300_000
    topic = reserved.REVIVE_TOPIC_PREFIX + "DefaultCluster"
    master = world.brokers[MASTER].services
    assert master.store.go_on_at(topic, 0, end)
    world.partition(SLAVE)
    await world.sleep(30)
    world.heal()
    await world.until(lambda: store(world, SLAVE).max_offset(topic, 0) == end, 120)
    read: list[int] = []
    record_of = hand_over.record_of

    def noted(log: Any, topic: str, queue_id: int, offset: int) -> Any:
        read.append(offset)
        return record_of(log, topic, queue_id, offset)

    monkeypatch.setattr(hand_over, "record_of", noted)
    born = ("127.0.0.1", 1)
    master.append.put_many([NewMessage(topic, 0, b"x", b"", born_timestamp=1, born_host=born)])
    await world.until(lambda: store(world, SLAVE).max_offset(topic, 0) == end + 1)
    await world.sleep(1)
    assert set(read) == {end}


@pytest.mark.behaviour("PO-41")
async def test_a_slave_that_acted_does_not_tell_other_slaves_where_queues_end(orbitmq_world: World) -> None:
    """Its log lacks messages of the master's; with its queue ends the other slave could not follow the master
    again.
    """
    world = orbitmq_world
    master = world.brokers[MASTER].services
    master.topics.create_if_absent("T", 1)
    assert master.store.go_on_at("T", 0, 50)
    world.partition(SLAVE)
    await world.sleep(30)
    world.heal()
    await world.until(lambda: store(world, SLAVE).max_offset("T", 0) == 50, 120)
    world.crash(MASTER)
    await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER, 60)
    async with BrokerPeer(world.runtime, world.brokers[SLAVE].address) as slave:
        world.brokers[SLAVE].services.offsets.commit("cg", "T", 0, 3)
        told = (await slave.ok(RequestCode.EXCHANGE_BROKER_HA_INFO, **{ASKS: "true"})).body
    assert b"T@cg" in told
    assert b"queueEnds" not in told
