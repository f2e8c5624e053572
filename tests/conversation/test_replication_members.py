"""Brokers of one name come online beside each other; events that change no role."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, SLAVE_ONLY, Watch, following, online, shown

from orbitmq.broker.role import Role
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.route import NotifyMinBrokerIdChangeRequest

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


@pytest.mark.orbitmq(replicas=3, settings={**ACTING, "totalReplicas": "2"})
@pytest.mark.behaviour("MB-07")
async def test_a_broker_counts_itself_among_the_living(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await world.until(lambda: registered(world, 2))
    await world.sleep(5)
    counted = [line.split(" of ")[0] for line in caplog.messages if "totalReplicas is 2" in line]
    # Each broker reports once: no broker counts itself twice, or leaves itself out.
    assert counted == ["3 brokers"] * 3


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
@pytest.mark.behaviour("MB-09")
async def test_a_notice_of_a_change_that_did_not_happen_changes_nothing(orbitmq_world: World) -> None:
    world = orbitmq_world
    client = RemotingClient(world.runtime)
    async with Watch(world) as watch:
        await online(world, watch)
        before = len(watch.roles)
        notice = NotifyMinBrokerIdChangeRequest(
            min_broker_id=1,
            broker_name="broker-a",
            min_broker_addr=world.brokers[SLAVE].address,
            offline_broker_addr=world.brokers[MASTER].address,
        )
        for name in (MASTER, SLAVE):
            await client.oneway(world.brokers[name].address, notice.command(), 300)
        await world.sleep(20)
        assert watch.roles[before:] == []
        assert following(world).connected
    await client.close()


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("SS-03")
async def test_only_the_loss_of_the_master_ends_the_connections_to_it(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await world.until(lambda: watch.leaders() == [MASTER] and registered(world, 2))
        links = following(world)
        await world.until(lambda: links.connected)
        world.crash(SECOND_SLAVE)
        await world.until(lambda: not registered(world, 2))
        for _ in range(100):
            await world.sleep(0.1)
            assert links.connected
        # The cut sends no reset: open connections would stay open for minutes.
        world.partition(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        assert not links.connected


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("SS-01")
async def test_a_slave_takes_the_special_services_and_gives_them_back(orbitmq_world: World) -> None:
    world = orbitmq_world
    special = {"delayed messages", "popped messages", "timer messages", "open transactions of the master"}
    async with Watch(world) as watch:
        await online(world, watch)
        slave = world.brokers[SLAVE]
        assert not special & set(slave.running)
        assert following(world).connected
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await world.until(lambda: special <= set(slave.running))
        assert not following(world).connected
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert not special & set(slave.running)
        await world.until(lambda: following(world).connected)


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-13")
async def test_a_master_registers_when_it_serves_and_not_while_it_is_isolated(orbitmq_world: World) -> None:
    world = orbitmq_world
    seen: list[tuple[Role | None, bool, bool]] = []

    async def look() -> None:
        while True:
            broker = world.brokers.get(MASTER)
            running = () if broker is None or broker._services is None else broker.running
            now = watch.role(MASTER), "delayed messages" in running, registered(world, 0)
            if seen[-1:] != [now]:
                seen.append(now)
            await asyncio.sleep(0.001)

    async with Watch(world) as watch:
        await online(world, watch)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        looking = asyncio.ensure_future(look())
        await world.start_broker(MASTER)
        await world.until(lambda: shown(world) == BOTH)
        await world.sleep(5)
        looking.cancel()
    assert (Role.PRE_ONLINE, False, False) in seen
    assert seen[-1] == (Role.MASTER, True, True)
    assert all(role is Role.MASTER for role, _, known in seen if known)
    assert not any(special or known for role, special, known in seen if role is Role.PRE_ONLINE)


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
        world.crash(MASTER)  # the crash comes with the response
        await world.until(lambda: watch.leaders() == [SLAVE])
        assert await lock(SLAVE, "other") == set()
        assert await lock(SLAVE, "me") == queues
