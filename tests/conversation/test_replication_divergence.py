"""Records that a slave has and its master lacks are set aside; a broker that is no master is not followed."""

from __future__ import annotations

import errno
import logging

import pytest
from tests.replicas import (
    MASTER,
    SLAVE,
    following,
    ha_port,
    leave,
    log_of,
    same_end,
    send,
    store,
)

from orbitmq.replication.link.tail_truncation import TailTruncation
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.flush import Flusher
from orbitmq.testing import World
from orbitmq.testing.machine.memory_files import Keep

pytestmark = pytest.mark.orbitmq(
    replicas=2, settings={"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"}
)


def aside(world: World) -> dict[str, bytes]:
    files = world.machines[SLAVE].disk
    folder = f"/store/{SLAVE}/aside"
    return {name: files.read_bytes(f"{folder}/{name}") for name in files.list_dir(folder)}


async def lose_the_tail(world: World, kept: int, lost: int) -> bytes:
    """Let the master lose its last messages in a power loss; returns the part of the slave's log that it
    lost.
    """
    await send(world, kept, 3000)
    await store(world, MASTER).flush()
    end = store(world, MASTER).max_commit_log_offset
    await send(world, lost, 3000)
    await world.until(lambda: same_end(world))
    log = log_of(world, SLAVE)
    world.crash(MASTER, Keep.NOTHING)
    await world.start_broker(MASTER)
    assert store(world, MASTER).max_commit_log_offset == end
    return log[end:]


@pytest.mark.behaviour("HL-10")
@pytest.mark.parametrize("classic", [False, True])
@pytest.mark.parametrize("lost", [1, 40, 500])
async def test_what_the_master_lost_is_set_aside(
    orbitmq_world: World,
    lost: int,
    classic: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = orbitmq_world
    if classic:
        # A broker of RocketMQ does not name another protocol.
        monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    tail = await lose_the_tail(world, 30, lost)
    await world.until(lambda: same_end(world))
    assert list(aside(world).values()) == [tail]
    (line,) = [r.getMessage() for r in caplog.records if "set aside" in r.getMessage()]
    assert f"{len(log_of(world, MASTER))} to {len(log_of(world, MASTER)) + len(tail)}" in line
    await send(world, 30, 3000)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)


@pytest.mark.behaviour("HL-10")
@pytest.mark.parametrize("fault", ["flush", "copy", "cut"])
async def test_a_tail_that_cannot_be_cut_off_leaves_no_copies(orbitmq_world: World, fault: str) -> None:
    """The link is tried again every 5 s; each try must not leave a copy of the tail on the disk."""
    world = orbitmq_world
    await send(world, 30, 3000)
    await store(world, MASTER).flush()
    await send(world, 300, 3000)
    await world.until(lambda: same_end(world))
    disk = world.machines[SLAVE].disk
    if fault == "flush":
        disk.fail("sync", "commitlog", error=errno.EIO, times=1)
    elif fault == "copy":
        disk.fail("pwrite", "aside", error=errno.ENOSPC, times=-1)
    else:
        disk.fail("write_atomic", "checkpoint", error=errno.EIO, times=-1)
    world.crash(MASTER, Keep.NOTHING)
    await world.start_broker(MASTER)
    await world.sleep(120)
    assert aside(world) == {}
    assert not same_end(world)
    if fault == "flush":  # only a new start reads what the device has, which is nothing of that tail
        world.crash(SLAVE)
        await world.start_broker(SLAVE)
    disk.heal()
    await world.until(lambda: same_end(world))
    assert len(aside(world)) == (fault != "flush")


