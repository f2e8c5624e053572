"""Quorum write over the real HA connection: a master and a slave in memory, faults of the slave, and the
results of sends.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.replicas import ACTING, MASTER, SLAVE, Watch, following, ha_port, log_of, online
from tests.seeds import seeds

from orbitmq import Message, SendStatus
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.role import Role
from orbitmq.errors import SendError
from orbitmq.message.record import iter_records
from orbitmq.replication.gate import ReplicaGate
from orbitmq.replication.replicas import EVERYTHING
from orbitmq.testing import Keep, World
from orbitmq.wire.bodies.topic import TopicConfig

STRICT = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
DEGRADING = {**STRICT, "enableAutoInSyncReplicas": "true"}
FLUSH_MODES = ("SYNC_FLUSH", "ASYNC_FLUSH")


class Sends:
    """Sends one message after the other, with one try each, and records the duration and the result
    of each.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.acknowledged: list[bytes] = []
        self.ended: list[tuple[float, float, str]] = []
        self._stopped = False

    async def run(self, pause_s: float = 0.01) -> None:
        number = 0
        async with self._world.producer(retries=0, timeout=10) as producer:
            while not self._stopped:
                body, number = b"%d" % number, number + 1
                begun = self._world.clock.monotonic()
                try:
                    result = await producer.send(Message("t", body))
                except SendError as error:
                    how = str(error.code)
                else:
                    how = result.status.name
                    if result.status is SendStatus.SEND_OK:
                        self.acknowledged.append(body)
                self.ended.append((begun, self._world.clock.monotonic() - begun, how))
                await asyncio.sleep(pause_s)

    def stop(self) -> None:
        self._stopped = True

    def since(self, when: float) -> list[tuple[float, float, str]]:
        """For each send since ``when``: seconds after ``when``, duration, result."""
        return [(begun - when, took, how) for begun, took, how in self.ended if begun + took > when]


async def in_sync(world: World) -> None:
    def both() -> bool:
        table = world.brokers[MASTER].services.store.max_commit_log_offset
        slave = world.brokers.get(SLAVE)
        return slave is not None and slave.services.store.max_commit_log_offset == table > 0

    await world.until(both, 30)


async def sending(world: World) -> tuple[Sends, asyncio.Task[None]]:
    """Start senders on an existing topic, with the slave in sync."""
    sends = Sends(world)
    task = asyncio.create_task(sends.run())
    await world.until(lambda: len(sends.acknowledged) > 20, 30)
    return sends, task


def bodies(world: World, name: str) -> set[bytes]:
    store = world.brokers[name].services.store
    data, at = b"", store.min_commit_log_offset
    while piece := store.raw.data(at, 1 << 30):
        data += piece
        at += len(piece)
    return {record.body for record in iter_records(data) if record.topic == "t"}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.orbitmq(replicas=2, settings={**STRICT, "flushDiskType": mode}))
        for mode in FLUSH_MODES
    ],
)
@pytest.mark.behaviour("QW-10")
async def test_what_is_acknowledged_is_on_both_brokers(orbitmq_world: World, mode: str) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    await asyncio.sleep(2)
    assert set(sends.acknowledged) <= bodies(world, SLAVE)
    assert max(took for _, took, _ in sends.ended[5:]) < 0.05
    sends.stop()
    await task
    assert world.brokers[MASTER].config.flush_disk_type == mode


