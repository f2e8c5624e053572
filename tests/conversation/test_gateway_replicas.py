"""gRPC clients at groups of a master and a slave."""

from __future__ import annotations

import pytest
from tests.conversation.grpc_rpc import RpcClient

from orbitmq.gateway.schema import QueryRouteResponse
from orbitmq.gateway.status import Code
from orbitmq.testing import World

MASTER, SLAVE = "broker-a", "broker-a-1"
ACTING = pytest.mark.orbitmq(
    replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
)


def client_of(world: World, name: str, **options: str) -> RpcClient:
    """A client that was given this broker's address."""
    return RpcClient(world.runtime, host=world.machines[name].host, **options)


def places(answer: QueryRouteResponse) -> set[tuple[str, int, str]]:
    """Broker, its id and its host."""
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
