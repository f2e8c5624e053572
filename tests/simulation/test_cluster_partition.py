"""A broker behind a cut network: it leaves the routes when it must, and is back soon after."""

from __future__ import annotations

import pytest
from tests.seeds import seeds

from orbitmq.testing import World


@pytest.mark.behaviour("HB-06")
@pytest.mark.behaviour("HB-07")
@pytest.mark.parametrize("orbitmq_seed", seeds(5))
async def test_a_partitioned_broker_leaves_and_comes_back(orbitmq_world: World) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    async with world.admin() as admin:

        async def waited(count: int) -> float:
            begin = world.clock.monotonic()
            while len(await admin.brokers.list()) != count:
                await world.sleep(0.1)
            return world.clock.monotonic() - begin

        await world.sleep(dice.uniform(0, 60))
        world.partition("broker-a")
        assert 85 < await waited(0) < 127, "its last registration is up to 30 s old, its limit is 120 s"
        await world.sleep(dice.uniform(0, 100))
        world.heal()
        assert await waited(1) < 10
        await world.stop_broker("broker-a")
        assert await waited(0) < 1
