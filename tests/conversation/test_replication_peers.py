"""The peers that may connect to the HA port."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import MASTER, SLAVE, following, ha_port, log_of, same_end, send

from orbitmq.replication.link.classic import REPORT
from orbitmq.testing import World


async def classic_slave(world: World, host: str) -> bytes:
    """The bytes that a slave of RocketMQ with an empty log gets from the HA port; none if the port
    hangs up.
    """
    machine = world.runtime.machine(host)
    got, ended = bytearray(), asyncio.Event()

    class Slave(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.extend(data)

        def connection_lost(self, exc: Exception | None) -> None:
            ended.set()

    address, _, port = world.brokers[MASTER].services.registration.ha_address.partition(":")
    transport, _ = await machine.network.connect(Slave, address, int(port))
    transport.write(REPORT.pack(0))
    await world.sleep(0.5)
    if not ended.is_set():
        transport.abort()
    return bytes(got)


@pytest.mark.behaviour("AZ-23")
@pytest.mark.orbitmq(replicas=2, settings={"haAllowedPeers": "10.0.0.0/24"})
async def test_only_the_addresses_that_are_named_get_the_log(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)
    for _ in range(3):
        assert await classic_slave(world, "10.7.7.7") == b""
    assert not [each for each in ha_port(world).connections if each.host == "10.7.7.7"]
    said = "the follower at 10.7.7.7 is cut off: its address is not in haAllowedPeers"
    assert caplog.text.count(said) == 1
    assert len(await classic_slave(world, "10.0.0.200")) > 500


@pytest.mark.behaviour("AZ-23")
@pytest.mark.orbitmq(replicas=2)
async def test_without_the_setting_everybody_may_connect(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    assert len(await classic_slave(world, "10.7.7.7")) > 500


@pytest.mark.behaviour("AZ-23")
@pytest.mark.orbitmq(replicas=2, settings={"haAllowedPeers": "10.9.9.9"})
async def test_a_slave_that_is_not_named_copies_nothing(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.sleep(3)
    assert not following(world).transferring
    assert log_of(world, SLAVE) == b""
