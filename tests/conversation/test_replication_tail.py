"""A master whose log is shorter than its slave's copies the tail back before it serves."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, bodies, online, shown

from orbitmq import Message, SendStatus
from orbitmq.broker.role import Role
from orbitmq.errors import SendError
from orbitmq.testing import Keep, World
from orbitmq.wire.bodies.topic import TopicConfig

LOSES = {**ACTING, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"}
ends_of = tuple[int, int]


def ends(world: World) -> ends_of:
    first, second = (world.brokers[name].services.store.max_commit_log_offset for name in (MASTER, SLAVE))
    return first, second


async def send(world: World, first: int, count: int) -> None:
    async with world.producer() as producer:
        for number in range(first, first + count):
            await producer.send(Message("t", b"%d" % number + bytes(3000)))


async def received(world: World, count: int) -> set[int]:
    got: set[int] = set()
    async with world.consumer("everything") as consumer, asyncio.timeout(300):
        consumer.subscribe("t")
        async for message in consumer:
            got.add(int(message.body.rstrip(b"\0") or -1) if message.body != b"x" else -1)
            if len(got) == count:
                return got
    return got


@pytest.mark.parametrize("keep", list(Keep))
@pytest.mark.orbitmq(replicas=2, settings=LOSES)
async def test_what_only_the_slave_has_comes_back(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        end = ends(world)[0]
        world.crash(MASTER, keep)
        await world.sleep(3)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert ends(world)[0] >= end
        await send(world, 20, 5)
        assert await received(world, 26) == {-1, *range(25)}
        await world.until(lambda: ends(world)[0] == ends(world)[1])


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
async def test_a_master_with_an_empty_disk_gets_the_log_of_its_slave(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        await world.sleep(3)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert await received(world, 21) == {-1, *range(20)}


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-18")
@pytest.mark.behaviour("PO-22")
@pytest.mark.parametrize("stops", [0, 3])
async def test_a_master_with_an_empty_disk_gets_the_log_of_a_slave_that_comes_later(
    orbitmq_world: World, stops: int
) -> None:
    """If the master served without a log and the slave kept its own, no client could read the slave's
    messages.

    Each start of its lead must not make its empty tables the newer ones.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        await world.sleep(1)  # the slave has flushed the log, too
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        world.crash(SLAVE)
        await world.start_broker(MASTER)
        for _ in range(stops):
            await world.until(lambda: watch.leaders() == [MASTER])
            await world.stop_broker(MASTER)
            await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        assert world.brokers[MASTER].services.store.max_commit_log_offset == 0
        await world.start_broker(SLAVE)
        await world.until(lambda: ends(world)[0] == ends(world)[1] > 0)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert await received(world, 21) == {-1, *range(20)}


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-23")
async def test_the_term_of_who_begins_to_lead_is_on_its_disk_soon(orbitmq_world: World) -> None:
    """With the next change of a table would be too late: after a kill the broker would lead in an
    older term.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        await world.sleep(2)
        services = world.brokers[SLAVE].services
        topics, offsets = services.topics.version, services.offsets.version
        world.crash(SLAVE)
        await world.start_broker(SLAVE)
        services = world.brokers[SLAVE].services
        assert services.topics.version.state_version == topics.state_version
        assert services.offsets.version.state_version == offsets.state_version


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-23")
async def test_a_master_that_leads_takes_the_tables_of_a_slave_that_led_since(orbitmq_world: World) -> None:
    """The master began alone, in a lower term than the slave's, which must not keep the slave from
    following.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 5)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        for made in ("one", "two", "three"):
            await world.until(lambda: watch.leaders() == [SLAVE])
            world.brokers[SLAVE].services.topics.update(TopicConfig(made))
            await world.stop_broker(SLAVE)
            await world.start_broker(SLAVE)
        await world.stop_broker(SLAVE)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER])
        await world.start_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert "three" in world.brokers[MASTER].services.topics
        await send(world, 5, 5)
        await world.until(lambda: ends(world)[0] == ends(world)[1])


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-24")
@pytest.mark.parametrize("began_anew", [True, False])
async def test_a_master_with_an_empty_disk_leads_beside_no_slave_that_is_not_shown(
    orbitmq_world: World, began_anew: bool
) -> None:
    """An empty disk must not make it a new broker that leads at once beside its acting slave."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        await world.until(lambda: watch.leaders() == [SLAVE])
        if began_anew:
            await world.stop_name_server()
            others = asyncio.ensure_future(world.start_name_server())
        else:
            world.disconnect(SLAVE)
            others = asyncio.ensure_future(asyncio.sleep(0))
        await world.start_broker(MASTER)
        await others
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert watch.both == []
        await world.until(lambda: ends(world)[0] == ends(world)[1] > 0)
        assert await received(world, 21) == {-1, *range(20)}


@pytest.mark.orbitmq(replicas=2, settings={**ACTING, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"})
@pytest.mark.behaviour("PO-24")
async def test_a_new_group_takes_its_first_message_and_leads_at_once(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with Watch(world) as watch, world.producer(retries=0) as producer:
        for number in range(100):
            assert (await producer.send(Message("t", b"%d" % number))).status is SendStatus.SEND_OK
            await world.sleep(0.01)
        assert watch.leaders() == [MASTER]
        assert world.clock.monotonic() <= 1.5, "the start is part of it"


ALONE = {**LOSES, "totalReplicas": "2"}


def aside(world: World) -> list[str]:
    return world.machines[SLAVE].disk.list_dir(f"/store/{SLAVE}/aside")


async def alone_with_a_part(world: World, watch: Watch) -> None:
    """Cut the power of both, of the slave last; the master returns first, without its last ten messages."""
    await online(world, watch)
    await send(world, 0, 10)
    await world.brokers[MASTER].services.store.flush()
    await send(world, 10, 10)
    await world.until(lambda: ends(world)[0] == ends(world)[1])
    await world.brokers[SLAVE].services.store.flush()
    world.crash(MASTER)
    world.crash(SLAVE)
    await world.start_broker(MASTER)
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)


@pytest.mark.orbitmq(replicas=2, settings=ALONE)
@pytest.mark.behaviour("PO-25")
async def test_a_slave_keeps_its_end_for_a_master_that_came_back_alone(orbitmq_world: World) -> None:
    """The slave must not set its end aside at once, as the master copies it back a moment later."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await alone_with_a_part(world, watch)
        await world.start_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert aside(world) == []
        assert await received(world, 21) == {-1, *range(20)}
        await world.until(lambda: ends(world)[0] == ends(world)[1])


