"""The HA port with a slave of RocketMQ, and OrbitMQ's slave with a master of RocketMQ, byte by byte."""

from __future__ import annotations

import asyncio
import logging
from struct import pack, unpack_from
from typing import Any

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
from orbitmq.message.record import is_blank
from orbitmq.testing import World
from orbitmq.transport.address import parse_address

FILE_BYTES = 128 * 1024
pytestmark = pytest.mark.orbitmq(settings={"mappedFileSizeCommitLog": str(FILE_BYTES)})
with_slave = pytest.mark.orbitmq(replicas=2, settings={"mappedFileSizeCommitLog": str(FILE_BYTES)})


class Peer(asyncio.Protocol):
    """A slave of RocketMQ, or a master, without a store."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.transport: Any = None
        self.got = bytearray()
        self.times: list[float] = []
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.times.append(self._clock.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def report(self, end: int) -> None:
        self.transport.write(pack(">q", end))

    def reports(self) -> list[int]:
        return [unpack_from(">q", self.got, at)[0] for at in range(0, len(self.got) - 7, 8)]

    def frames(self) -> list[tuple[int, bytes]]:
        """The whole frames received: offset and bytes."""
        found, at = [], 0
        while at + 12 <= len(self.got):
            offset, size = unpack_from(">qi", self.got, at)
            if at + 12 + size > len(self.got):
                break
            found.append((offset, bytes(self.got[at + 12 : at + 12 + size])))
            at += 12 + size
        return found


async def slave(world: World, of: str = MASTER) -> Peer:
    peer = Peer(world.clock)
    host, port = parse_address(world.brokers[of].services.registration.ha_address)
    await world.runtime.network.connect(lambda: peer, host, port)
    return peer


# -- OrbitMQ's master ----------------------------------------------------------------------------------


@pytest.mark.behaviour("HL-01")
async def test_nothing_is_sent_before_the_first_report(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    peer = await slave(world)
    await world.sleep(15)
    assert peer.got == b""


@pytest.mark.behaviour("HL-02")
async def test_a_report_of_nothing_begins_at_the_last_file(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 150, 3000)
    peer = await slave(world)
    peer.report(0)
    await world.sleep(1)
    end = store(world, MASTER).max_commit_log_offset
    begin = end - end % FILE_BYTES
    assert begin > 0
    assert peer.frames()[0][0] == begin
    assert b"".join(data for _, data in peer.frames()) == log_of(world, MASTER)[begin:]


@pytest.mark.behaviour("HL-03")
async def test_no_frame_crosses_a_file_and_the_blank_is_part_of_the_bytes(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 150, 3000)
    log = log_of(world, MASTER)
    peer = await slave(world)
    peer.report(100)
    await world.sleep(1)
    frames = peer.frames()
    at = 100
    for offset, data in frames:
        assert offset == at
        assert 0 < len(data) <= 32_768
        assert offset // FILE_BYTES == (offset + len(data) - 1) // FILE_BYTES
        at += len(data)
    assert b"".join(data for _, data in frames) == log[100:]
    last = next(at for at in range(FILE_BYTES - 4000, FILE_BYTES) if is_blank(log, at))
    assert unpack_from(">i", log, last)[0] == FILE_BYTES - last


@pytest.mark.orbitmq(settings={"mappedFileSizeCommitLog": str(FILE_BYTES), "haTransferBatchSize": "2000"})
async def test_a_frame_has_at_most_hatransferbatchsize_bytes(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 10, 3000)
    peer = await slave(world)
    peer.report(0)
    await world.sleep(1)
    assert max(len(data) for _, data in peer.frames()) == 2000
    assert b"".join(data for _, data in peer.frames()) == log_of(world, MASTER)


@pytest.mark.behaviour("HL-11")
async def test_pieces_are_sent_before_they_are_flushed(orbitmq_world: World) -> None:
    world = orbitmq_world
    peer = await slave(world)
    peer.report(0)
    await send(world, 1)
    end = store(world, MASTER).max_commit_log_offset
    peer.report(end)
    world.machines[MASTER].disk.fail("sync")
    async with world.producer(retries=0, timeout=0.5) as producer:
        sending = asyncio.ensure_future(producer.send(Message("t", b"never acknowledged")))
        await world.sleep(0.3)
        assert b"never acknowledged" in bytes(peer.got)
        await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(sending.exception(), Exception)


@pytest.mark.behaviour("HL-04")
async def test_a_silent_master_shows_every_five_seconds_where_it_is(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 3)
    end = store(world, MASTER).max_commit_log_offset
    peer = await slave(world)
    for _ in range(8):
        peer.report(end)
        await world.sleep(4)
    assert set(peer.frames()) == {(end, b"")}
    assert 4 <= len(peer.frames()) <= 6
    pauses = [later - earlier for earlier, later in zip(peer.times, peer.times[1:], strict=False)]
    assert all(pause < 0.01 or 5 <= pause <= 6.5 for pause in pauses)


@pytest.mark.behaviour("HL-08")
async def test_a_slave_behind_the_first_file_is_told_off(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 150, 3000)
    master = store(world, MASTER)
    master._files.remove_first()  # as the cleaning of the log does
    peer = await slave(world)
    peer.report(100)
    await world.until(lambda: peer.closed)
    (line,) = [r.getMessage() for r in caplog.records if "is cut off" in r.getMessage()]
    assert f"the slave's log ends at 100, the master's begins at {FILE_BYTES}" in line
    assert "empty its store folder" in line


@pytest.mark.behaviour("HL-12")
async def test_a_slave_that_is_too_slow_for_the_cleaning_is_cut_off(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    peer = await slave(world)
    peer.report(0)
    await send(world, 1)
    peer.transport.pause_reading()
    await send(world, 400, 3000)
    (connection,) = ha_port(world).connections
    assert connection.sender is not None
    while store(world, MASTER).min_commit_log_offset <= connection.sender.cursor.position:
        store(world, MASTER)._files.remove_first()
    await world.until(lambda: peer.closed)
    assert any("the slave was too slow" in record.getMessage() for record in caplog.records)


async def test_a_follower_of_a_log_that_is_cut_is_cut_off_at_once(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    peer = await slave(world)
    peer.report(0)
    await send(world, 10)
    log = store(world, MASTER)
    await world.sleep(1)  # the slave has the whole log
    await log.truncate((await log.raw.record_starts(0, log.end))[-1])
    await send(world, 10)
    await world.until(lambda: peer.closed)
    assert any("the master's log became shorter" in record.getMessage() for record in caplog.records)


@pytest.mark.orbitmq(
    settings={
        "mappedFileSizeCommitLog": str(FILE_BYTES),
        "haFlowControlEnable": "true",
        "maxHaTransferByteInSecond": "50000",
    }
)
async def test_flow_control_limits_the_bytes_of_a_second(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 100, 3000)
    end = store(world, MASTER).max_commit_log_offset
    peer = await slave(world)
    peer.report(1)
    begin = world.clock.monotonic()
    await world.until(lambda: peer.frames() and peer.frames()[-1][0] + len(peer.frames()[-1][1]) == end)
    took = world.clock.monotonic() - begin
    assert end / 50_000 - 2 < took < end / 50_000 + 2


@with_slave
async def test_a_slave_is_copied_as_a_master_is(orbitmq_world: World) -> None:
    """The HA port serves in every role: a returning master copies from the slave that acted for it."""
    world = orbitmq_world
    peer = await slave(world, SLAVE)
    peer.report(0)
    await send(world, 20, 3000)
    await world.until(lambda: same_end(world))
    await world.sleep(0.1)
    assert b"".join(data for _, data in peer.frames()) == log_of(world, MASTER)


# -- OrbitMQ's slave -----------------------------------------------------------------------------------


class Master:
    """A master of RocketMQ on the machine of the name server, of which only the HA port exists."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.peers: list[Peer] = []

    async def follow(self) -> Peer:
        """Let the slave connect; returns the connection."""
        machine = self._world.machines["nameserver"]
        await machine.runtime.network.listen(self._accept, machine.host, 777)
        await leave(self._world)
        following(self._world).follow(f"{machine.host}:777", None)
        await self._world.until(lambda: self.peers and self.peers[-1].got)
        return self.peers[-1]

    def _accept(self) -> Peer:
        self.peers.append(Peer(self._world.clock))
        return self.peers[-1]


