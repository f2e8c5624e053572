"""A master that returns to a slave of RocketMQ leads when the slave reports that it is idle, with the slave's
progress.
"""

from __future__ import annotations

import pytest
from tests.conversation.java_slave import java_slave

from orbitmq.broker.delay.progress import LevelProgress
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.role import Role
from orbitmq.testing import World

MASTER = "broker-a"
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    # Members are found by name, since the slave below registers no topics.
    "compatibleWithOldNameSrv": "false",
}
pytestmark = pytest.mark.orbitmq(replicas=1, settings=SETTINGS)


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
        assert world.brokers[MASTER].part(ScheduleService).delays.place(1) == LevelProgress(3)
        slave.delivered = 5
        await world.sleep(1)
        slave.delivered, slave.active = 8, False
        await world.until(lambda: services.role.role is Role.MASTER)
        assert world.clock.monotonic() - fenced <= 3.5, "else 4.5 s after its registration"
        # There are no such messages here, so only the service's log shows the progress that it took.
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
