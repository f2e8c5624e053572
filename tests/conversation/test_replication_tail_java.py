"""A master whose log is shorter than that of a slave of RocketMQ copies the tail back before it serves."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.java_slave import JavaLog, JavaSlave, java_slave
from tests.replicas import MASTER, log_of, send, store

from orbitmq.broker.role import Role
from orbitmq.testing import Keep, World
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

FILE_BYTES = 128 * 1024
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    # Members are found by name, since the slave registers no topics.
    "compatibleWithOldNameSrv": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "60000",
    "mappedFileSizeCommitLog": str(FILE_BYTES),
}
pytestmark = [pytest.mark.orbitmq(replicas=1, settings=SETTINGS), pytest.mark.behaviour("PO-29")]


async def lost(world: World, kept: int, more: int) -> JavaLog:
    """Cut the master's power, which loses its last ``more`` messages; returns the log that its slave copied
    before.
    """
    await send(world, kept, 3000)
    await store(world, MASTER).flush()
    await send(world, more, 3000)
    log = JavaLog(log_of(world, MASTER), FILE_BYTES)
    world.crash(MASTER, Keep.NOTHING)
    return log


def empty_disk(world: World) -> None:
    world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}")


async def returned(world: World, limit_s: float = 40) -> float:
    """Start the master; returns the seconds until it takes messages."""
    await world.sleep(3)
    begun = world.clock.monotonic()
    await world._cluster._launch(MASTER)
    services = world.brokers[MASTER].services
    await world.until(lambda: services.role.role in (Role.FENCED, Role.MASTER), limit_s)
    return world.clock.monotonic() - begun


def set_aside(world: World) -> list[bytes]:
    files, folder = world.machines[MASTER].disk, f"/store/{MASTER}/aside"
    return [files.read_bytes(f"{folder}/{name}") for name in files.list_dir(folder)]


def readable(world: World) -> int:
    """The number of messages of topic t in its queues."""
    log = store(world, MASTER)
    return sum(log.max_offset("t", queue) - log.min_offset("t", queue) for queue in range(4))


async def takes_messages(world: World, slave: JavaSlave) -> None:
    slave.active = False
    await world.until(lambda: world.brokers[MASTER].services.role.role is Role.MASTER)
    await send(world, 1)


@pytest.mark.parametrize("more", [1, 100])
async def test_the_end_that_only_the_slave_has_comes_back(orbitmq_world: World, more: int) -> None:
    world = orbitmq_world
    log = await lost(world, 30, more)
    async with java_slave(world, log) as slave:
        await returned(world)
        assert log_of(world, MASTER) == log.data
        assert set_aside(world) == []
        assert 0 < slave.reports[0] < log.end
        await takes_messages(world, slave)


@pytest.mark.parametrize("deleted", [0, 2])
async def test_an_empty_disk_gets_all_files_that_the_slave_has(orbitmq_world: World, deleted: int) -> None:
    """A slave of RocketMQ sends only its last file to a peer that reports 0."""
    world = orbitmq_world
    log = await lost(world, 0, 150)
    empty_disk(world)
    assert log.end > 3 * FILE_BYTES
    log = JavaLog(log.data[deleted * FILE_BYTES :], FILE_BYTES, deleted * FILE_BYTES)
    async with java_slave(world, log) as slave:
        slave.topics = {"t": TopicConfig("t", 4, 4)}
        await returned(world)
        assert store(world, MASTER).min_commit_log_offset == log.first
        assert log_of(world, MASTER) == log.data
        assert readable(world) == sum(1 for _ in log.records())
        # Without the topic, the slave would delete its own when it follows again.
        assert "t" in world.brokers[MASTER].services.topics
        await takes_messages(world, slave)


async def test_a_log_that_ends_within_a_record_is_copied_up_to_that(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    log = await lost(world, 30, 10)
    whole = log.end - len(list(log.records())[-1])
    log.data = log.data[:-100]
    async with java_slave(world, log) as slave:
        assert await returned(world) < 15
        assert log_of(world, MASTER)[: len(log.data)] == log.data[:whole]
        assert caplog.text.count("within a record") == 1
        await takes_messages(world, slave)


async def test_what_the_slave_does_not_have_is_set_aside(orbitmq_world: World) -> None:
    """The master returned alone without its end and took other messages: the longer log counts."""
    world = orbitmq_world
    log = await lost(world, 20, 20)
    await world._cluster._launch(MASTER)
    await world.until(lambda: world.brokers[MASTER].services.role.role is Role.MASTER, 40)
    common = store(world, MASTER).max_commit_log_offset
    await send(world, 3, 100)
    own = log_of(world, MASTER)[common:]
    await world.stop_broker(MASTER)
    async with java_slave(world, log):
        await returned(world)
        assert set_aside(world) == [own]
        assert log_of(world, MASTER) == log.data


async def told(world: World, slave: JavaSlave, code: int) -> ResponseCode:
    """The master's response code when a slave requests a table."""
    answer = await slave.client.request(world.brokers[MASTER].address, Command(code), 3000)
    assert answer.code == ResponseCode.SUCCESS or "disk may have been lost" in (answer.remark or "")
    return ResponseCode(answer.code)