@with_slave
@pytest.mark.behaviour("HL-05")
async def test_the_first_report_is_the_exact_end_and_durable(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    end = store(world, SLAVE).max_commit_log_offset
    peer = await Master(world).follow()
    assert peer.reports() == [end]
    assert store(world, SLAVE).flushed_offset == end


@pytest.mark.behaviour("HL-05")
@pytest.mark.parametrize(
    "flush",
    [
        pytest.param(
            flush,
            marks=pytest.mark.orbitmq(
                replicas=2,
                settings={
                    "mappedFileSizeCommitLog": str(FILE_BYTES),
                    "flushDiskType": flush,
                    "flushIntervalCommitLog": "60000",
                },
            ),
        )
        for flush in ("SYNC_FLUSH", "ASYNC_FLUSH")
    ],
)
async def test_later_reports_follow_the_flush_mode(orbitmq_world: World, flush: str) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    end = store(world, SLAVE).max_commit_log_offset
    await leave(world)
    await send(world, 2, 1000)
    new = log_of(world, MASTER)[end:]
    whole = len(new) // 2
    peer = await Master(world).follow()
    cut = whole + 100
    peer.transport.write(pack(">qi", end, cut) + new[:cut])
    await world.sleep(1)
    # Bytes behind the last whole record are received, but not durable.
    assert peer.reports()[-1] == (end + cut if flush == "ASYNC_FLUSH" else end + whole)
    assert (store(world, SLAVE).flushed_offset == end) == (flush == "ASYNC_FLUSH")


@with_slave
async def test_the_rest_of_a_record_is_asked_for_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    end = store(world, SLAVE).max_commit_log_offset
    await leave(world)
    await send(world, 1, 1000)
    new = log_of(world, MASTER)[end:]
    master = Master(world)
    peer = await master.follow()
    peer.transport.write(pack(">qi", end, 500) + new[:500])
    await world.sleep(0.1)
    peer.transport.abort()
    await world.until(lambda: len(master.peers) == 2 and master.peers[1].got)
    assert master.peers[1].reports() == [end]


@with_slave
@pytest.mark.behaviour("HL-04")
async def test_a_slave_says_that_it_lives_and_notices_that_its_master_does_not(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    master = Master(world)
    peer = await master.follow()
    begin = world.clock.monotonic()
    await world.until(lambda: peer.closed, 60)
    assert 20 <= world.clock.monotonic() - begin <= 26
    assert 3 <= len(peer.reports()) <= 5
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert any("nothing came from the master for 20 s" in line for line in lines)
    await world.until(lambda: len(master.peers) == 2)
