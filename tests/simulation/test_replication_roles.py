"""Faults from the seed around two brokers of one name: never two leaders, no acknowledged message lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, online, shown
from tests.seeds import seeds

from orbitmq import Message
from orbitmq.errors import OrbitError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.links import Links
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.testing.machines import PowerMachine

SECOND = "10.0.0.99"


@asynccontextmanager
async def second_name_server(world: World) -> AsyncIterator[NameServer]:
    machine = PowerMachine(world.runtime.machine(SECOND))
    config = NameServerConfig(bind_address=SECOND, listen_port=9876, support_acting_master=True)
    async with NameServer(machine.runtime, config) as server:
        yield server


async def one_fault(world: World, hosts: list[str]) -> None:
    source = world.runtime.random
    up = [name for name in (MASTER, SLAVE) if name in world.brokers]
    down = [name for name in (MASTER, SLAVE) if name not in world.brokers]
    match source.randrange(8):
        case 0 if up:
            world.crash(source.choice(up), Keep.ANY)
        case 1 if up:
            await world.stop_broker(source.choice(up))
        case 2 | 3 if down:
            await world._cluster._launch(source.choice(down))
        case 4:
            one, other = source.sample(hosts, 2)
            world.runtime.network.partition([one], [other], one_way=source.random() < 0.5)
        case 5:
            world.heal()
        case 6:
            world.runtime.network.set_delay(0, source.choice((0, 0.05, 0.3, 1.5)))
        case 7:
            world.disconnect(source.choice(["nameserver", MASTER, SLAVE]))
        case _:
            pass
    await world.sleep(source.choice((0.05, 0.5, 2, 6, 12)) * source.random())


async def send(world: World, acknowledged: set[bytes]) -> None:
    """Send all the time; note what was acknowledged."""
    number = 0
    async with world.producer(retries=0, timeout=1) as producer:
        while True:
            number += 1
            body = b"%06d" % number
            with suppress(OrbitError):
                await producer.send(Message("t", body))
                acknowledged.add(body)
            await world.sleep(0.2)


async def receive(world: World, wanted: set[bytes]) -> None:
    """Return when a new group has got all that is wanted."""
    missing = set(wanted)
    async with world.consumer("everything") as consumer:
        consumer.subscribe("t")
        async with asyncio.timeout(120):
            while missing:
                message = await anext(aiter(consumer))
                missing.discard(message.body)


async def history(world: World, hosts: list[str]) -> None:
    acknowledged: set[bytes] = set()
    async with Watch(world) as watch:
        await online(world, watch)
        sending = asyncio.ensure_future(send(world, acknowledged))
        for _ in range(12):
            await one_fault(world, hosts)
        world.heal()
        world.runtime.network.set_delay(0, 0)
        for name in (MASTER, SLAVE):
            if name not in world.brokers:
                await world._cluster._launch(name)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH, timeout_s=60)
        assert watch.both == []
        await world.sleep(2)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert acknowledged
        await receive(world, acknowledged)


@pytest.mark.parametrize("orbitmq_seed", seeds(8))
@pytest.mark.orbitmq(replicas=2, settings=ACTING)
async def test_with_one_name_server(orbitmq_world: World, orbitmq_seed: int) -> None:
    world = orbitmq_world
    await history(world, [machine.host for machine in world.machines.values()])


@pytest.mark.parametrize("orbitmq_seed", seeds(8))
async def test_with_two_name_servers(orbitmq_runtime: SimulatedRuntime, orbitmq_seed: int) -> None:
    both = {"namesrvAddr": f"10.0.0.1:9876;{SECOND}:9876"}
    world = World(orbitmq_runtime, replicas=2, settings={**ACTING, **both})
    async with second_name_server(world), world:
        await history(world, [SECOND, *(machine.host for machine in world.machines.values())])


async def test_a_promotion_that_does_not_wait_is_found(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: a slave that takes a silent master for a dead one."""
    monkeypatch.setattr(Timing, "patience_s", 0.0)
    # Nor does it look at the link, whose signs of life would hold it back until the master is fenced.
    monkeypatch.setattr(Links, "master_silence_s", lambda _links: None)
    world = World(orbitmq_runtime, replicas=2, settings=ACTING)
    async with world, Watch(world) as watch:
        await online(world, watch)
        # The name server loses the connection of a master that it then does not hear of.
        world.partition(MASTER)
        world.runtime.network.cut(world.machines["nameserver"].host, world.machines[MASTER].host)
        await world.sleep(5)
        assert watch.both != []
