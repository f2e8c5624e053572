"""gRPC clients at groups of a master and a slave."""

from __future__ import annotations

import pytest
from tests.conversation.grpc_rpc import Received, RpcClient, all_of, receiving

from orbitmq.admin import GroupSettings
from orbitmq.gateway.clients import COME_BACK_MS
from orbitmq.gateway.schema import ClientType, QueryRouteResponse
from orbitmq.gateway.status import Code
from orbitmq.testing import World

MASTER, SLAVE = "broker-a", "broker-a-1"
ACTING = pytest.mark.orbitmq(
    replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
)


def client_of(world: World, name: str, **options: str) -> RpcClient:
    """A client that is configured with this broker's address."""
    return RpcClient(world.runtime, host=world.machines[name].host, **options)


def places(answer: QueryRouteResponse) -> set[tuple[str, int, str]]:
    """Broker name, broker id and host."""
    assert answer.status.code == Code.OK, answer
    return {
        (queue.broker.name, queue.broker.id, queue.broker.endpoints.addresses[0].host)
        for queue in answer.message_queues
    }


@ACTING
@pytest.mark.behaviour("GW-40")
async def test_a_slave_leads_its_clients_to_the_master_and_to_itself_when_it_acts(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    master, slave = world.machines[MASTER].host, world.machines[SLAVE].host
    async with client_of(world, MASTER) as first, client_of(world, SLAVE) as other:
        assert places(await first.route()) == {(MASTER, 0, master)}
        await world.sleep(20)  # the slave has the topic
        assert places(await other.route()) == {(MASTER, 0, master)}
        world.crash(MASTER)
        await world.sleep(30)
        assert places(await other.route()) == {(MASTER, 0, slave)}
        await world.start_broker(MASTER)
        await world.sleep(30)
        assert places(await other.route()) == {(MASTER, 0, master)}


@ACTING
@pytest.mark.behaviour("GW-45")
async def test_receipts_of_a_master_are_good_at_the_slave_that_acts(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with client_of(world, MASTER) as first, client_of(world, SLAVE) as other:
        await first.route()
        await first.sent(b"done", b"open", b"later")
        await world.sleep(20)
        received = await first.receive(invisible_ms=100_000)
        assert sorted(received.bodies) == [b"done", b"later", b"open"]
        handles = dict(zip(received.bodies, map(received.handle, range(3)), strict=True))
        await world.sleep(5)
        world.crash(MASTER)
        await world.sleep(30)
        answer = await other.ack(handles[b"done"])
        assert answer.status.code == Code.OK, answer
        changed = await other.change(handles[b"later"], 1000)
        assert changed.status.code == Code.OK, changed
        # A redelivery waits for the group's master (enableRemoteEscape).
        await world.start_broker(MASTER)
        await world.sleep(150)
    async with client_of(world, MASTER) as back:
        assert set((await back.receive(invisible_ms=10_000)).bodies) == {b"later", b"open"}


async def make_group(world: World, *, in_order: bool) -> None:
    async with world.admin() as admin:
        await admin.groups.create("cg", GroupSettings(orderly=in_order))


async def works_on(world: World, name: str, *bodies: bytes) -> Received:
    """Receive messages from a broker as a living push consumer."""
    async with client_of(world, name) as rpc:
        await rpc.route()
        await rpc.start()
        await rpc.sent(*bodies, message_group="g")
        await world.sleep(20)
        await rpc.heartbeat(ClientType.PUSH_CONSUMER)
        received = await rpc.receive(renew=True, invisible_ms=0)
        assert received.bodies == list(bodies)
        await world.sleep(5)
    return received


async def nothing_for_others(world: World, name: str, back: RpcClient, seconds: int) -> None:
    """Check that the client, back online, keeps its messages and no other client gets them."""
    async with client_of(world, name, client_id="other") as other:
        for _ in range(seconds // 10):
            await back.heartbeat(ClientType.PUSH_CONSUMER)
            assert (await other.receive()).messages == []
            await world.sleep(10)


@pytest.mark.behaviour("GW-50")
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_broker_killed_and_back_leaves_messages_with_the_push_consumer_that_works_on_them(
    orbitmq_world: World, in_order: bool
) -> None:
    world = orbitmq_world
    await make_group(world, in_order=in_order)
    received = await works_on(world, MASTER, b"one", b"two")
    world.crash(MASTER)
    await world.sleep(25)
    await world.start_broker(MASTER)
    async with client_of(world, MASTER) as back:
        await back.start()
        await nothing_for_others(world, MASTER, back, 200)
        answer = await back.ack(received.handle(0), received.handle(1))
        assert answer.status.code == Code.OK, answer
        await world.sleep(100)
        assert (await back.receive()).messages == []


@pytest.mark.behaviour("GW-50")
@pytest.mark.parametrize("in_order", [False, True])
async def test_messages_of_a_client_that_does_not_come_back_go_to_others(
    orbitmq_world: World, in_order: bool
) -> None:
    world = orbitmq_world
    await make_group(world, in_order=in_order)
    await works_on(world, MASTER, b"one", b"two")
    world.crash(MASTER)
    await world.sleep(5)
    await world.start_broker(MASTER)
    async with client_of(world, MASTER, client_id="other") as other:
        await other.start()
        await world.sleep(COME_BACK_MS / 1000 - 2)
        assert (await other.receive()).messages == []
        await world.sleep(4)
        assert (await other.receive(wait_ms=5000)).bodies == [b"one", b"two"]


@pytest.mark.behaviour("GW-60")
@pytest.mark.parametrize("in_order", [False, True])
async def test_messages_on_their_way_when_their_broker_was_killed_come_again_though_their_client_is_back(
    orbitmq_world: World, in_order: bool
) -> None:
    world = orbitmq_world
    await make_group(world, in_order=in_order)
    async with client_of(world, MASTER) as rpc:
        await rpc.route()
        await rpc.start()
        await rpc.sent(b"one", b"two", message_group="g")
        await world.sleep(20)
        rpc.grpc.hears = False
        receiving(rpc, renew=True, invisible_ms=0)
        await world.sleep(5)
        world.crash(MASTER)
    await world.start_broker(MASTER)
    async with client_of(world, MASTER) as back, client_of(world, MASTER, client_id="other") as other:
        await back.start()
        for _ in range(5):
            await back.heartbeat(ClientType.PUSH_CONSUMER)
            assert (await other.receive()).messages == []
            await world.sleep(10)
        again = await all_of(other, 2)
        assert sorted(each.body for each in again) == [b"one", b"two"]


@ACTING
@pytest.mark.behaviour("GW-50")
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_slave_that_acts_knows_whose_messages_are_in_work(
    orbitmq_world: World, in_order: bool
) -> None:
    world = orbitmq_world
    await make_group(world, in_order=in_order)
    received = await works_on(world, MASTER, b"one", b"two")
    world.crash(MASTER)
    await world.sleep(20)
    async with client_of(world, SLAVE) as back:
        await back.start()
        await nothing_for_others(world, SLAVE, back, 200)
        answer = await back.ack(received.handle(0), received.handle(1))
        assert answer.status.code == Code.OK, answer


@pytest.mark.behaviour("GW-31")
async def test_a_transaction_ends_after_its_broker_was_killed(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with client_of(world, MASTER) as rpc:
        await rpc.route()
        half = await rpc.begin(b"paid")
    world.crash(MASTER)
    await world.start_broker(MASTER)
    async with client_of(world, MASTER) as back:
        ended = await back.end(half)
        assert ended.status.code == Code.OK, ended
        assert (await back.receive(wait_ms=5000)).bodies == [b"paid"]
        assert (await back.end(half)).status.code == Code.INVALID_TRANSACTION_ID
