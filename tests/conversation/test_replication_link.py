"""A slave copies its master's log over the HA link: byte for byte, through faults of network and machines."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import MASTER, SLAVE, following, leave, log_of, same_end, send
from tests.seeds import seeds

from orbitmq.replication.link.follower import NAMED_SECONDS
from orbitmq.testing import Keep, World
from orbitmq.wire.bodies.topic import TopicConfig

pytestmark = pytest.mark.orbitmq(replicas=2)


@pytest.mark.behaviour("PO-15")
async def test_the_slave_has_its_masters_log(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 50)
    assert await world.until(lambda: same_end(world)) < 0.1
    assert log_of(world, MASTER) == log_of(world, SLAVE)


async def test_the_slave_answers_pulls(orbitmq_world: World) -> None:
    world = orbitmq_world
    world.brokers[SLAVE].services.topics.update(TopicConfig("t"))
    await send(world, 20)
    await world.until(lambda: same_end(world))
    await world.stop_broker(MASTER)
    async with world.consumer() as consumer:
        consumer.subscribe("t")
        got = set()
        async for message in consumer:
            got.add(message.body)
            if len(got) == 20:
                break


@pytest.mark.parametrize("orbitmq_seed", seeds(6))
@pytest.mark.parametrize("keep", list(Keep))
async def test_it_goes_on_after_crashes_and_cuts(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    source = world.runtime.random
    sending = asyncio.ensure_future(send(world, 200, 3000, 0.02))
    for _ in range(4):
        await world.sleep(source.random())
        world.disconnect(SLAVE)
        await world.sleep(source.random())
        world.crash(SLAVE, keep)
        await world.start_broker(SLAVE)
    await sending
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)


async def test_the_protocol_of_rocketmq_does_the_same(orbitmq_world: World) -> None:
    world = orbitmq_world
    link = following(world)
    assert link.ha_address is not None
    ha_address = link.ha_address
    await leave(world)
    link.follow(ha_address, None)
    assert await world.until(lambda: link.transferring) < NAMED_SECONDS + 1
    await send(world, 50, 3000)
    assert await world.until(lambda: same_end(world)) < 0.2
    assert log_of(world, MASTER) == log_of(world, SLAVE)
    world.crash(MASTER)
    await world.until(lambda: not link.connected)
    await world.start_broker(MASTER)
    await send(world, 50, 3000)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)
