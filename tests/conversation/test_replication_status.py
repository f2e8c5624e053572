"""Replication as administrators see it: codes 906, 907, 908 and brokerStatus."""

from __future__ import annotations

import json

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.replicas import MASTER, SLAVE, following, ha_port, leave, same_end, send, store

from orbitmq.replication.link.masters import StreamMaster
from orbitmq.testing import World
from orbitmq.wire.bodies.ha import HARuntimeInfo
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoResponse

pytestmark = pytest.mark.orbitmq(replicas=2)


async def status(world: World, name: str) -> HARuntimeInfo:
    async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
        return HARuntimeInfo.decode((await peer.ok(RequestCode.GET_BROKER_HA_STATUS)).body)


async def lines(world: World, name: str) -> dict[str, str]:
    async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
        answer = await peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
    return dict(KVTable.decode(answer.body).table)


async def test_the_state_of_both_ends(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 20)
    await world.until(lambda: same_end(world))
    await world.sleep(0.1)
    end = store(world, MASTER).max_commit_log_offset
    master = await status(world, MASTER)
    assert (master.master, master.master_commit_log_max_offset, master.in_sync_slave_nums) == (True, end, 1)
    (follower,) = master.ha_connection_info
    assert follower.addr.startswith(world.machines[SLAVE].host)
    assert (follower.slave_ack_offset, follower.diff, follower.in_sync) == (end, 0, True)
    assert follower.transfer_from_where == end
    slave = (await status(world, SLAVE)).ha_client_runtime_info
    assert slave.master_addr == world.brokers[MASTER].services.registration.ha_address
    assert slave.max_offset == end
    assert abs(slave.last_read_timestamp - world.clock.now_ms()) < 2000
    assert not (await status(world, SLAVE)).master


async def test_lines_of_broker_status(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 20)
    await world.until(lambda: same_end(world))
    await world.sleep(0.1)
    master, slave = await lines(world, MASTER), await lines(world, SLAVE)
    assert (master["haFollowers"], master["haFollowersBehindBytes"]) == ("1", "0")
    assert master["haMaster"] == ""
    assert slave["haMaster"] == world.brokers[MASTER].services.registration.ha_address
    assert (slave["haTransferring"], slave["haSetAsideTimes"]) == ("true", "0")
    assert slave["haReceivedOffset"] == str(store(world, MASTER).max_commit_log_offset)


@pytest.mark.behaviour("HL-13")
async def test_a_master_says_where_its_followers_go(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as peer:
        answer = ExchangeBrokerHaInfoResponse.from_ext(
            (await peer.ok(RequestCode.EXCHANGE_BROKER_HA_INFO)).ext
        )
    assert answer.master_ha_address == world.brokers[MASTER].services.registration.ha_address
    assert answer.master_address == world.brokers[MASTER].address
    assert answer.orbitmq_stream == 1


async def test_the_flush_offset_of_a_slaves_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    for name, shown in ((SLAVE, 123), (MASTER, 0)):
        async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
            await peer.ok(RequestCode.RESET_MASTER_FLUSH_OFFSET, masterFlushOffset=123)
        assert (await status(world, name)).ha_client_runtime_info.master_flush_offset == shown


async def in_sync(world: World) -> tuple[int, str, bool, int]:
    """The slaves in sync by haStatus; the number of brokers that count; in sync and silent as in ``orbitmq
    cluster list``.
    """
    told = await lines(world, MASTER)
    (follower,) = json.loads(told["followers"]).values()
    nums = (await status(world, MASTER)).in_sync_slave_nums
    return nums, told["inSyncReplicaNums"], follower["inSync"], follower["silentMs"]


async def test_a_slave_is_silent_when_it_missed_its_report(orbitmq_world: World) -> None:
    """Senders still count it as long as it has all messages."""
    world = orbitmq_world
    await send(world, 20)
    await world.until(lambda: same_end(world))
    for _ in range(30):
        await world.sleep(0.7)
        assert await in_sync(world) == (1, "2", True, 0)
    world.partition(SLAVE)
    await world.sleep(8)
    nums, counted, shown, silent_ms = await in_sync(world)
    assert (nums, counted, shown) == (0, "2", False)
    assert 8000 <= silent_ms < 13_000
    await send(world, 1)
    await world.sleep(1.2)
    assert (await in_sync(world))[:3] == (0, "1", False)
    world.heal()
    await world.until(lambda: same_end(world))
    await world.sleep(0.1)
    assert await in_sync(world) == (1, "2", True, 0)


async def test_a_change_of_master_is_followed_at_once(orbitmq_world: World) -> None:
    world = orbitmq_world
    link = following(world)
    await world.until(lambda: link.transferring)
    ha_address, address = link.ha_address, link.master_address
    await leave(world)
    assert not link.transferring
    await world.sleep(3)
    assert (await status(world, MASTER)).ha_connection_info == []
    link.follow(ha_address, address)
    assert await world.until(lambda: link.transferring) < 0.05


@pytest.mark.orbitmq(replicas=2, settings={"syncMasterFlushOffsetWhenStartup": "true"})
async def test_a_slave_shows_where_its_masters_flushed_log_ended(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, 20)
    await store(world, MASTER).flush()
    await world.stop_broker(SLAVE)
    await world.start_broker(SLAVE)
    end = store(world, MASTER).flushed_offset
    await send(world, 20)
    await world.until(lambda: same_end(world))
    assert (await status(world, SLAVE)).ha_client_runtime_info.master_flush_offset == end > 0


@pytest.mark.parametrize("awaited", [False, True])
async def test_acknowledgements_that_nobody_waits_for_go_together(
    orbitmq_world: World, awaited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, master = orbitmq_world, ha_port(orbitmq_world)
    await send(world, 1)
    await world.until(lambda: same_end(world))
    await world.sleep(1)
    master.shared.replicas.awaited = awaited
    reports: list[int] = []
    acknowledged = StreamMaster._acknowledged

    def note(self: StreamMaster, received: int, durable: int, now: float) -> None:
        reports.append(received)
        acknowledged(self, received, durable, now)

    monkeypatch.setattr(StreamMaster, "_acknowledged", note)
    await send(world, 100, pause_s=0.001)
    await world.sleep(1)
    assert reports[-1] == store(world, MASTER).max_commit_log_offset
    # Some reports are merged although a sender awaits them: those of writes during a flush.
    assert (len(set(reports)) > 60) == awaited
