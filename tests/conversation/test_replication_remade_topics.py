"""A topic that was deleted and made again: a broker that was away keeps nothing of the one before."""

from __future__ import annotations

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, online, same_end, send, shown, store

from orbitmq import Message
from orbitmq.testing import World
from orbitmq.wire.bodies.topic import TopicConfig

TOPIC = "again"

pytestmark = [pytest.mark.behaviour("MO-13"), pytest.mark.orbitmq(replicas=2, settings=ACTING)]

Ends = list[tuple[int, int]]


def ends(world: World, name: str, queues: int = 4) -> Ends:
    here = store(world, name)
    return [(here.min_offset(TOPIC, each), here.max_offset(TOPIC, each)) for each in range(queues)]


async def fill(world: World, count: int) -> None:
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


async def agreed(world: World) -> Ends:
    """The ends of the topic's queues, when both brokers have the same."""
    await world.until(lambda: same_end(world) and shown(world, TOPIC) == BOTH)
    await world.sleep(1)
    assert ends(world, MASTER) == ends(world, SLAVE)
    return ends(world, MASTER)


def delete(world: World) -> None:
    world.brokers[MASTER].services.topics.delete(TOPIC)


def make(world: World, queues: int = 4) -> None:
    world.brokers[MASTER].services.topics.update(TopicConfig(TOPIC, queues, queues))


async def begun(world: World, watch: Watch, count: int = 12) -> None:
    await online(world, watch)
    make(world)
    await fill(world, count)
    assert await agreed(world) == [(0, count // 4)] * 4


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("new", [0, 1])
async def test_a_slave_that_was_away_forgets_the_topic_before(
    orbitmq_world: World, times: int, new: int
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await world.stop_broker(SLAVE)
        for _ in range(times):
            delete(world)
            await send(world, 1)
            make(world)
        await fill(world, new)
        await world.start_broker(SLAVE)
        assert sorted(await agreed(world)) == [(0, 0)] * (4 - new) + [(0, 1)] * new
