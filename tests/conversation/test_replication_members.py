"""How brokers of one name come online beside each other, and what does not change a role."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, SLAVE_ONLY, Watch, online, shown

from orbitmq.broker.role import Role
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest

SECOND_SLAVE = "broker-a-2"


async def launch(world: World, name: str) -> None:
    """Start a broker without waiting for its registration."""
    await world._cluster._launch(name)


def registered(world: World, broker_id: int) -> bool:
    server = world._cluster._name_server
    return server is not None and any(m.broker_id == broker_id for m in server.routes.members())


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-11")
@pytest.mark.behaviour("SS-04")
async def test_a_slave_is_linked_with_its_master_before_it_is_shown(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.stop_broker(SLAVE)
        hosts = [world.machines[name].host for name in (SLAVE, MASTER)]
        world.runtime.network.partition(hosts[:1], hosts[1:])
        await launch(world, SLAVE)
        await world.sleep(5)
        assert watch.role(SLAVE) is Role.PRE_ONLINE
        assert not registered(world, 1)
        world.heal()
        await world.until(lambda: registered(world, 1))
        assert world.brokers[MASTER].services.store.max_commit_log_offset > 0
        await world.until(
            lambda: (
                world.brokers[SLAVE].services.store.max_commit_log_offset
                == world.brokers[MASTER].services.store.max_commit_log_offset
            )
        )


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-04")
@pytest.mark.behaviour("PO-07")
async def test_a_master_whose_member_does_not_answer_goes_online_all_the_same_and_leads_later(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await world.stop_broker(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        hosts = [world.machines[name].host for name in (SLAVE, MASTER)]
        world.runtime.network.partition(hosts[:1], hosts[1:])
        begin = world.clock.monotonic()
        await launch(world, MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        assert 2 <= world.clock.monotonic() - begin <= 10, "three tries"
        assert "goes online without: compare logs: broker id 1" in caplog.text
        await world.until(lambda: watch.leaders() == [MASTER])
        assert watch.both == []


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("PO-12")
async def test_a_slave_beside_another_slave_goes_online_as_a_slave(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await world.until(lambda: watch.leaders() == [MASTER] and registered(world, 2))
        await world.sleep(5)
        world.crash(SECOND_SLAVE)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        begin = world.clock.monotonic()
        await launch(world, SECOND_SLAVE)
        await world.until(lambda: registered(world, 2))
        assert world.clock.monotonic() - begin < 1
        await world.sleep(20)
        assert watch.role(SECOND_SLAVE) is Role.SLAVE
        assert watch.leaders() == [SLAVE], "the lowest id acts"
        world.crash(SLAVE)
        await world.until(lambda: watch.leaders() == [SECOND_SLAVE])
        assert watch.both == []


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("MB-08")
async def test_a_name_server_that_knows_nobody_changes_no_role(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        before = len(watch.roles)
        server = world._cluster._name_server
        assert server is not None
        for member in server.routes.members():
            server.routes.unregister(member.cluster, member.group, member.address)
        await world.sleep(2)
        assert watch.roles[before:] == []


@pytest.mark.orbitmq(replicas=2)
@pytest.mark.behaviour("MB-09")
async def test_without_acting_masters_a_slave_stays_one(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await world.until(lambda: watch.role(MASTER) is Role.MASTER and watch.role(SLAVE) is Role.SLAVE)
        world.crash(MASTER)
        await world.sleep(60)
        assert watch.since(0, SLAVE) == [Role.SLAVE]


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("SS-05")
async def test_pulls_that_wait_at_an_acting_master_are_answered_when_the_master_is_back(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE] and shown(world) == SLAVE_ONLY)
        services = world.brokers[SLAVE].services
        queue = next(i for i in range(8) if services.store.max_offset("t", i))
        pull = PullMessageRequest(
            consumer_group="g",
            topic="t",
            queue_id=queue,
            queue_offset=services.store.max_offset("t", queue),
            max_msg_nums=1,
            sys_flag=6,
            commit_offset=0,
            suspend_timeout_millis=60_000,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
        )
        client = RemotingClient(world.runtime)
        waits = asyncio.ensure_future(
            client.request(world.brokers[SLAVE].address, pull.command(), timeout_ms=90_000)
        )
        await world.sleep(5)
        assert not waits.done()
        await world.start_broker(MASTER)
        await world.until(lambda: shown(world) == BOTH)
        await world.until(waits.done, timeout_s=3)
        assert (await waits).code == ResponseCode.PULL_NOT_FOUND
        await client.close()


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("LK-09")
async def test_a_queue_lock_is_not_granted_twice_when_the_master_is_lost(orbitmq_world: World) -> None:
    world = orbitmq_world
    queues = {MessageQueue("t", MASTER, number) for number in range(4)}

    async def lock(name: str, client_id: str) -> set[MessageQueue]:
        client = RemotingClient(world.runtime)
        body = LockBatchRequestBody("g", client_id, False, queues)
        answer = await client.request(
            world.brokers[name].address, Command(RequestCode.LOCK_BATCH_MQ, body=body.encode()), 5000
        )
        await client.close()
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

    async with Watch(world) as watch:
        await online(world, watch)
        assert await lock(MASTER, "me") == queues
        world.crash(MASTER)  # in the moment of the answer
        await world.until(lambda: watch.leaders() == [SLAVE])
        assert await lock(SLAVE, "other") == set()
        assert await lock(SLAVE, "me") == queues