@pytest.mark.orbitmq(replicas=2, settings=DEGRADING)
@pytest.mark.behaviour("QW-06")
async def test_a_degrading_master_hardly_notices_that_its_slave_is_killed(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    killed = world.clock.monotonic()
    world.crash(SLAVE)
    await asyncio.sleep(5)
    seen = sends.since(killed)
    assert {how for _, _, how in seen} == {"SEND_OK"}
    assert max(took for _, took, _ in seen) <= 0.2
    # When the slave is back, it counts as soon as it has caught up.
    await world.start_broker(SLAVE)
    started = world.clock.monotonic()
    await in_sync(world)
    replicated = [body for body in sends.acknowledged if body in bodies(world, SLAVE)]
    assert len(replicated) == len(sends.acknowledged)
    assert world.clock.monotonic() - started <= 1
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings=DEGRADING)
@pytest.mark.behaviour("QW-06", "QW-13")
async def test_a_degrading_master_waits_a_second_for_a_slave_that_freezes(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    frozen = world.clock.monotonic()
    world.partition(SLAVE)
    await asyncio.sleep(10)
    seen = sends.since(frozen)
    assert {how for _, _, how in seen} == {"SEND_OK"}
    assert 1.0 <= max(took for _, took, _ in seen) <= 1.5
    assert len([took for _, took, _ in seen if took > 0.1]) == 1
    thawed = world.clock.monotonic()
    world.heal()
    await in_sync(world)
    assert world.clock.monotonic() - thawed <= 30
    assert set(sends.acknowledged) <= bodies(world, SLAVE) | {sends.acknowledged[-1]}
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings=STRICT)
@pytest.mark.behaviour("QW-05", "QW-07")
async def test_a_strict_master_refuses_at_once_without_its_slave(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    killed = world.clock.monotonic()
    world.crash(SLAVE)
    await asyncio.sleep(10)
    seen = sends.since(killed)
    hows = [how for _, _, how in seen]
    assert hows.count("FLUSH_SLAVE_TIMEOUT") <= 1
    refused = [took for _, took, how in seen if how == "1"]
    assert len(refused) >= len(seen) - 2
    assert max(refused) < 0.05
    await world.start_broker(SLAVE)
    started = world.clock.monotonic()
    await world.until(lambda: sends.ended[-1][2] == "SEND_OK", 10)
    assert world.clock.monotonic() - started <= 1
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings=STRICT)
@pytest.mark.parametrize("orbitmq_seed", seeds(3))
async def test_no_acknowledged_message_is_lost_with_the_disk_of_the_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    dice = world.runtime.random
    sends, task = await sending(world)
    for _ in range(3):
        await asyncio.sleep(dice.random())
        world.disconnect(SLAVE)
        await asyncio.sleep(dice.random())
        world.crash(SLAVE, dice.choice(list(Keep)))
        await asyncio.sleep(dice.random())
        await world.start_broker(SLAVE)
        await asyncio.sleep(2 * dice.random())
    lost = set(sends.acknowledged)
    world.crash(MASTER, Keep.NOTHING)
    await asyncio.sleep(0.5)
    assert lost
    assert lost <= bodies(world, SLAVE)
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=3, settings={**STRICT, "inSyncReplicas": "3"})
@pytest.mark.behaviour("QW-02")
async def test_three_copies(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    await asyncio.sleep(1)
    acknowledged: Any = set(sends.acknowledged)
    for name in (SLAVE, "broker-a-2"):
        assert acknowledged <= bodies(world, name)
    world.crash("broker-a-2")
    # A send that is under way waits for slaveTimeout; later ones are refused.
    await world.until(lambda: sends.ended[-1][2] == "1", 5)
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings=DEGRADING)
async def test_a_full_disk_at_the_slave_stops_no_sender_of_a_degrading_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    full = world.clock.monotonic()
    world.machines[SLAVE].disk.fail("pwrite", "commitlog", times=-1)
    await asyncio.sleep(10)
    seen = sends.since(full)
    assert {how for _, _, how in seen} == {"SEND_OK"}
    assert max(took for _, took, _ in seen) <= 1.5
    world.machines[SLAVE].disk.heal()
    await asyncio.sleep(30)
    await in_sync(world)
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings=STRICT)
async def test_a_full_disk_at_the_slave_makes_a_strict_master_refuse(orbitmq_world: World) -> None:
    world = orbitmq_world
    sends, task = await sending(world)
    full = world.clock.monotonic()
    world.machines[SLAVE].disk.fail("pwrite", "commitlog", times=-1)
    await asyncio.sleep(10)
    hows = [how for begun, _, how in sends.since(full) if begun > 5]
    assert set(hows) <= {"1", "FLUSH_SLAVE_TIMEOUT"}
    world.machines[SLAVE].disk.heal()
    await world.until(lambda: sends.ended[-1][2] == "SEND_OK", 60)
    assert set(sends.acknowledged) <= bodies(world, SLAVE)
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings={**STRICT, "mappedFileSizeCommitLog": "131072"})
async def test_a_slave_whose_disk_stays_full_does_not_count_again_and_again(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave reconnects with its old log, which must not count each time and delay senders."""
    world = orbitmq_world
    sends, task = await sending(world)
    world.machines[SLAVE].disk.capacity_bytes = 1
    # Messages are sent one by one, so that none is cut at the end of the file that the disk already has.
    await world.until(lambda: "cannot follow" in caplog.text, 120)
    assert not [record for record in caplog.records if record.exc_info]
    caplog.clear()
    full = world.clock.monotonic()
    await world.sleep(60)
    assert not [line for line in caplog.messages if " in sync, " in line]
    assert not [record for record in caplog.records if record.exc_info]
    assert {how for begun, _, how in sends.since(full) if begun > 5} == {"1"}
    world.machines[SLAVE].disk.capacity_bytes = 1 << 40
    await world.until(lambda: sends.ended[-1][2] == "SEND_OK", 60)
    sends.stop()
    await task
    assert log_of(world, SLAVE) == log_of(world, MASTER)


@pytest.mark.orbitmq(replicas=2, settings=STRICT)
async def test_the_check_finds_answers_that_do_not_wait(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a gate that is always open, the tests above would find messages that only the master has."""
    world = orbitmq_world
    sends, task = await sending(world)

    def open_gate(gate: ReplicaGate) -> None:
        gate.safe, gate.refusal = EVERYTHING, None

    monkeypatch.setattr(ReplicaGate, "_take", open_gate)
    world.partition(SLAVE)
    await asyncio.sleep(5)
    assert not set(sends.acknowledged) <= bodies(world, SLAVE)
    sends.stop()
    await task


@pytest.mark.orbitmq(replicas=2, settings={**STRICT, **ACTING})
@pytest.mark.behaviour("QW-14")
async def test_a_slave_stays_in_sync_while_its_master_is_isolated(orbitmq_world: World) -> None:
    """The slave's connection lasts; with nothing written it has no reason to report again, so its report must
    be kept.

    Otherwise sends are refused for up to 5 s (haSendHeartbeatInterval).
    """
    world = orbitmq_world
    async with Watch(world) as watch, world.producer(retries=0) as producer:
        await online(world, watch)
        hosts = [world.machines[name].host for name in ("nameserver", MASTER)]
        world.runtime.network.partition(hosts[:1], hosts[1:])
        await world.until(lambda: watch.leaders() == [SLAVE])
        link = following(world).link
        begin = world.clock.monotonic()
        world.heal()
        await world.until(lambda: watch.leaders() == [MASTER])
        assert watch.since(begin, MASTER) == [Role.PRE_ONLINE, Role.MASTER]
        assert link is not None
        assert following(world).link is link
        begin = world.clock.monotonic()
        assert (await producer.send(Message("t", b"first"))).status is SendStatus.SEND_OK
        assert world.clock.monotonic() - begin <= 0.05


@pytest.mark.behaviour("MO-17")
@pytest.mark.orbitmq(replicas=2, settings=STRICT)
async def test_a_slave_whose_disk_refuses_a_topic_is_no_copy(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """If killed then, it would have the messages of a quorum without their topic."""
    world = orbitmq_world
    replicas, disk = ha_port(world).shared.replicas, world.machines[SLAVE].disk
    await world.until(lambda: replicas.in_sync == 2)
    disk.fail("pwrite", f"/store/{SLAVE}/config", times=-1)
    world.brokers[MASTER].services.topics.update(TopicConfig("new"))
    await world.until(lambda: replicas.in_sync == 1)
    for _ in range(60):
        await world.sleep(1)
        assert replicas.in_sync == 1
    said = [line for line in caplog.messages if "the disk does not keep the topics, groups" in line]
    assert len(said) == 1
    async with world.producer(retries=0) as producer:
        with pytest.raises(SendError):
            await producer.send(Message("new", b"x"))
        disk.heal()
        await world.until(lambda: replicas.in_sync == 2, 10)
        slave = world.brokers[SLAVE].services.persistence
        await world.until(lambda: slave.saved(TOPICS, "new"), 1)
        await producer.send(Message("new", b"x"))
