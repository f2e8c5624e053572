"""A group that an operator moved is moved once, whichever of the brokers of one name it reads from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, records
from tests.replicas import ACTING, MASTER, SLAVE, role_of, same_end

from orbitmq import Message
from orbitmq.broker.role import Role
from orbitmq.message.sysflag import PullFlag
from orbitmq.testing import Keep, World
from orbitmq.wire.codes import RequestCode, ResponseCode

READABLE = {"slaveReadEnable": "true"}
OWN_FILTER, WAITS = PullFlag.SUBSCRIPTION, PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
PLACE: dict[str, Any] = {"topic": "T", "queueId": 0}


def peer_of(world: World, name: str) -> BrokerPeer:
    return BrokerPeer(world.runtime, world.brokers[name].address)


async def commit(peer: BrokerPeer, offset: int) -> str | None:
    answer = await peer.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", commitOffset=offset, **PLACE
    )
    return answer.remark


async def committed(peer: BrokerPeer) -> str:
    return (await peer.ok(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="cg", **PLACE)).ext["offset"]


async def reset(peer: BrokerPeer, offset: int, topic: str = "T") -> None:
    await peer.ok(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        group="cg", offset=offset, timestamp=-1, isForce="true", topic=topic, queueId=0,
    )  # fmt: skip


async def twenty_read(world: World, master: BrokerPeer, *, replicas: int = 2) -> None:
    """Send twenty messages, of which the group has consumed 18."""
    await master.create("T")
    for number in range(20):
        await master.sent(b"%d" % number)
    await master.pull(0)
    await commit(master, 18)
    if replicas > 1:
        await world.until(lambda: same_end(world))
    await world.sleep(1)


def waits(world: World, name: str) -> bool:
    return world.brokers[name].services.offsets.has_reset("cg", "T", 0)


@pytest.mark.behaviour("MO-19")
@pytest.mark.orbitmq(replicas=2, settings=READABLE)
async def test_a_group_that_reads_from_the_slave_is_moved_once(orbitmq_world: World) -> None:
    """Only the master may end the reset; if the slave did, commits would have no effect and messages be
    consumed twice.
    """
    world = orbitmq_world
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await twenty_read(world, master)
        waiting = asyncio.ensure_future(slave.pull(20, sys_flag=int(WAITS)))
        await world.sleep(1)
        await reset(master, 5)
        await world.sleep(0.5)
        assert waiting.done()
        sent_on = await waiting
        assert (sent_on.code, sent_on.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "20")
        assert sent_on.ext["suggestWhichBrokerId"] == "0"
        assert len(records(await slave.pull(18, sys_flag=int(OWN_FILTER)))) == 2
        assert await commit(master, 20) == "Offset has been previously reset"
        moved = await master.pull(20, sys_flag=int(OWN_FILTER))
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
        assert moved.ext["suggestWhichBrokerId"] == "0"
        assert len(records(await master.pull(5, sys_flag=int(OWN_FILTER)))) == 15
        await world.sleep(0.5)
        assert not waits(world, SLAVE)
        offset = 5
        while offset < 20:
            read = await slave.pull(offset, sys_flag=int(OWN_FILTER), max_msg_nums=4)
            offset = int(read.ext["nextBeginOffset"])
            assert await commit(master, offset) is None
        again = await master.pull(20, sys_flag=int(OWN_FILTER))
        assert again.code == ResponseCode.PULL_NOT_FOUND
        assert await committed(master) == "20"


@pytest.mark.behaviour("MO-19")
@pytest.mark.orbitmq(replicas=2, settings={**READABLE, "accessMessageInMemoryMaxRatio": "0"})
@pytest.mark.parametrize("pause_s", [1, 8, 20, 40])
async def test_a_consumer_that_is_sent_to_the_slave_hears_of_a_reset_and_goes_on(
    orbitmq_world: World, pause_s: float
) -> None:
    """Each message is delivered once before the reset, and each from the new offset on once more."""
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
    async with world.producer() as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    await world.until(lambda: same_end(world))
    seen: list[int] = []
    consumer = world.consumer("cg", pull_batch_size=4)

    @consumer.on("T")
    async def take(message: Any) -> None:
        seen.append(int(message.body))

    async with consumer, peer_of(world, MASTER) as master:
        running = asyncio.ensure_future(consumer.run())
        await world.until(lambda: len(seen) == 20)
        await world.sleep(pause_s)
        begin = world.clock.monotonic()
        await reset(master, 5)
        await world.until(lambda: len(seen) >= 35)
        assert world.clock.monotonic() - begin < 3
        await world.sleep(60)
        assert sorted(seen) == sorted([*range(20), *range(5, 20)])
        assert await committed(master) == "20"
        await consumer.close()
        await running


@pytest.mark.behaviour("PO-37")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("kept", [False, True])
async def test_a_reset_that_was_told_by_who_acted_does_not_come_again(
    orbitmq_world: World, kept: bool
) -> None:
    """The master was cut off and lives on; a reset that an operator makes there meanwhile stays pending."""
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await twenty_read(world, master)
        await reset(master, 5)
        await world.sleep(1)
        assert waits(world, SLAVE)
        world.partition(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        if kept:
            world.brokers[MASTER].services.offsets.reset("cg", "T", 0, 7)
        moved = await slave.pull(18, sys_flag=int(OWN_FILTER))
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
        await slave.pull(5, sys_flag=int(OWN_FILTER))
        await commit(slave, 20)
        world.heal()
        await world.until(
            lambda: (role_of(world, MASTER), role_of(world, SLAVE)) == (Role.MASTER, Role.SLAVE)
        )
        await world.sleep(2)
        assert [waits(world, name) for name in (MASTER, SLAVE)] == [kept, kept]
        assert await committed(master) == ("7" if kept else "20")


@pytest.mark.behaviour("MO-22")
@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_a_reset_outlives_the_broker(orbitmq_world: World, how: str) -> None:
    """A successful reset must be on the disk, and a member that has not pulled since must not commit its own
    offset over it.
    """
    world = orbitmq_world

    async def again() -> None:
        if how == "crash":
            world.crash(MASTER, keep=Keep.NOTHING)
        else:
            await world.stop_broker(MASTER)
        await world.start_broker(MASTER)

    async with peer_of(world, MASTER) as master:
        await twenty_read(world, master, replicas=1)
        await world.sleep(10)
        await reset(master, 5)
        await again()
        assert await committed(master) == "5"
        assert await commit(master, 20) == "Offset has been previously reset"
        moved = await master.pull(20, sys_flag=int(OWN_FILTER))
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
        await master.pull(5, sys_flag=int(OWN_FILTER))  # with this pull the reset has been received
        await commit(master, 7)
        await world.sleep(10)
        await again()
        assert not waits(world, MASTER)
        assert await committed(master) == "7"


@pytest.mark.behaviour("MO-22", "PO-37")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("told", [False, True])
async def test_a_reset_that_was_told_while_a_slave_acted_is_over_for_a_master_that_begins_anew(
    orbitmq_world: World, told: bool
) -> None:
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await twenty_read(world, master)
        await reset(master, 5)
        await world.sleep(1)
        world.crash(MASTER, keep=Keep.NOTHING)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        if told:
            moved = await slave.pull(18, sys_flag=int(OWN_FILTER))
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            await slave.pull(5, sys_flag=int(OWN_FILTER))  # with this pull the reset has been received
            await commit(slave, 20)
        await world.start_broker(MASTER)
        await world.until(
            lambda: (role_of(world, MASTER), role_of(world, SLAVE)) == (Role.MASTER, Role.SLAVE)
        )
        await world.sleep(2)
        assert [waits(world, name) for name in (MASTER, SLAVE)] == [not told] * 2
        assert await committed(master) == ("20" if told else "5")


@pytest.mark.behaviour("PO-37")
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, **READABLE})
@pytest.mark.parametrize("told_before", [False, True])
async def test_a_reset_made_while_a_slave_acts_reaches_a_master_that_lives_on(
    orbitmq_world: World, told_before: bool
) -> None:
    """That includes a reset backwards, after one that the group has received from the master."""
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await twenty_read(world, master)
        if told_before:
            await reset(master, 3)
            await master.pull(18, sys_flag=int(OWN_FILTER))
            await commit(master, 18)
            await world.sleep(1)
        world.partition(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        await reset(slave, 5)
        world.heal()
        await world.until(
            lambda: (role_of(world, MASTER), role_of(world, SLAVE)) == (Role.MASTER, Role.SLAVE)
        )
        await world.sleep(2)
        assert [waits(world, name) for name in (MASTER, SLAVE)] == [True, True]
        moved = await master.pull(18, sys_flag=int(OWN_FILTER))
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
        assert await committed(master) == "5"
