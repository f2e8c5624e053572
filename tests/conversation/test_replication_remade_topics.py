"""A topic that is deleted and created again: a broker that was away keeps none of the old one's messages."""

from __future__ import annotations

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, online, same_end, send, shown, store

from orbitmq import Message
from orbitmq.broker.change_feed import TOPICS
from orbitmq.errors import OrbitError
from orbitmq.testing import World
from orbitmq.wire.bodies.topic import TopicConfig

TOPIC = "again"

pytestmark = [pytest.mark.behaviour("MO-13"), pytest.mark.orbitmq(replicas=2, settings=ACTING)]

Ends = list[tuple[int, int]]


def ends(world: World, name: str, queues: int = 4) -> Ends:
    here = store(world, name)
    return [(here.min_offset(TOPIC, each), here.max_offset(TOPIC, each)) for each in range(queues)]


async def fill(world: World, count: int) -> None:
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


async def agreed(world: World) -> Ends:
    """Wait until both brokers have the same ends of the topic's queues; returns them."""
    await world.until(lambda: same_end(world) and shown(world, TOPIC) == BOTH)
    await world.sleep(1)
    assert ends(world, MASTER) == ends(world, SLAVE)
    return ends(world, MASTER)


def delete(world: World) -> None:
    world.brokers[MASTER].services.topics.delete(TOPIC)


def make(world: World, queues: int = 4) -> None:
    world.brokers[MASTER].services.topics.update(TopicConfig(TOPIC, queues, queues))


