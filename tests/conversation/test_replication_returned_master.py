"""A master is lost twice: evidence of the first loss is none for the second."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, cut_off, kill, online, shown

from orbitmq.broker.role import Role
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.master_word import YIELD_S
from orbitmq.replication.members.membership import Membership
from orbitmq.replication.members.probe import PERIOD_S, Probe
from orbitmq.replication.members.view import MemberViews, ProbeResult
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient


async def returns_by_lease(world: World, watch: Watch) -> None:
    """Restart name server and master so that the name server shows the master no slave to announce itself to
    (906).

    The slave does not reach the master in the time that a master waits after a crash (PO-46). After that the
    master sees no name server, and gets the lead from the slave over the HA connection.
    """
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.stop_name_server()
    network, hosts = world.runtime.network, {name: machine.host for name, machine in world.machines.items()}
    shows_slave = network.partition([hosts["nameserver"]], [hosts[SLAVE]])
    starting = asyncio.gather(world.start_name_server(), world.start_broker(MASTER))
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)
    shows_slave()
    await world.until(lambda: watch.role(SLAVE) is Role.SLAVE)
    cut_off(world, "nameserver")
    await starting
    await world.until(lambda: watch.leaders() == [MASTER])


async def is_cut_off(world: World, watch: Watch) -> None:
    """Cut the master off: name server and slave notice it at once, and the master may lead for some seconds
    more.
    """
    world.partition(MASTER)
    world.disconnect(MASTER)
    await world.until(lambda: watch.leaders() == [SLAVE])


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("MB-13")
async def test_a_port_that_refused_before_its_master_returned_is_looked_at_again(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        kill(world)
        await returns_by_lease(world, watch)
        await is_cut_off(world, watch)
        assert watch.both == []


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("MB-13")
async def test_a_release_says_nothing_of_a_master_that_returned(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.stop_broker(MASTER)
        released_s = world.clock.monotonic()
        await world.until(lambda: watch.leaders() == [SLAVE])
        # The slave sees its master at the name server without a notice of its return.
        cut_off(world)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert world.clock.monotonic() < released_s + YIELD_S - 1
        await is_cut_off(world, watch)
        assert watch.both == []


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("MB-13")
async def test_a_release_behind_the_word_of_the_return_is_of_before(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.stop_broker(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        starting = asyncio.ensure_future(world.start_broker(MASTER))
        await world.until(lambda: watch.role(SLAVE) is Role.SLAVE)
        world.brokers[SLAVE].part(Membership).master_releases()  # a late message over a slow link
        await starting
        await world.until(lambda: shown(world) == BOTH and watch.leaders() == [MASTER])
        await world.sleep(1.5)  # the slave has seen it too
        await is_cut_off(world, watch)
        assert watch.both == []


@pytest.mark.parametrize("heard", [False, True], ids=["later", "a leader is heard of meanwhile"])
@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("MB-13")
async def test_what_a_port_showed_counts_for_a_second(orbitmq_world: World, *, heard: bool) -> None:
    world = orbitmq_world
    master = world.brokers[MASTER].address
    await world.stop_broker(MASTER)
    client = RemotingClient(world.runtime)
    probe = Probe(world.clock, client, MemberViews(1, world.brokers[SLAVE].address, Timing(4, 1), []))
    looks = asyncio.ensure_future(probe.look(master))
    if heard:
        await asyncio.sleep(0)  # the probe is under way
        probe.forget()
    await looks
    assert probe.port is (ProbeResult.UNKNOWN if heard else ProbeResult.REFUSES)
    await world.sleep(PERIOD_S)
    assert probe.port is ProbeResult.UNKNOWN
    await probe.look(master)
    assert probe.port is ProbeResult.REFUSES
    await client.close()
