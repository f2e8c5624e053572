"""Broker groups of three: the log and tables of the second slave, and the broker that acts after the
first.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conversation.test_replication_escape import put, stored
from tests.conversation.test_replication_members import SECOND_SLAVE, launch, registered
from tests.replicas import ACTING, ESCAPING, MASTER, OTHER, SLAVE, Watch, bodies, send, store

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
    """Crash the master, which loses its unflushed writes or its whole disk."""
    world.crash(MASTER)
    if disk == "lost":
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")


async def send_without_the_first_slave(world: World, topic: str, count: int) -> set[bytes]:
    """Send messages that the first slave does not get; returns the acknowledged bodies."""
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
@pytest.mark.behaviour("PO-39")
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


# -- the tables -----------------------------------------------------------------------------------------


@pytest.mark.orbitmq(replicas=3, settings=STRICT)
@pytest.mark.behaviour("PO-40")
async def test_a_new_disk_gets_topics_and_offsets_that_only_a_slave_has_that_did_not_act(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        await send(world, 3)
        world.brokers[MASTER].services.offsets.commit("g", "t", 0, 2)
        await world.sleep(3)
        acknowledged = await send_without_the_first_slave(world, "fresh", 20)
        for topic, offset in (("t", 1), ("fresh", 3)):
            world.brokers[MASTER].services.offsets.commit("g", topic, 0, offset)
        await world.sleep(1)
        lose(world, "lost")
        world.heal()
        await world.until(lambda: watch.leaders() == [SLAVE], 30)
        assert world.brokers[SLAVE].services.topics.get("fresh") is None
        term = world.brokers[SLAVE].services.topics.version.state_version
        await world.sleep(5)
        await launch(world, MASTER)
        await world.until(lambda: watch.leaders() == [MASTER], 20)
        await world.sleep(10)
        for name in ALL:
            services = world.brokers[name].services
            assert services.topics.get("fresh") is not None, name
            assert acknowledged <= bodies(world, name, "fresh")
            assert services.offsets.query("g", "fresh", 0) == 3, name
            assert services.offsets.query("g", "t", 0) == 2, "who acted knows better what both know"
            assert services.topics.version.state_version == term + 1


# -- the broker that acts -------------------------------------------------------------------------------


def cut_from_the_name_server(world: World, name: str) -> None:
    """Cut the master off: the name server drops it at once, and it may lead for some seconds more."""
    world.disconnect(name)
    hosts = [world.machines[each].host for each in ("nameserver", name)]
    world.runtime.network.partition(hosts[:1], hosts[1:])


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("MB-12")
@pytest.mark.parametrize("master", ["killed", "stopped"])
async def test_two_slaves_do_not_act_at_once(orbitmq_world: World, master: str) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        if master == "killed":
            world.crash(MASTER)
        else:
            await world.stop_broker(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        await world.sleep(8)
        cut_from_the_name_server(world, SLAVE)
        begin = world.clock.monotonic()
        await world.until(lambda: watch.leaders() == [SECOND_SLAVE])
        assert world.clock.monotonic() - begin < 5
        world.heal()
        await world.until(lambda: watch.leaders() == [SLAVE])
        await world.sleep(10)
        assert watch.leaders() == [SLAVE]
        assert watch.both == []


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("PO-21")
@pytest.mark.parametrize("shown", ["soon", "later"])
async def test_a_master_returns_while_the_name_server_shows_one_of_two_slaves(
    orbitmq_world: World, shown: str
) -> None:
    """Seed 1838: the slave that is not shown acts; the master takes its tables before it leads."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        await world.stop_broker(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        await world.sleep(8)
        cut_from_the_name_server(world, SLAVE)
        world.brokers[SLAVE].services.offsets.commit("g", "t", 0, 1234)
        begin = world.clock.monotonic()
        await launch(world, MASTER)
        if shown == "soon":
            await world.sleep(3)
            world.heal()
        await world.until(lambda: watch.leaders() == [MASTER], 15)
        took_s = world.clock.monotonic() - begin
        assert took_s < 4 if shown == "soon" else took_s > 5
        assert world.brokers[MASTER].services.offsets.query("g", "t", 0) == 1234
        world.heal()
        await world.sleep(10)
        assert watch.leaders() == [MASTER]
        assert watch.both == []


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("MB-12")
@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_slave_acts_soon_after_an_acting_one_that_is_gone(orbitmq_world: World, end: str) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        await world.sleep(8)
        begin = world.clock.monotonic()
        if end == "killed":
            world.crash(SLAVE)
        else:
            await world.stop_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [SECOND_SLAVE])
        assert world.clock.monotonic() - begin < 1.5
        assert watch.both == []


# -- the state of the next acting slave -----------------------------------------------------------------


def times_stored(world: World, *names: str) -> Counter[int]:
    """How many messages were stored once, how many twice, and so on."""
    found = Counter(record.body for name in names for record in stored(world.brokers[name], "orders"))
    return Counter(found.values())


@pytest.mark.orbitmq(brokers=2, replicas=3, settings=ESCAPING)
@pytest.mark.behaviour("PO-41")
@pytest.mark.parametrize("how", ["the first stops", "the first comes back"])
async def test_a_slave_that_acts_next_repeats_nothing(orbitmq_world: World, how: str) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await world.until(lambda: set(watch.leaders()) == {MASTER, OTHER})
        await world.until(lambda: len(world._cluster._name_server.routes.members()) == 6)
        for name in (MASTER, OTHER):
            world.brokers[name].services.topics.create_if_absent("orders", 4)
        await world.sleep(5)
        put(world, "orders", 50, level=3)  # 10 s
        await world.sleep(2)
        first, second = SLAVE, SECOND_SLAVE
        if how == "the first comes back":
            world.crash(SLAVE)
            first, second = SECOND_SLAVE, SLAVE
        world.crash(MASTER)
        await world.until(lambda: first in watch.leaders(), 30)
        world.brokers[first].services.offsets.commit("g", "orders", 0, 1234)
        await world.sleep(20)
        assert times_stored(world, OTHER) == {1: 50}
        if how == "the first stops":
            await world.stop_broker(first)
        else:
            await launch(world, second)
        await world.until(lambda: second in watch.leaders(), 30)
        assert world.brokers[second].services.offsets.query("g", "orders", 0) == 1234
        await world.sleep(20)
        assert times_stored(world, OTHER) == {1: 50}
        await launch(world, MASTER)
        await world.until(lambda: MASTER in watch.leaders(), 30)
        assert world.brokers[MASTER].services.offsets.query("g", "orders", 0) == 1234
        await world.sleep(20)
        assert times_stored(world, OTHER, MASTER) == {1: 50}


@pytest.mark.orbitmq(replicas=3, settings=ACTING)
@pytest.mark.behaviour("PO-41")
async def test_a_slave_that_does_not_answer_holds_up_the_next_one_for_a_moment_only(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await all_online(world, watch)
        hosts = [world.machines[name].host for name in (SLAVE, SECOND_SLAVE)]
        world.runtime.network.partition(hosts[:1], hosts[1:])
        begin = world.clock.monotonic()
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        assert world.clock.monotonic() - begin < 0.5