async def begun(world: World, watch: Watch, count: int = 12) -> None:
    await online(world, watch)
    make(world)
    await fill(world, count)
    assert await agreed(world) == [(0, count // 4)] * 4


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("new", [0, 1])
async def test_a_slave_that_was_away_forgets_the_topic_before(
    orbitmq_world: World, times: int, new: int
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await world.stop_broker(SLAVE)
        for _ in range(times):
            delete(world)
            await send(world, 1)
            make(world)
        await fill(world, new)
        await world.start_broker(SLAVE)
        assert sorted(await agreed(world)) == [(0, 0)] * (4 - new) + [(0, 1)] * new


async def test_a_slave_that_hears_of_both_at_once_forgets_the_topic_before(orbitmq_world: World) -> None:
    """A topic that changes twice before it is sent is sent in its last state."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        delete(world)
        make(world, queues=2)
        assert await agreed(world) == [(0, 0)] * 4
        await fill(world, 4)
        assert await agreed(world) == [(0, 2)] * 2 + [(0, 0)] * 2


async def test_a_slave_that_acts_knows_the_new_topic_as_its_master_did(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await world.stop_broker(SLAVE)
        delete(world)
        make(world)
        await fill(world, 1)
        await world.start_broker(SLAVE)
        expected = await agreed(world)
        made = world.brokers[MASTER].services.topics.get(TOPIC)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        assert world.brokers[SLAVE].services.topics.get(TOPIC) == made
        assert ends(world, SLAVE) == expected
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert await agreed(world) == expected
        assert world.brokers[MASTER].services.topics.get(TOPIC) == made


@pytest.mark.orbitmq(
    replicas=2, settings={**ACTING, "haFlowControlEnable": "true", "maxHaTransferByteInSecond": "200000"}
)
async def test_a_slave_whose_log_is_behind_has_all_of_the_new_topic(orbitmq_world: World) -> None:
    """The slave has both changes long before its log gets there, in one piece with the first new messages."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await send(world, 200, 3000)
        delete(world)
        await world.sleep(0.1)
        make(world)
        await world.sleep(0.1)
        await fill(world, 12)
        assert not same_end(world)
        assert await agreed(world) == [(0, 3)] * 4


def remove_queues(world: World, name: str) -> None:
    world.machines[name].disk.remove_tree(f"/store/{name}/consumequeue")


@pytest.mark.behaviour("ST-02")
@pytest.mark.orbitmq(replicas=1)
@pytest.mark.parametrize("made", ["before", "after", "before, with a message"])
async def test_queues_that_are_made_anew_have_nothing_of_a_deleted_topic(
    orbitmq_world: World, made: str
) -> None:
    world = orbitmq_world
    make(world)
    await fill(world, 12)
    delete(world)
    new = 0
    if made.startswith("before"):
        make(world)
        if made.endswith("message"):
            new = 1
            await fill(world, new)
    await world.stop_broker(MASTER)
    remove_queues(world, MASTER)
    await world.start_broker(MASTER)
    if made == "after":
        make(world)
    assert sorted(ends(world, MASTER)) == [(0, 0)] * (4 - new) + [(0, 1)] * new
    await fill(world, 8 - new)
    assert sum(high for _, high in ends(world, MASTER)) == 8


@pytest.mark.behaviour("ST-02")
@pytest.mark.orbitmq(replicas=1)
@pytest.mark.parametrize(
    "how", ["all tables are lost", "RocketMQ's, by a power loss", "its table's backup is older"]
)
async def test_messages_of_a_topic_that_was_lost_are_kept(orbitmq_world: World, how: str) -> None:
    world = orbitmq_world
    await send(world, 1)
    await world.sleep(10)  # the table is written without the topic, and later with it
    make(world)
    await fill(world, 12)
    if how.startswith("RocketMQ"):
        delete(world)
    await world.stop_broker(MASTER)
    remove_queues(world, MASTER)
    disk = world.machines[MASTER].disk
    if how.startswith("RocketMQ"):
        disk.remove(f"/store/{MASTER}/checkpoint")
    elif how.startswith("its"):
        disk.write_atomic(f"/store/{MASTER}/config/topics.json", b"{")
    else:
        disk.remove_tree(f"/store/{MASTER}/config")
    await world.start_broker(MASTER)
    make(world)
    assert ends(world, MASTER) == [(0, 3)] * 4


async def test_a_broker_with_an_empty_disk_gets_nothing_of_the_topic_before(orbitmq_world: World) -> None:
    """The log still has its messages, and the tables arrive while the log is copied; first at a slave, then
    at a master.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        delete(world)
        make(world)
        await fill(world, 1)
        for name in (SLAVE, MASTER):
            world.crash(name)
            world.machines[name].disk.remove_tree(f"/store/{name}")
            await world.sleep(3)
            await world.start_broker(name)
            await world.until(lambda: watch.leaders() == [MASTER])
            assert sorted(await agreed(world)) == [(0, 0)] * 3 + [(0, 1)]


@pytest.mark.parametrize("lost", ["log", "queues"])
async def test_a_slave_that_has_to_read_the_log_again_empties_the_queues_when_it_is_told_the_topic(
    orbitmq_world: World, lost: str
) -> None:
    """It learns of the new topic before it has the messages of the old one."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        delete(world)
        make(world)
        await agreed(world)
        await world.stop_broker(SLAVE)
        remove_queues(world, SLAVE)
        if lost == "log":
            world.machines[SLAVE].disk.remove_tree(f"/store/{SLAVE}/commitlog")
        await world.start_broker(SLAVE)
        assert await agreed(world) == [(0, 0)] * 4


async def test_a_topic_that_was_deleted_only_is_gone_at_a_slave_that_was_away(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await world.stop_broker(SLAVE)
        delete(world)
        await send(world, 1)
        await world.start_broker(SLAVE)
        await world.until(lambda: same_end(world) and shown(world) == BOTH)
        await world.sleep(1)
        assert store(world, SLAVE).find_topic(TOPIC) is None
        make(world)
        assert await agreed(world) == [(0, 0)] * 4


@pytest.mark.behaviour("ST-02")
@pytest.mark.orbitmq(replicas=1, settings={"flushDiskType": "ASYNC_FLUSH"})
async def test_a_topic_whose_place_is_behind_the_end_that_a_power_loss_left_keeps_its_messages(
    orbitmq_world: World,
) -> None:
    """Tables reach the disk before the log does."""
    world = orbitmq_world
    make(world)
    await fill(world, 12)
    delete(world)
    await world.sleep(2)
    await send(world, 4)
    make(world)
    await world.brokers[MASTER].services.persistence.flush(TOPICS)
    world.crash(MASTER)
    await world.start_broker(MASTER)
    made = world.brokers[MASTER].services.topics.get(TOPIC)
    assert made is not None
    assert made.made_at is not None
    assert made.made_at.log_offset > store(world, MASTER).end
    assert ends(world, MASTER) == [(0, 0)] * 4
    await fill(world, 8)
    await world.stop_broker(MASTER)
    remove_queues(world, MASTER)
    await world.start_broker(MASTER)
    assert ends(world, MASTER) == [(0, 2)] * 4


async def test_a_master_that_lost_its_log_only_empties_the_queues_of_the_topic_before(
    orbitmq_world: World,
) -> None:
    """It knows the new topic, and copies back the log, which has the messages of the old one."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        delete(world)
        make(world)
        await fill(world, 1)
        await agreed(world)
        await world.stop_broker(MASTER)
        remove_queues(world, MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}/commitlog")
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert sorted(await agreed(world)) == [(0, 0)] * 3 + [(0, 1)]


@pytest.mark.behaviour("ST-02")
@pytest.mark.orbitmq(replicas=1)
@pytest.mark.parametrize("path", ["commitlog", "/store/"])
async def test_a_topic_is_deleted_as_a_whole_though_the_disk_refuses(orbitmq_world: World, path: str) -> None:
    """Steps that fail are reported, and are done when the topic is deleted again."""
    world = orbitmq_world
    make(world)
    await fill(world, 12)
    offsets = world.brokers[MASTER].services.offsets
    offsets.commit("group", TOPIC, 0, 3)
    disk = world.machines[MASTER].disk
    disk.fail("pwrite", path, times=-1)
    async with world.admin() as admin:
        with pytest.raises(OrbitError):
            await fill(world, 1)
        try:
            await admin.topics.delete(TOPIC)
        except OrbitError:
            assert path == "/store/"
        disk.heal()
        await admin.topics.delete(TOPIC)
        assert offsets.query("group", TOPIC, 0) is None
        await world.sleep(10)
        await admin.topics.create(TOPIC, queues=4)
        assert ends(world, MASTER) == [(0, 0)] * 4
        await fill(world, 4)
        assert ends(world, MASTER) == [(0, 1)] * 4


async def test_a_slave_whose_disk_refuses_to_empty_the_queues_does_it_when_it_is_told_again(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await begun(world, watch)
        await world.stop_broker(SLAVE)
        delete(world)
        make(world)
        disk = world.machines[SLAVE].disk
        for refused in ("open_segment", "pwrite", "sync", "remove"):
            disk.fail(refused, f"consumequeue/{TOPIC}", times=-1)
        await world.start_broker(SLAVE)
        await world.sleep(5)
        disk.heal()
        world.runtime.network.cut(world.machines[SLAVE].host)
        assert await agreed(world) == [(0, 0)] * 4