@pytest.mark.orbitmq(replicas=2, settings=ALONE)
@pytest.mark.behaviour("PO-26")
@pytest.mark.parametrize("taken", [3, 30])
async def test_two_logs_that_differ_wait_for_nobody(orbitmq_world: World, taken: int) -> None:
    """The master returned alone and took other messages, fewer or more than the slave's end holds."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await alone_with_a_part(world, watch)
        await send(world, 100, taken)
        await world.start_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        assert len(aside(world)) == 1
        assert await received(world, 11 + taken) == {-1, *range(10), *range(100, 100 + taken)}


async def restarted_after_its_slave(world: World, watch: Watch) -> None:
    """Stop the master cleanly and start it again after its slave."""
    await world.stop_broker(MASTER)
    await world.start_broker(SLAVE)
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.start_broker(MASTER)


@pytest.mark.orbitmq(replicas=2, settings=ALONE)
@pytest.mark.behaviour("PO-26")
async def test_a_master_that_went_on_keeps_its_end_when_it_returns_to_a_longer_log(
    orbitmq_world: World,
) -> None:
    """A clean restart must not lose the messages that the master has acknowledged and flushed since."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await alone_with_a_part(world, watch)
        await send(world, 100, 3)
        await world.brokers[MASTER].services.store.flush()
        await restarted_after_its_slave(world, watch)
        begin = world.clock.monotonic()
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert world.clock.monotonic() - begin < 5
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        assert len(aside(world)) == 1
        assert await received(world, 14) == {-1, *range(10), *range(100, 103)}


