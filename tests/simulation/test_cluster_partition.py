"""A broker behind a cut network: it leaves the routes when it must, and is back soon after."""

from __future__ import annotations

import pytest

from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime.simulated import run, simulated_runtime

NAME_SERVER, BROKER = "10.0.0.1", "10.0.0.2"


@pytest.mark.behaviour("HB-06")
@pytest.mark.behaviour("HB-07")
@pytest.mark.parametrize("seed", range(5))
def test_a_partitioned_broker_leaves_and_comes_back(seed: int) -> None:
    async def main() -> None:
        world = simulated_runtime()
        here, there = world.machine(NAME_SERVER), world.machine(BROKER)
        config = BrokerConfig(
            broker_ip1=BROKER,
            namesrv_addr=f"{NAME_SERVER}:9876",
            store_path_root_dir="/b",
            mapped_file_size_commit_log=1024 * 1024,
        )
        broker = Broker(there, config)
        async with (
            NameServer(here, NameServerConfig()),
            Admin(f"{NAME_SERVER}:9876", runtime=here) as admin,
        ):

            async def waited(count: int) -> float:
                begin = world.clock.monotonic()
                while len(await admin.cluster_list()) != count:
                    await world.clock.sleep(0.1)
                return world.clock.monotonic() - begin

            await broker.start()
            assert await waited(1) < 1
            await world.clock.sleep(world.random.uniform(0, 60))
            world.network.partition([NAME_SERVER], [BROKER])
            assert 85 < await waited(0) < 127, "its last registration is up to 30 s old, its limit is 120 s"
            await world.clock.sleep(world.random.uniform(0, 100))
            world.network.heal()
            assert await waited(1) < 10
            await broker.stop()
            assert await waited(0) < 1

    run(main(), seed=seed)