@pytest.mark.behaviour("HL-10")
async def test_what_a_cut_that_fails_half_way_removed_is_in_its_copy(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut has removed files of the log, so their only copy must not be deleted as superfluous."""
    world = orbitmq_world
    cut, sync = CommitLog.cut, Flusher.sync_now

    def fails(_self: Flusher, _segments: object) -> None:
        raise OSError(errno.EIO, "the device")

    def cut_half(self: CommitLog, to: int) -> None:
        monkeypatch.setattr(Flusher, "sync_now", fails)
        try:
            cut(self, to)
        finally:
            monkeypatch.setattr(Flusher, "sync_now", sync)

    monkeypatch.setattr(CommitLog, "cut", cut_half)
    tail = await lose_the_tail(world, 30, 300)
    await world.sleep(60)
    (kept,) = aside(world).values()
    assert kept == tail
    world.crash(SLAVE)
    monkeypatch.setattr(CommitLog, "cut", cut)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)


@pytest.mark.behaviour("QW-14")
async def test_reports_of_a_log_that_was_cut_count_no_more(orbitmq_world: World) -> None:
    """A report older than the cut may concern bytes that this broker no longer has."""
    world = orbitmq_world
    await lose_the_tail(world, 30, 10)
    replicas = ha_port(world, SLAVE).shared.replicas
    replicas.connected("a follower", 2, 0.0)
    replicas.reported("a follower", len(log_of(world, SLAVE)), 0, 0.0)
    await world.until(lambda: same_end(world))
    assert replicas.states == {}


@pytest.mark.parametrize("classic", [False, True])
async def test_it_is_noticed_when_the_master_has_written_more(
    orbitmq_world: World, classic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    if classic:
        monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    world.partition(SLAVE)
    await send(world, 10, 3000)
    world.heal()
    await world.until(lambda: same_end(world), 60)
    log = log_of(world, SLAVE)
    await store(world, SLAVE).flush()
    world.crash(SLAVE)
    world.crash(MASTER)
    await world.start_broker(MASTER)
    assert store(world, MASTER).max_commit_log_offset == 0
    await send(world, 200, 3000)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world), 60)
    assert list(aside(world).values()) == [log]
    assert log_of(world, MASTER) == log_of(world, SLAVE)


@pytest.mark.behaviour("HL-14")
@pytest.mark.parametrize("classic", [False, True])
async def test_an_emptied_master_takes_nothing_from_its_slave(
    orbitmq_world: World, classic: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    if classic:
        monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    await send(world, 20)
    await world.until(lambda: same_end(world))
    log = log_of(world, SLAVE)
    world.crash(MASTER, Keep.NOTHING)
    await world.start_broker(MASTER)
    await world.sleep(60)
    assert log_of(world, SLAVE) == log
    lines = [
        r.getMessage() for r in caplog.records if "is empty, that of this broker ends at" in r.getMessage()
    ]
    assert len(lines) == 1


async def test_the_cut_is_counted(orbitmq_world: World) -> None:
    world = orbitmq_world
    tail = await lose_the_tail(world, 3, 5)
    await world.until(lambda: same_end(world))
    cutting: TailTruncation = following(world).ours.truncation
    assert (cutting.times, cutting.size_bytes) == (1, len(tail))


@pytest.mark.behaviour("HL-09")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mappedFileSizeCommitLog": "524288"}, "mappedFileSizeCommitLog"),
        ({"brokerName": "other"}, "other"),
        ({"brokerClusterName": "other"}, "other"),
        ({"brokerId": "7"}, "brokerId 7"),
    ],
)
@pytest.mark.parametrize("classic", [False, True])
async def test_masters_of_others_are_not_followed(
    orbitmq_world: World,
    changes: dict[str, str],
    words: str,
    classic: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = orbitmq_world
    if classic:
        monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    await send(world, 3)
    await world.until(lambda: same_end(world))
    before = log_of(world, SLAVE)
    link = following(world)
    master = world.brokers[MASTER].config
    ha_address, address = link.ha_address, link.master_address
    await leave(world)
    await world.sleep(1)
    if "brokerId" in changes:
        world.brokers[SLAVE].config.broker_id = 7
    updated, _ = master.updated(changes)
    for name in ("mapped_file_size_commit_log", "broker_name", "broker_cluster_name", "broker_id"):
        setattr(master, name, getattr(updated, name))
    caplog.clear()
    link.follow(ha_address, address)
    await world.sleep(30)
    assert log_of(world, SLAVE) == before
    assert not link.transferring
    lines = [
        r.getMessage()
        for r in caplog.records
        if r.levelno >= logging.WARNING and "cannot follow" in r.message
    ]
    assert len(lines) == 1
    assert words in lines[0]
    # The master does not repeat itself either, however often the slave connects.
    assert len([r for r in caplog.records if "is cut off" in r.getMessage()]) <= 1
    assert not [r for r in caplog.records if "more within" in r.getMessage()]


async def test_a_broker_does_not_follow_itself(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    link, broker = following(world), world.brokers[SLAVE]
    await leave(world)
    link.follow(broker.services.registration.ha_address, broker.address)
    await world.sleep(30)
    assert [r.getMessage() for r in caplog.records if "this broker itself" in r.getMessage()] == [
        f"cannot follow {broker.services.registration.ha_address}: it is this broker itself"
    ]
