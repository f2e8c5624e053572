"""Two brokers have the same name and id by mistake: one leads, and the log names the one to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.cluster.brokers import make_broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedLoop, SimulatedRuntime

NAMES, ONE, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Rivals:
    """A name server, and two machines whose brokers are both broker-a with id 0."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.runtime = runtime
        self.machines = {host: runtime.machine(host) for host in (NAMES, ONE, OTHER)}

    def broker(self, host: str) -> Broker:
        config = broker_config(
            broker_ip1=host,
            namesrv_addr=f"{NAMES}:9876",
            enable_slave_acting_master=True,
            total_replicas=2,
        )
        return make_broker(self.machines[host], config)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def leading(self, host: str) -> AsyncIterator[Broker]:
        async with self.broker(host) as broker:
            await self.until(lambda: role_of(broker) is Role.MASTER)
            yield broker


@pytest.fixture
def rivals(runtime: SimulatedRuntime, orbitmq_loop: SimulatedLoop) -> Rivals:
    rivals = Rivals(runtime)
    config = NameServerConfig(support_acting_master=True)
    orbitmq_loop.enter(NameServer(rivals.machines[NAMES], config))
    return rivals


def role_of(broker: Broker) -> Role:
    return broker.services.role.role


async def test_the_second_does_not_start_and_the_first_serves_on(rivals: Rivals) -> None:
    async with rivals.leading(ONE) as first:
        with pytest.raises(StartError, match=rf"the broker at {ONE}:10911 is broker-a with brokerId 0"):
            await rivals.broker(OTHER).start()
        await asyncio.sleep(10)
        assert role_of(first) is Role.MASTER


async def test_of_two_that_meet_later_the_one_with_the_lower_term_isolates_itself(
    rivals: Rivals, caplog: pytest.LogCaptureFixture
) -> None:
    network = rivals.runtime.network
    for _ in range(2):
        async with rivals.leading(ONE):  # each time in a higher term
            await asyncio.sleep(10)
    async with rivals.leading(OTHER) as lower:
        network.partition([OTHER], [NAMES, ONE])
        await asyncio.sleep(10)
        async with rivals.leading(ONE) as higher:
            network.heal()
            await rivals.until(lambda: role_of(lower) is Role.PRE_ONLINE)
            await asyncio.sleep(30)
            assert (role_of(higher), role_of(lower)) == (Role.MASTER, Role.PRE_ONLINE)
            lines = [record.getMessage() for record in caplog.records]
            assert [line for line in lines if "two brokers are" in line] == [
                f"two brokers are broker-a id 0: {lower.address} and {higher.address}. "
                "This one isolates itself; stop one of them"
            ]
        await rivals.until(lambda: role_of(lower) is Role.MASTER)
