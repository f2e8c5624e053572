"""Groups of three: what the second slave has, and who acts after the first."""

from __future__ import annotations

import pytest
from tests.conversation.test_replication_members import SECOND_SLAVE, launch, registered
from tests.replicas import ACTING, MASTER, SLAVE, Watch, bodies, send, store

from orbitmq import Message
from orbitmq.testing import World

ALL = (MASTER, SLAVE, SECOND_SLAVE)
STRICT = {
    **ACTING,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "slaveReadEnable": "true",
    "flushDiskType": "ASYNC_FLUSH",
}


async def all_online(world: World, watch: Watch) -> None:
    await world.until(lambda: watch.leaders() == [MASTER] and registered(world, 1) and registered(world, 2))
    await world.sleep(5)


def lose(world: World, disk: str) -> None:
    """The master is gone, with what it had not flushed, or with all it had."""
    world.crash(MASTER)
    if disk == "lost":
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")


async def send_without_the_first_slave(world: World, topic: str, count: int) -> set[bytes]:
    """Send what the master and the second slave have, the first one has not; gives what was acknowledged."""
    hosts = [world.machines[name].host for name in (MASTER, SLAVE)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    await world.sleep(0.1)
    sent = {b"acknowledged %d" % number for number in range(count)}
    async with world.producer() as producer:
        for body in sent:
            await producer.send(Message(topic, body))
    return sent


# -- the log --------------------------------------------------------------------------------------------


@pytest.mark.orbitmq(replicas=3, settings={**STRICT, "flushIntervalCommitLog": "500"})
@pytest.mark.behaviour("PO-40")
@pytest.mark.parametrize("disk", ["lost", "not flushed"])
async def test_a_master_copies_back_what_only_a_slave_has_that_did_not_act(
    orbitmq_world: World, disk: str
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        await send(world, 3)
        await world.sleep(3)
        acknowledged = await send_without_the_first_slave(world, "t", 20)
        lose(world, disk)
        world.heal()
        await world.until(lambda: watch.leaders() == [SLAVE], 30)
        await world.sleep(5)
        assert not acknowledged <= bodies(world, SLAVE)
        await launch(world, MASTER)
        await world.until(lambda: watch.leaders() == [MASTER], 10)
        await send(world, 3)
        await world.sleep(10)
        assert watch.both == []
        assert len({store(world, name).max_commit_log_offset for name in ALL}) == 1
        assert all(acknowledged <= bodies(world, name) for name in ALL)
