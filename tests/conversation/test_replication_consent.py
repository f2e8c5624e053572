"""A master that returns to a slave of RocketMQ leads when that says that it is idle, with its progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.broker.delay.progress import Place
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.role import Role
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.stats import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from orbitmq.wire.bodies.topic import DataVersion, KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.route import RegisterBrokerRequest

MASTER = "broker-a"
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    # Members are asked for by name: the slave below registers no topics.
    "compatibleWithOldNameSrv": "false",
}
pytestmark = pytest.mark.orbitmq(replicas=1, settings=SETTINGS)


class JavaSlave:
    """Acts until :attr:`active` is false; delivers meanwhile. Its version stays what it was."""

    def __init__(self, world: World) -> None:
        self.active = True
        self.delivered = 3
        self._runtime = world.runtime.machine("10.9.9.9")
        self.server = RemotingServer(self._runtime, self._answer)
        self.client = RemotingClient(self._runtime)
        self.address = "10.9.9.9:10911"

    def _answer(self, _connection: Any, command: Command) -> Command:
        version = DataVersion(0, 1, 1)
        match command.code:
            case RequestCode.EXCHANGE_BROKER_HA_INFO:
                return command.reply()
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                return command.reply(body=KVTable({"brokerActive": str(self.active).lower()}).encode())
            case RequestCode.GET_ALL_DELAY_OFFSET:
                progress = DelayOffsetSerializeWrapper(data_version=version, offset_table={1: self.delivered})
                return command.reply(body=progress.encode())
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return command.reply(body=ConsumerOffsetSerializeWrapper(data_version=version).encode())
            case RequestCode.GET_TIMER_CHECK_POINT:
                return command.reply(body=bytes(56))
            case _:
                return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    async def show(self, name_server: str) -> None:
        """Register again and again."""
        while True:
            header = RegisterBrokerRequest(
                broker_name="broker-a",
                broker_addr=self.address,
                cluster_name="DefaultCluster",
                ha_server_addr="10.9.9.9:10912",
                broker_id=1,
            )
            await self.client.request(name_server, header.command(), 3000)
            await self._runtime.clock.sleep(1)


@asynccontextmanager
async def java_slave(world: World) -> AsyncIterator[JavaSlave]:
    slave = JavaSlave(world)
    await slave.server.start("10.9.9.9", 10911)
    showing = asyncio.ensure_future(slave.show(world.name_server))
    try:
        yield slave
    finally:
        showing.cancel()
        await slave.client.close()
        await slave.server.stop()


@pytest.mark.behaviour("PO-08")
@pytest.mark.behaviour("PO-17")
async def test_it_waits_until_the_slave_is_idle_and_takes_its_last_progress(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await world.stop_broker(MASTER)
    async with java_slave(world) as slave:
        await world.sleep(2)
        begin = world.clock.monotonic()
        await world._cluster._launch(MASTER)
        services = world.brokers[MASTER].services
        await world.until(lambda: services.role.role is Role.FENCED, 60)
        fenced = world.clock.monotonic()
        assert fenced - begin < 15, "there is no link: three tries of 3.3 s"
        await world.sleep(2)
        assert world.brokers[MASTER].part(ScheduleService).delays.place(1) == Place(3)
        slave.delivered = 5
        await world.sleep(1)
        slave.delivered, slave.active = 8, False
        await world.until(lambda: services.role.role is Role.MASTER)
        assert world.clock.monotonic() - fenced <= 3.5, "else 4.5 s after its registration"
        # As there are no such messages here, the service says what it took.
        assert "progress of delay level 1 was 8" in caplog.text


async def test_a_slave_that_does_not_stop_is_waited_for_no_longer_than_anybody(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.stop_broker(MASTER)
    async with java_slave(world):
        await world.sleep(2)
        await world._cluster._launch(MASTER)
        role = world.brokers[MASTER].services.role
        await world.until(lambda: role.role is Role.FENCED, 60)
        assert 4 < await world.until(lambda: role.role is Role.MASTER) < 6
