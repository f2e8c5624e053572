"""Queue locks with replicas: strict mode asks the others of the name (LK-04..07, LK-09..11)."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import ACTING, MASTER, SLAVE, Watch, following, online

from orbitmq.broker.role import Role
from orbitmq.cluster.layout import ClusterError
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

STRICT = {**ACTING, "lockInStrictMode": "true"}
QUEUES = {MessageQueue("t", MASTER, number) for number in range(4)}
ONE = {MessageQueue("t", MASTER, 0)}

two = pytest.mark.orbitmq(replicas=2, settings=STRICT)
three = pytest.mark.orbitmq(replicas=3, settings=STRICT)
loose = pytest.mark.orbitmq(replicas=2, settings=ACTING)


async def ask(
    world: World, name: str, client_id: str, queues: set[MessageQueue], *, only: bool = False
) -> Command:
    client = RemotingClient(world.runtime)
    body = LockBatchRequestBody("g", client_id, only, queues)
    answer = await client.request(
        world.brokers[name].address, Command(RequestCode.LOCK_BATCH_MQ, body=body.encode()), 5000
    )
    await client.close()
    return answer


async def lock(
    world: World, name: str, client_id: str, queues: set[MessageQueue], *, only: bool = False
) -> set[MessageQueue]:
    answer = await ask(world, name, client_id, queues, only=only)
    assert answer.code == ResponseCode.SUCCESS
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


async def refuses(world: World, name: str, why: str = "the master of its name keeps the queue locks") -> None:
    refused = await ask(world, name, "other", QUEUES)
    assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert why in (refused.remark or "")


async def locked_and_slave_lost(world: World, watch: Watch) -> None:
    """The master has granted all queues, its slave is down, and nobody reaches the master."""
    await online(world, watch)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    world.crash(SLAVE)
    world.partition(MASTER)


async def unlock(world: World, name: str, client_id: str, queues: set[MessageQueue]) -> None:
    client = RemotingClient(world.runtime)
    body = UnlockBatchRequestBody("g", client_id, False, queues)
    await client.request(
        world.brokers[name].address, Command(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()), 5000
    )
    await client.close()


@two
@pytest.mark.behaviour("LK-05")
@pytest.mark.behaviour("LK-06")
async def test_more_than_half_of_all_replicas_have_to_grant(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    assert await lock(world, SLAVE, "other", ONE, only=True) == ONE
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES - ONE
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == ONE, "the slave knows who has the rest"


@two
@pytest.mark.behaviour("LK-06")
async def test_a_lost_member_costs_the_quorum_of_two(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    world.partition(SLAVE)
    begin = world.clock.monotonic()
    assert await lock(world, MASTER, "me", QUEUES) == set()
    assert world.clock.monotonic() - begin <= 2.1
    world.heal()
    await world.sleep(10)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES, "the locks gained below the quorum are ours"


@three
@pytest.mark.behaviour("LK-05")
async def test_of_three_two_are_enough(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    await world.stop_broker("broker-a-2")
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == set()


@two
@pytest.mark.behaviour("LK-07")
async def test_an_unlock_is_told_to_the_others_without_waiting(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    await unlock(world, MASTER, "me", ONE)
    await world.sleep(0.1)
    assert await lock(world, SLAVE, "other", QUEUES, only=True) == ONE
    world.partition(SLAVE)
    begin = world.clock.monotonic()
    await unlock(world, MASTER, "me", QUEUES)
    assert world.clock.monotonic() - begin < 0.1


@two
async def test_a_lock_survives_the_change_of_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(world, MASTER, "me", QUEUES) == QUEUES
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "other", QUEUES, only=True) == set()


@loose
@pytest.mark.behaviour("LK-04")
async def test_without_strict_mode_the_own_table_decides(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.sleep(5)
    world.partition(SLAVE)
    begin = world.clock.monotonic()
    assert await lock(world, MASTER, "me", QUEUES) == QUEUES
    assert world.clock.monotonic() - begin < 1.1


@pytest.mark.orbitmq(replicas=2, settings={"lockInStrictMode": "true"})
@pytest.mark.behaviour("LK-06")
async def test_strict_locks_without_acting_masters_ask_the_name_servers(orbitmq_world: World) -> None:
    assert await lock(orbitmq_world, MASTER, "me", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-10")
async def test_a_slave_that_does_not_act_grants_no_lock(orbitmq_world: World) -> None:
    """One that began anew and could not reach its master had an empty table, and gave its queues away."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await locked_and_slave_lost(world, watch)
        begins = asyncio.ensure_future(world.start_broker(SLAVE))
        await world.until(lambda: watch.role(SLAVE) is Role.PRE_ONLINE)
        await refuses(world, SLAVE)
        world.heal()
        await begins
        await refuses(world, SLAVE)
        await world.until(lambda: following(world).transferring)
        await world.sleep(1)
        await refuses(world, SLAVE)
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        assert await lock(world, SLAVE, "other", QUEUES) == set()
        assert await lock(world, SLAVE, "me", QUEUES) == QUEUES


@loose
@pytest.mark.behaviour("LK-11")
async def test_a_slave_that_began_anew_and_acts_grants_what_it_was_told(orbitmq_world: World) -> None:
    """Its master goes on beside it, cut off, and its clients with the locks that they have."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await locked_and_slave_lost(world, watch)
        began_s = world.clock.monotonic()
        with pytest.raises(ClusterError):
            await world.start_broker(SLAVE)  # it waits until all have registered
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await refuses(world, SLAVE, "acting master that began anew and was not told the queue locks")
        await world.sleep(began_s + 31 - world.clock.monotonic())
        assert await lock(world, SLAVE, "other", QUEUES) == QUEUES
