"""The HA port, and the slave's side of its connection, against peers that send impossible data."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import pack
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

from orbitmq.replication.link import stream
from orbitmq.replication.link.ha_port import MOST_OF_ONE
from orbitmq.replication.link.stream import FrameKind
from orbitmq.testing import World
from orbitmq.transport.address import parse_address

pytestmark = pytest.mark.orbitmq(replicas=2)


class Peer(asyncio.Protocol):
    """One end of a connection that sends what the test gives it."""

    def __init__(self, greet: Callable[[Peer], object] = lambda _peer: None) -> None:
        self._greet = greet
        self.transport: Any = None
        self.got = b""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._greet(self)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True


async def connected(world: World) -> Peer:
    peer = Peer()
    host, port = parse_address(world.brokers[MASTER].services.registration.ha_address)
    await world.runtime.network.connect(lambda: peer, host, port)
    return peer


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


BAD_HELLO = stream.frame(FrameKind.HELLO, b'{"cluster": 5}')


@pytest.mark.behaviour("HL-07")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "as the end of its log, there are bytes up to"),
        (pack(">q", -1), "reports -1"),
        (pack(">q", 2**62), "reports 4611686018427387904"),
        (pack(">qq", 500, 499), "reports 499 as the end of its log after 500"),
        (stream.MAGIC + b"\xff" * 8, "frame of kind 255"),
        (stream.MAGIC + BAD_HELLO, "its hello cannot be read"),
        (stream.MAGIC + stream.ack(0, 0), "a frame ACK before it follows"),
        (stream.MAGIC + stream.piece_header(0, 10), "a piece of its log before"),
        (stream.MAGIC + pack(">BxxxI", FrameKind.HELLO, 2**31), "a frame HELLO of 2147483648 bytes"),
    ],
)
async def test_a_bad_follower_is_closed_with_one_line(
    orbitmq_world: World, data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 20)
    await world.until(lambda: same_end(world))
    caplog.clear()
    peer = await connected(world)
    peer.transport.write(data)
    await world.until(lambda: peer.closed)
    (line,) = warnings(caplog)
    assert words in line
    replicas = ha_port(world).shared.replicas
    assert [state.replica for state in replicas.states.values()] == [1]
    assert store(world, MASTER).accepting


@pytest.mark.parametrize("data", [b"", b"\0\0\0", stream.MAGIC, stream.MAGIC + BAD_HELLO[:9]])
async def test_who_says_half_of_something_is_closed_in_time(
    orbitmq_world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    peer = await connected(world)
    peer.transport.write(data)
    assert 20 <= await world.until(lambda: peer.closed, 60) <= 26
    assert [line for line in warnings(caplog) if "not heard of for 20000 ms" in line]
    assert len(ha_port(world).shared.replicas.states) == 1


async def test_a_report_never_counts_before_bytes_were_sent(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 20)
    peer = await connected(world)
    peer.transport.write(pack(">q", 100))
    await world.sleep(1)
    peer.transport.write(pack(">q", 2**40))
    await world.until(lambda: peer.closed)
    assert len(ha_port(world).shared.replicas.states) == 1


async def test_a_thousand_idle_connections_hinder_nobody(orbitmq_world: World) -> None:
    world = orbitmq_world
    peers = [await connected(world) for _ in range(1000)]
    await send(world, 20)
    assert await world.until(lambda: same_end(world)) < 0.1
    await world.until(lambda: all(peer.closed for peer in peers), 60)
    assert len(ha_port(world).connections) == 1


@pytest.mark.behaviour("LM-03")
async def test_one_address_leaves_room_for_others(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    peers = [await connected(world) for _ in range(MOST_OF_ONE + 9)]
    await world.sleep(1)
    assert [peer.closed for peer in peers] == [False] * MOST_OF_ONE + [True] * 9
    assert [line for line in warnings(caplog) if f"has {MOST_OF_ONE} connections already" in line]
    peer = Peer()
    host, port = parse_address(world.brokers[MASTER].services.registration.ha_address)
    await world.runtime.machine("10.9.9.9").network.connect(lambda: peer, host, port)
    peers[0].transport.close()
    await world.sleep(1)
    assert not peer.closed
    assert not (await connected(world)).closed
    await send(world, 20)
    assert await world.until(lambda: same_end(world)) < 0.1


async def test_no_more_than_max_connections_are_open(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await world.until(lambda: following(world).transferring)
    monkeypatch.setattr("orbitmq.replication.link.ha_port.MAX_CONNECTIONS", 3)
    first, second, third = [await connected(world) for _ in range(3)]
    await world.until(lambda: third.closed, 1)
    assert [first.closed, second.closed] == [False, False]
    assert [line for line in warnings(caplog) if "all 3 connections are in use" in line]
    await send(world, 20)
    assert await world.until(lambda: same_end(world)) < 0.1
    first.transport.close()
    await world.sleep(1)
    fourth = await connected(world)
    await world.sleep(1)
    assert not fourth.closed, "there is room again"


# -- false masters -------------------------------------------------------------------------------------


async def follows_a_liar(world: World, data: bytes) -> list[Peer]:
    """Let the slave follow a master that sends these bytes; returns the connections that the slave made."""
    peers: list[Peer] = []

    def accept() -> Peer:
        peers.append(Peer(lambda peer: peer.transport.write(data)))
        return peers[-1]

    machine = world.machines["nameserver"]
    await machine.runtime.network.listen(accept, machine.host, 777)
    await leave(world)
    following(world).follow(f"{machine.host}:777", None)
    await world.sleep(15)
    return peers


def spoiled(log: bytes, place: int) -> bytes:
    return log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :]


@pytest.mark.behaviour("HL-06")
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda end, log: pack(">qi", end + 1, 10) + bytes(10), "this log ends at"),
        (lambda end, log: pack(">qi", end, -5), "a piece of -5 bytes"),
        (lambda end, log: pack(">qi", end, 2**31 - 1), "a piece of 2147483647 bytes"),
        (lambda end, log: pack(">qi", end, 2 << 20) + bytes(100), "crosses the border of a file"),
        (lambda end, log: pack(">qi", end, len(log)) + log, "it lies at another place"),
        (lambda end, log: pack(">qi", end, 500) + b"\xff" * 500, "is refused"),
    ],
)
async def test_a_master_that_lies_is_left(
    orbitmq_world: World, lie: Callable[[int, bytes], bytes], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    log = log_of(world, SLAVE)
    caplog.clear()
    peers = await follows_a_liar(world, lie(len(log), log))
    assert log_of(world, SLAVE) == log
    assert 2 < len(peers) < 20
    (line,) = {line for line in warnings(caplog) if "cannot follow" in line}
    assert words in line
    assert len(warnings(caplog)) <= 2


async def test_a_record_with_a_broken_body_is_refused(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    log = log_of(world, SLAVE)
    end = len(log)
    await leave(world)
    await send(world, 1)
    record = log_of(world, MASTER)[end:]
    bad = spoiled(record, record.index(bytes(50)))
    peers = await follows_a_liar(world, pack(">qi", end, len(bad)) + bad)
    assert log_of(world, SLAVE) == log
    assert len(peers) > 1
    assert any("checksum of its body" in line for line in warnings(caplog))


# -- frames of the broker's other parts ----------------------------------------------------------------


async def test_frames_keep_their_order_with_the_log(orbitmq_world: World) -> None:
    world = orbitmq_world
    heard: list[tuple[int, int]] = []
    peers, ours = ha_port(world).shared.peers, following(world).ours.peers
    await world.until(lambda: len(peers.links) == 1)
    slave = store(world, SLAVE)

    def hear(_link: object, payload: bytes) -> None:
        if payload.isdigit():
            heard.append((int(payload), slave.received_offset))

    ours.on(FrameKind.STATE, hear)
    (link,) = peers.links
    assert (link.broker_id, link.is_master) == (1, False)
    assert [(each.broker_id, each.is_master) for each in ours.links] == [(0, True)]
    for _ in range(20):
        await send(world, 3, 2000)
        link.send(FrameKind.STATE, b"%d" % store(world, MASTER).max_commit_log_offset)
    await world.until(lambda: len(heard) == 20)
    assert all(received >= end for end, received in heard)


async def test_links_come_and_go(orbitmq_world: World) -> None:
    world = orbitmq_world
    peers = ha_port(world).shared.peers
    seen: list[tuple[int, bool]] = []
    peers.on_change(lambda link, up: seen.append((link.broker_id, up)))
    await world.until(lambda: peers.links)
    seen.clear()
    world.disconnect(SLAVE)
    await world.until(lambda: not peers.links)
    await world.until(lambda: peers.links)
    assert seen == [(1, False), (1, True)]


@pytest.mark.parametrize("at", [MASTER, SLAVE])
async def test_frames_that_nobody_reads_are_bounded_and_end_the_link(
    orbitmq_world: World, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The link is opened again, and all tables are sent anew."""
    world, limit_bytes = orbitmq_world, 1 << 20
    monkeypatch.setattr(stream, "MAX_WAITING_BYTES", limit_bytes)
    peers = ha_port(world).shared.peers if at == MASTER else following(world).ours.peers
    await world.until(lambda: peers.links)
    (link,) = peers.links
    world.partition(SLAVE)
    sent_bytes = 0
    while link in peers.links:
        link.send(FrameKind.STATE, bytes(100_000))
        sent_bytes += 100_000
        assert sent_bytes < 2 * limit_bytes
        await world.sleep(0.001)
    assert sent_bytes > limit_bytes
    assert [line for line in warnings(caplog) if f"more than {limit_bytes} bytes wait for it" in line]
    world.heal()
    await world.until(lambda: peers.links)
    await send(world, 5)
    await world.until(lambda: same_end(world))


@pytest.mark.parametrize("at", [MASTER, SLAVE])
async def test_a_receiver_that_fails_ends_the_link(
    orbitmq_world: World, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    peers, other = ha_port(world).shared.peers, following(world).ours.peers
    ours, sending = (other, peers) if at == SLAVE else (peers, other)

    def fail(_link: object, _payload: bytes) -> None:
        ours.on(FrameKind.STATE, lambda _link, _payload: None)
        raise ZeroDivisionError("a mistake")

    await world.until(lambda: peers.links)
    ours.on(FrameKind.STATE, fail)
    sending.links[0].send(FrameKind.STATE, b"")
    await world.until(lambda: not peers.links)
    await world.until(lambda: peers.links)
    assert any("ZeroDivisionError" in (record.exc_text or "") for record in caplog.records)