@pytest.mark.orbitmq(
    replicas=2,
    settings={**ALONE, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"},
)
@pytest.mark.behaviour("PO-26")
async def test_what_all_replicas_acknowledged_comes_back_to_a_master_that_delivered_since(
    orbitmq_world: World,
) -> None:
    """No sender has an acknowledgement for the master's writes without its slave; the slave's end was
    acknowledged.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 10)
        store = world.brokers[MASTER].services.store
        async with world.producer() as producer:
            await producer.send(Message("t", b"50", delay=20))
        await store.flush()
        await send(world, 10, 10)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        await world.brokers[SLAVE].services.store.flush()
        world.crash(MASTER)
        world.crash(SLAVE)
        await world.start_broker(MASTER)
        common = world.brokers[MASTER].services.store.max_commit_log_offset
        await world.sleep(30)
        assert world.brokers[MASTER].services.store.max_commit_log_offset > common, "it delivers what is due"
        await restarted_after_its_slave(world, watch)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        assert await received(world, 22) == {-1, *range(20), 50}


async def keeps_all_behind_a_new_name_server(world: World) -> None:
    """Start the lost master with a name server under load; its acknowledged messages, and the first 20, must
    remain.
    """
    await world.stop_name_server()
    starting = asyncio.gather(world.start_name_server(), world.start_broker(MASTER))
    acknowledged = set[int]()
    async with world.producer(retries=0, timeout=0.5) as producer:
        for number in range(100, 400):
            with suppress(SendError):
                if (await producer.send(Message("t", b"%d" % number))).status is SendStatus.SEND_OK:
                    acknowledged.add(number)
            await world.sleep(0.01)
    await starting
    assert acknowledged
    await world.until(lambda: ends(world)[0] == ends(world)[1])
    kept = {int(body.rstrip(b"\0")) for body in bodies(world, MASTER) if body != b"x"}
    assert {*range(20), *acknowledged} - kept == set()


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-24")
async def test_a_master_with_an_empty_disk_takes_nothing_before_its_slave_can_be_shown(
    orbitmq_world: World,
) -> None:
    """Messages on its empty log would be set aside when its slave arrives, although they were
    acknowledged.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 20)
        await world.until(lambda: ends(world)[0] == ends(world)[1])
        world.crash(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")
        await world.until(lambda: watch.leaders() == [SLAVE])
        await keeps_all_behind_a_new_name_server(world)


QUORUM = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "allAckInSyncStateSet": "true"}


@pytest.mark.orbitmq(replicas=2, settings={**LOSES, **QUORUM})
@pytest.mark.behaviour("PO-46")
async def test_a_master_that_crashed_takes_nothing_before_its_slave_can_be_shown(
    orbitmq_world: World,
) -> None:
    """The slave's own messages must not be set aside because of those that the master takes 20 ms after its
    return.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 10)
        await world.brokers[MASTER].services.store.flush()
        await send(world, 10, 10)
        world.crash(MASTER)
        await keeps_all_behind_a_new_name_server(world)
        assert aside(world) == []


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.behaviour("PO-46")
@pytest.mark.parametrize("crashed", [True, False])
async def test_a_master_whose_slave_is_gone_waits_for_it_only_behind_a_crash(
    orbitmq_world: World, *, crashed: bool
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await send(world, 0, 1)
        world.crash(SLAVE)
        if crashed:
            world.crash(MASTER)
        else:
            await world.stop_broker(MASTER)
        await world.sleep(10)
        begin = world.clock.monotonic()
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        waited = world.clock.monotonic() - begin
        assert (2.5 <= waited < 3.5) if crashed else waited < 1
