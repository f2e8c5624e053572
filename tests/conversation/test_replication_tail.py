"""A master whose log is shorter than its slave's copies the tail back before it serves."""

from __future__ import annotations

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, online, shown

from orbitmq import Message
from orbitmq.testing import Keep, World
from orbitmq.wire.bodies import TopicConfig

LOSES = {**ACTING, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"}
ends_of = tuple[int, int]


def ends(world: World) -> ends_of:
    first, second = (world.brokers[name].services.store.max_commit_log_offset for name in (MASTER, SLAVE))
    return first, second


async def send(world: World, first: int, count: int) -> None:
    async with world.producer() as producer:
        for number in range(first, first + count):
            await producer.send(Message("t", b"%d" % number + bytes(3000)))


async def received(world: World, count: int) -> set[int]:
    got: set[int] = set()
    async with world.consumer("everything") as consumer:
        consumer.subscribe("t")
        async for message in consumer:
            got.add(int(message.body.rstrip(b"\0") or -1) if message.body != b"x" else -1)
            if len(got) == count:
                return got
    return got


@pytest.mark.parametrize("keep", list(Keep))
@pytest.mark.orbitmq(replicas=2, settings=LOSES)
async def test_what_only_the_slave_has_comes_back(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        end = ends(world)[0]
        world.crash(MASTER, keep)
        await world.sleep(3)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert ends(world)[0] >= end
        await send(world, 20, 5)
        assert await received(world, 26) == {-1, *range(25)}
        await world.until(lambda: ends(world)[0] == ends(world)[1])


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
async def test_a_master_with_an_empty_disk_gets_the_log_of_its_slave(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        await world.sleep(3)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert await received(world, 21) == {-1, *range(20)}


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-18")
@pytest.mark.behaviour("PO-22")
@pytest.mark.behaviour("MO-17")
@pytest.mark.parametrize("stops", [0, 3])
async def test_a_master_with_an_empty_disk_gets_the_log_of_a_slave_that_comes_later(
    orbitmq_world: World, stops: int
) -> None:
    """It served without a log, and its slave kept its own: nobody could read what the slave had.

    Each time that it began to lead its tables, which held nothing, became newer.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        world.crash(SLAVE)
        await world.start_broker(MASTER)
        for _ in range(stops):
            await world.until(lambda: watch.leaders() == [MASTER])
            await world.stop_broker(MASTER)
            await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert world.brokers[MASTER].services.store.max_commit_log_offset == 0
        await world.start_broker(SLAVE)
        await world.until(lambda: ends(world)[0] == ends(world)[1] > 0)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert await received(world, 21) == {-1, *range(20)}


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-23")
async def test_a_master_that_leads_takes_the_tables_of_a_slave_that_led_since(orbitmq_world: World) -> None:
    """It began alone, in a lower term than that of the slave, which followed it no more for ever."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 5)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        for made in ("one", "two", "three"):
            await world.until(lambda: watch.leaders() == [SLAVE])
            world.brokers[SLAVE].services.topics.update(TopicConfig(made))
            await world.stop_broker(SLAVE)
            await world.start_broker(SLAVE)
        await world.stop_broker(SLAVE)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        await world.start_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert "three" in world.brokers[MASTER].services.topics
        await send(world, 5, 5)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
