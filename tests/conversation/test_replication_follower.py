"""A slave during faults of its disk and its master, and the actions that it must not take by itself."""

from __future__ import annotations

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

from orbitmq import Message
from orbitmq.replication.link import sending
from orbitmq.store import MessageStore
from orbitmq.testing import World

FILE_BYTES = 128 * 1024
SMALL = {"mappedFileSizeCommitLog": str(FILE_BYTES)}
pytestmark = pytest.mark.orbitmq(replicas=2, settings=SMALL)


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in lines if words in line]


def delete_first_files(world: World, count: int) -> None:
    """Delete the first files of the log, as the cleaning does with old ones."""
    master = store(world, MASTER)
    for _ in range(count):
        master._files.remove_first()
    master.log.refresh_maps()


async def test_a_slave_without_a_master_says_so_once(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a slave may have a misspelt brokerName; it must not copy nothing for ever without a word."""
    world = orbitmq_world
    await world.stop_broker(SLAVE)
    await world.stop_broker(MASTER)
    await world.start_broker(SLAVE)
    await world.sleep(120)
    expected = "no name server shows a master of broker-a of cluster DefaultCluster yet: nothing is copied"
    assert warnings(caplog, "nothing is copied") == [expected]
    await world.start_broker(MASTER)
    await send(world, 3)
    await world.until(lambda: same_end(world))
    await world.stop_broker(MASTER)
    await world.sleep(120)
    assert len(warnings(caplog, "nothing is copied")) == 1


async def test_who_cannot_be_followed_is_named_also_when_nobody_is_followed_meanwhile(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A slave that begins to act may still wait for a frozen master; its warning names that master,
    not None.
    """
    world = orbitmq_world
    link, address = following(world), world.brokers[MASTER].address
    await leave(world)
    await world.sleep(1)
    world.partition(MASTER)
    link.follow(None, address)
    await world.sleep(0.1)
    link.follow(None, None)
    await world.sleep(10)
    assert warnings(caplog, "cannot follow") == [f"cannot follow {address}: no answer from {address} in time"]


async def test_a_slave_that_was_away_for_too_long_begins_anew(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 10, 3000)
    await world.until(lambda: same_end(world))
    await world.stop_broker(SLAVE)
    await send(world, 150, 3000)
    delete_first_files(world, 2)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    assert store(world, SLAVE).min_commit_log_offset == 2 * FILE_BYTES
    assert log_of(world, SLAVE) == log_of(world, MASTER)
    assert len(warnings(caplog, "set aside")) == 1
    await send(world, 10)
    await world.until(lambda: same_end(world))


async def test_a_slave_that_is_told_to_follow_nobody_while_its_log_is_flushed_asks_nobody(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 10)
    await world.until(lambda: same_end(world))
    slave, machine = following(world), world.machines[SLAVE]
    address = slave.master_address
    delay_s, machine.disk_delay_s = machine.disk_delay_s, 0.5
    await send(world, 10)
    await world.until(lambda: slave.received == store(world, MASTER).max_commit_log_offset)
    await leave(world)
    await world.sleep(0.01)
    slave.follow(None, address)
    await world.sleep(0.1)
    slave.follow(None, None)
    await world.sleep(2)
    assert warnings(caplog, "failed") == []
    machine.disk_delay_s = delay_s
    slave.follow(None, address)
    await send(world, 10)
    await world.until(lambda: same_end(world))


@pytest.mark.behaviour("HL-08")
async def test_of_a_master_of_rocketmq_it_is_only_said(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    await send(world, 10, 3000)
    await world.until(lambda: same_end(world))
    end = store(world, SLAVE).max_commit_log_offset
    await world.stop_broker(SLAVE)
    await send(world, 150, 3000)
    delete_first_files(world, 2)
    await world.start_broker(SLAVE)
    await world.sleep(60)
    assert store(world, SLAVE).max_commit_log_offset == end
    (line,) = warnings(caplog, "cannot follow")
    assert f"the log of this broker ends at {end}" in line
    assert f"begins at {2 * FILE_BYTES}: what is between is deleted" in line
    assert "move its store folder away" in line


async def test_a_new_slave_of_ours_copies_the_whole_log(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.stop_broker(SLAVE)
    await send(world, 150, 3000)
    world.machines[SLAVE].disk.remove_tree(f"/store/{SLAVE}")
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    assert store(world, SLAVE).min_commit_log_offset == 0
    assert log_of(world, SLAVE) == log_of(world, MASTER)


# Without the index: when the disk refuses its writes, the index deletes its newest file, and the log would
# get that space.
@pytest.mark.orbitmq(replicas=2, settings={**SMALL, "messageIndexEnable": "false"})
async def test_a_full_disk_stops_the_copy_and_not_the_master(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 5, 3000)
    await world.until(lambda: same_end(world))
    world.machines[SLAVE].disk.capacity_bytes = world.machines[SLAVE].disk.used_bytes()
    await send(world, 300, 3000)
    await world.sleep(30)
    assert not same_end(world)
    assert warnings(caplog, "cannot follow")
    world.machines[SLAVE].disk.capacity_bytes = 1 << 40
    await world.until(lambda: same_end(world), 120)
    assert log_of(world, SLAVE) == log_of(world, MASTER)


async def test_a_slave_delivers_nothing_by_itself(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        for _ in range(5):
            await producer.send(Message("t", b"later", delay_level=1))
        await world.until(lambda: same_end(world))
        end = store(world, SLAVE).max_commit_log_offset
        world.crash(MASTER)
        await world.sleep(60)
        assert store(world, SLAVE).received_offset == end
    await world.start_broker(MASTER)
    await world.until(lambda: same_end(world) and store(world, SLAVE).max_commit_log_offset > end)
    await world.sleep(10)
    assert log_of(world, SLAVE) == log_of(world, MASTER)


async def test_a_copy_goes_in_small_steps(orbitmq_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world, step_bytes = orbitmq_world, 128 * 1024
    monkeypatch.setattr(sending, "STEP_BYTES", step_bytes)
    await world.stop_broker(SLAVE)
    await send(world, 600, 3000)
    sizes: list[int] = []
    pace = ha_port(world).shared.pace
    plain = pace.sent

    def sent(size_bytes: int, now: float) -> None:
        sizes.append(size_bytes)
        plain(size_bytes, now)

    pace.sent = sent  # type: ignore[method-assign]
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    assert sum(sizes) >= 10 * step_bytes
    assert max(sizes) <= step_bytes


@pytest.mark.orbitmq(replicas=2, settings={**SMALL, "flushDiskType": "ASYNC_FLUSH"})
async def test_a_copy_is_brought_to_the_device_as_it_comes(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    await world.stop_broker(SLAVE)
    await send(world, 100, 3000)
    flushed: list[int] = []
    plain = MessageStore.flush

    async def flush(self: MessageStore) -> None:
        flushed.append(self.received_offset)
        await plain(self)

    monkeypatch.setattr(MessageStore, "flush", flush)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    await world.sleep(1)
    assert store(world, SLAVE).received_offset in flushed


async def test_a_slave_that_starts_first_finds_its_master_soon(orbitmq_world: World) -> None:
    world = orbitmq_world
    for name in (MASTER, SLAVE):
        await world.stop_broker(name)
    await world.start_broker(SLAVE)
    await world.sleep(5)
    assert following(world).master_address is None
    await world.start_broker(MASTER)
    assert await world.until(lambda: following(world).transferring) < 2


async def test_each_loss_of_a_master_is_one_line_and_mended_soon(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    link = following(world)
    for number in range(1, 4):
        await world.until(lambda: link.transferring)
        await world.sleep(60)
        world.disconnect(SLAVE)
        await world.until(lambda: not link.connected)
        assert await world.until(lambda: link.transferring) < 0.3
        assert len(warnings(caplog, "cannot follow")) == number


@pytest.mark.orbitmq(replicas=2, settings={**SMALL, "flushDiskType": "ASYNC_FLUSH"})
async def test_what_becomes_durable_later_is_reported_later(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    end = store(world, MASTER).max_commit_log_offset
    await world.sleep(0.02)  # no sender waits for the acknowledgement, so it is kept for later ones
    (state,) = ha_port(world).shared.replicas.states.values()
    assert state.received == end
    assert state.durable < end

    def durable() -> bool:
        (state,) = ha_port(world).shared.replicas.states.values()
        return state.durable == end

    assert 0.05 < await world.until(durable) < 1


async def test_a_slave_whose_brokerip1_is_not_its_machines_connects_all_the_same(
    orbitmq_world: World,
) -> None:
    """Behind a NAT, a broker cannot bind the address that it gives to clients."""
    world = orbitmq_world
    world.brokers[SLAVE].config.broker_ip1 = "192.0.2.1"
    world.disconnect(SLAVE)
    await world.until(lambda: not following(world).connected)
    await world.until(lambda: following(world).transferring)
    await send(world, 10)
    await world.until(lambda: same_end(world))
    (connection,) = ha_port(world).connections
    assert connection.host == world.machines[SLAVE].host
