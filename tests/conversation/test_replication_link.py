"""A slave copies its master's log over the HA connection: byte for byte, through faults of network and
machines.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import MASTER, SLAVE, following, ha_port, leave, log_of, same_end, send
from tests.seeds import seeds

from orbitmq.replication.link.ha_client import NAMED_SECONDS
from orbitmq.replication.members.links import Links
from orbitmq.testing import Keep, World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

pytestmark = pytest.mark.orbitmq(replicas=2)


@pytest.mark.behaviour("PO-15")
async def test_the_slave_has_its_masters_log(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 50)
    assert await world.until(lambda: same_end(world)) < 0.1
    assert log_of(world, MASTER) == log_of(world, SLAVE)


async def test_the_slave_answers_pulls(orbitmq_world: World) -> None:
    world = orbitmq_world
    world.brokers[SLAVE].services.topics.update(TopicConfig("t"))
    await send(world, 20)
    await world.until(lambda: same_end(world))
    await world.stop_broker(MASTER)
    async with world.consumer() as consumer:
        consumer.subscribe("t")
        got = set()
        async for message in consumer:
            got.add(message.body)
            if len(got) == 20:
                break


@pytest.mark.parametrize("orbitmq_seed", seeds(6))
@pytest.mark.parametrize("keep", list(Keep))
async def test_it_goes_on_after_crashes_and_cuts(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    source = world.runtime.random
    sending = asyncio.ensure_future(send(world, 200, 3000, 0.02))
    for _ in range(4):
        await world.sleep(source.random())
        world.disconnect(SLAVE)
        await world.sleep(source.random())
        world.crash(SLAVE, keep)
        await world.start_broker(SLAVE)
    await sending
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)


async def test_the_protocol_of_rocketmq_does_the_same(orbitmq_world: World) -> None:
    world = orbitmq_world
    link = following(world)
    assert link.ha_address is not None
    ha_address = link.ha_address
    await leave(world)
    link.follow(ha_address, None)
    assert await world.until(lambda: link.transferring) < NAMED_SECONDS + 1
    await send(world, 50, 3000)
    assert await world.until(lambda: same_end(world)) < 0.2
    assert log_of(world, MASTER) == log_of(world, SLAVE)
    world.crash(MASTER)
    await world.until(lambda: not link.connected)
    await world.start_broker(MASTER)
    await send(world, 50, 3000)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)


@pytest.mark.behaviour("PO-33")
@pytest.mark.parametrize(
    ("code", "classic"),
    [
        (ResponseCode.SERVICE_NOT_AVAILABLE, False),
        (ResponseCode.SYSTEM_BUSY, False),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True),
    ],
)
async def test_only_a_master_that_knows_no_ha_info_is_followed_in_rocketmqs_protocol(
    orbitmq_world: World, code: ResponseCode, classic: bool
) -> None:
    """Seeds 2898 and 2925: an OrbitMQ master that is starting refuses the request, and must not count as
    RocketMQ's.
    """
    world = orbitmq_world
    await send(world, 10)
    await world.until(lambda: same_end(world))
    link, master = following(world), world.brokers[MASTER].address
    client = RemotingClient(world.runtime)
    refuses = True

    async def answer(_connection: ServerConnection, command: Command) -> Command:
        if refuses and command.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            return command.reply(code)
        answer = await client.request(master, Command(command.code, command.ext, body=command.body), 3000)
        return command.reply(answer.code, ext=answer.ext, body=answer.body)

    door = RemotingServer(world.runtime.machine("10.9.9.9"), answer)
    await door.start("10.9.9.9", 10911)
    ha_address = link.ha_address
    await leave(world)
    link.follow(ha_address, "10.9.9.9:10911")
    await world.sleep(5)
    assert link.transferring is classic
    assert link.classic_master == ("10.9.9.9:10911" if classic else None)
    if not classic:
        refuses = False
        await world.until(lambda: link.transferring)
        assert link.classic_master is None
    link.follow(None, None)
    await door.stop()
    await client.close()


@pytest.mark.behaviour("PO-33")
async def test_a_member_of_ours_is_known_by_its_id_and_one_of_rocketmq_by_its_host(
    orbitmq_world: World,
) -> None:
    """Two brokers may share a host, and a request by host could reach the one whose link is not up yet."""
    world = orbitmq_world
    await send(world, 10)
    await world.until(lambda: same_end(world))
    port, link, host = ha_port(world), following(world), world.machines[SLAVE].host
    config = world.brokers[MASTER].services.config
    links = Links(world.clock, config, port, following(world, MASTER), port.shared.peers)
    [slave] = port.shared.peers.links
    assert links.copies(slave.broker_id, host)
    assert not links.copies(slave.broker_id + 1, host)
    # After the link is gone, the rest of its connection is not the member.
    port.shared.peers.closed(slave)
    assert port.connections
    assert not links.copies(slave.broker_id, host)
    ha_address = link.ha_address
    await leave(world)
    link.follow(ha_address, None)
    await world.until(lambda: link.transferring)
    assert links.copies(slave.broker_id, host)
    assert not links.copies(slave.broker_id, "10.0.0.99")