@pytest.mark.behaviour("PO-30")
async def test_a_master_with_a_new_disk_tells_no_empty_tables(orbitmq_world: World) -> None:
    """With empty tables the slave would delete its topics and groups, and restart its timers."""
    world = orbitmq_world
    log = await lost(world, 0, 150)
    empty_disk(world)
    codes = (21, 43, 45, 60, 61, 201, 402)
    async with java_slave(world, log) as slave:
        slave.topics = {"t": TopicConfig("t", 4, 4)}
        await world.sleep(3)
        begun = asyncio.ensure_future(world._cluster._launch(MASTER))
        await world.until(lambda: MASTER in world.brokers and world.brokers[MASTER]._services is not None)
        role = world.brokers[MASTER].services.role
        answers: dict[bool, set[ResponseCode]] = {True: set(), False: set()}
        while role.role is Role.PRE_ONLINE or not begun.done():
            for code in codes:
                isolated = role.role is Role.PRE_ONLINE
                answer = await told(world, slave, code)
                if isolated == (role.role is Role.PRE_ONLINE):
                    answers[isolated].add(answer)
            await world.sleep(0.005)
        assert answers[True] == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert log_of(world, MASTER) == log.data
        assert {await told(world, slave, code) for code in codes} == {ResponseCode.SUCCESS}
        assert "t" in world.brokers[MASTER].services.topics


async def lost_and_alone(world: World) -> JavaLog:
    """Replace the master's disk, and let it serve before its slave arrives."""
    log = await lost(world, 0, 150)
    empty_disk(world)
    await returned(world)
    await world.until(lambda: world.brokers[MASTER].services.role.role is Role.MASTER)
    return log


ASKED = (21, 43, 45, 60, 61, 201, 402)


@pytest.mark.behaviour("PO-30")
async def test_a_slave_that_comes_after_a_master_with_a_new_disk_gives_it_all_back(
    orbitmq_world: World,
) -> None:
    """The master serves already, and must not send it empty tables."""
    world = orbitmq_world
    log = await lost_and_alone(world)
    role = world.brokers[MASTER].services.role
    async with java_slave(world, log) as slave:
        slave.topics = {"t": TopicConfig("t", 4, 4)}
        answers, limit_s = set(), world.clock.monotonic() + 40
        while log_of(world, MASTER) != log.data or role.role is Role.PRE_ONLINE:
            assert world.clock.monotonic() < limit_s
            answers |= {await told(world, slave, code) for code in ASKED}
            await world.sleep(0.005)
        # Until a name server shows the slave, no broker can know of it.
        assert "t" in world.brokers[MASTER].services.topics
        assert ResponseCode.SERVICE_NOT_AVAILABLE in answers
        assert {await told(world, slave, code) for code in ASKED} == {ResponseCode.SUCCESS}


@pytest.mark.behaviour("PO-30")
async def test_a_slave_with_another_log_keeps_its_tables(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave arrives after the master has taken messages: nothing can be copied back."""
    world = orbitmq_world
    log = await lost_and_alone(world)
    await send(world, 1)
    async with java_slave(world, log) as slave:
        await world.sleep(3)
        for _ in range(10):
            assert {await told(world, slave, code) for code in ASKED} == {ResponseCode.SERVICE_NOT_AVAILABLE}
            await world.sleep(1)
        assert caplog.text.count("has another log than this master") == 1
        # As the log line says: its store folder is moved away, and it starts again with OrbitMQ's log.
        slave.log = JavaLog(log_of(world, MASTER), FILE_BYTES)
        await world.sleep(2)
        assert {await told(world, slave, code) for code in ASKED} == {ResponseCode.SUCCESS}
        assert len(caplog.records) < 50


@pytest.mark.behaviour("PO-30")
async def test_a_new_slave_of_a_new_master_is_told_its_tables(orbitmq_world: World) -> None:
    world = orbitmq_world
    await lost_and_alone(world)
    assert not world.brokers[MASTER].services.role.lacks_tables(), "also to an administrator"
    async with java_slave(world, None) as slave:
        await world.sleep(3)
        assert {await told(world, slave, code) for code in ASKED} == {ResponseCode.SUCCESS}


@pytest.mark.behaviour("PO-30")
async def test_a_master_that_has_its_log_tells_its_tables_before_it_serves(orbitmq_world: World) -> None:
    world = orbitmq_world
    log = await lost(world, 30, 10)
    async with java_slave(world, log) as slave:
        await world.sleep(3)
        slave.silent.add(RequestCode.GET_BROKER_RUNTIME_INFO)  # the slave stays isolated for some seconds
        begun = asyncio.ensure_future(world._cluster._launch(MASTER))
        await world.until(lambda: MASTER in world.brokers and world.brokers[MASTER].doors.router is not None)
        assert world.brokers[MASTER].services.role.role is Role.PRE_ONLINE
        assert await told(world, slave, RequestCode.GET_ALL_TOPIC_CONFIG) is ResponseCode.SUCCESS
        await begun


@pytest.mark.parametrize(
    "code",
    [RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO],
)
@pytest.mark.parametrize("silent", [True, False])
async def test_a_slave_that_does_not_tell_changes_no_log_and_is_not_waited_for_longer(
    orbitmq_world: World, code: RequestCode, silent: bool
) -> None:
    """The limits of a step stay: 5 s without a byte, a second without a response, a pause of a second; three
    tries.
    """
    world = orbitmq_world
    log = await lost(world, 30, 10)
    async with java_slave(world, log) as slave:
        if silent:
            slave.silent.add(code)
        else:
            slave.refusals[code] = ResponseCode.SYSTEM_BUSY
        assert await returned(world) < 3 * (5 + 1) + 3 * (3.3 + 1) + 3
        kept = log_of(world, MASTER)
        assert kept
        assert kept == log.data[: len(kept)]
        assert set_aside(world) == []
