"""Quorum 2 with an acting master: either side is killed, with or without its disk, and nothing is lost.

A message that was acknowledged is in the log of the master at the end, and was delivered.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.replicas import ACTING, MASTER, SLAVE, bodies
from tests.seeds import seeds

from orbitmq import ConsumeFrom, Message, SendStatus
from orbitmq.errors import SendError
from orbitmq.testing import Keep, World

SETTINGS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", **ACTING, "slaveReadEnable": "true"}

pytestmark = pytest.mark.orbitmq(replicas=2, settings=SETTINGS)


class Load:
    """A producer that sends all the time and a consumer; what was acknowledged and what was received."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.acknowledged: set[bytes] = set()
        self.received: set[bytes] = set()
        self._stopped = False
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]

    async def _produce(self) -> None:
        number = 0
        async with self._world.producer(retries=0) as producer:
            while not self._stopped:
                body, number = b"%d" % number, number + 1
                try:
                    if (await producer.send(Message("t", body))).status is SendStatus.SEND_OK:
                        self.acknowledged.add(body)
                except SendError:
                    pass
                await asyncio.sleep(0.02)

    async def _consume(self) -> None:
        async with self._world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            async for message in consumer:
                self.received.add(message.body)

    async def more_acknowledged(self, count: int = 20) -> None:
        wanted = len(self.acknowledged) + count
        await self._world.until(lambda: len(self.acknowledged) >= wanted, 120)

    async def end(self) -> None:
        self._stopped = True
        await self._tasks[0]
        await self._world.until(lambda: self.acknowledged <= self.received, 120)
        self._tasks[1].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def kill_and_return(world: World, dice: random.Random, name: str, *, wipe: bool) -> None:
    world.crash(name, dice.choice(list(Keep)))
    if wipe:
        world.machines[name].disk.remove_tree("/store")
    await asyncio.sleep(dice.choice([0.1, 1, 7, 20]) * dice.random())
    await world.start_broker(name)


@pytest.mark.parametrize("orbitmq_seed", seeds(3))
@pytest.mark.parametrize("wiped", [(), (SLAVE,), (MASTER, SLAVE)])
async def test_no_acknowledged_message_is_lost(orbitmq_world: World, wiped: tuple[str, ...]) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    load = Load(world)
    await load.more_acknowledged()
    for _ in range(4):
        name = dice.choice([MASTER, SLAVE])
        await kill_and_return(world, dice, name, wipe=name in wiped)
        await load.more_acknowledged()
        await asyncio.sleep(dice.random())
    await load.end()
    assert load.acknowledged <= bodies(world, MASTER)


@pytest.mark.parametrize("orbitmq_seed", seeds(3))
async def test_no_acknowledged_message_is_lost_when_brokers_are_cut_off(orbitmq_world: World) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    load = Load(world)
    await load.more_acknowledged()
    for _ in range(4):
        world.partition(dice.choice([MASTER, SLAVE, "nameserver", "clients"]))
        await asyncio.sleep(dice.choice([0.5, 5, 15, 40]) * dice.random())
        if dice.random() < 0.3:
            world.crash(SLAVE, dice.choice(list(Keep)))
            world.heal()
            await world.start_broker(SLAVE)
        world.heal()
        await load.more_acknowledged()
    await load.end()
    assert load.acknowledged <= bodies(world, MASTER)
