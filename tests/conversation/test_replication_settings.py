"""The settings of replication: the slave's largest distance, its connection, and the rate of sending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.test_replication_status import status
from tests.replicas import ACTING, MASTER, SLAVE, following, ha_port, same_end, send

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.progress import LevelProgress
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.cluster.brokers import make_broker
from orbitmq.replication.alike import Comparison, alike
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.testing import SimulatedRuntime, World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoResponse


@pytest.mark.behaviour("QW-04")
@pytest.mark.orbitmq(replicas=2, settings={"haMaxGapNotInSync": "20000", "haSlaveSilenceMillis": "60000"})
async def test_a_slave_is_in_sync_while_it_is_less_than_hamaxgapnotinsync_behind(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await send(world, 5)
    await world.until(lambda: same_end(world))
    world.partition(SLAVE)  # less than a minute, so that only its gap may count
    for in_sync in (1, 0):
        await send(world, 5, 3000)
        assert (await status(world, MASTER)).in_sync_slave_nums == in_sync
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as peer:
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"haMaxGapNotInSync=40000")
    assert (await status(world, MASTER)).in_sync_slave_nums == 1


@pytest.mark.orbitmq(
    replicas=2, settings={"haHousekeepingInterval": "3000", "haSendHeartbeatInterval": "1000"}
)
async def test_either_end_leaves_a_link_that_is_silent_for_hahousekeepinginterval(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await world.until(lambda: following(world).transferring and ha_port(world).connections)
    await world.sleep(60)
    assert following(world).transferring
    assert "not heard of" not in caplog.text, "who has nothing to say shows that it lives"
    begin = world.clock.monotonic()
    world.partition(SLAVE)
    ended: dict[str, float] = {}
    while len(ended) < 2:
        now = world.clock.monotonic() - begin
        if not ha_port(world).connections:
            ended.setdefault(MASTER, now)
        if not following(world).connected:
            ended.setdefault(SLAVE, now)
        assert now < 60
        await world.sleep(0.05)
    assert all(1.5 < after_s <= 4 for after_s in ended.values()), ended


# -- the address that a slave connects to --------------------------------------------------------------


# The master names an address that leads nowhere, as one behind a NAT does.
UNREACHABLE = {"brokerIP2": "192.0.2.7", "haListenPort": "10912", "haMasterAddress": "10.0.0.2:10912"}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.orbitmq(replicas=2, settings={**settings, **UNREACHABLE}))
        for mode, settings in (("plain", {}), ("acting masters", ACTING))
    ],
)
async def test_a_slave_connects_to_hamasteraddress_whatever_its_master_tells(
    orbitmq_world: World, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    for name in (SLAVE, MASTER):
        await world.stop_broker(name)
    for name in (SLAVE, MASTER):
        await world.start_broker(name)
    assert await world.until(lambda: following(world).transferring) < 3, (
        "it looks for a master that comes later"
    )
    await world.stop_broker(SLAVE)
    await world.start_broker(SLAVE)
    await send(world, 5)
    await world.until(lambda: same_end(world))
    assert following(world).master_address == world.brokers[MASTER].address
    assert "192.0.2.7" not in caplog.text


@pytest.mark.orbitmq(limit_s=60)
async def test_with_hamasteraddress_a_slave_needs_no_name_server(runtime: SimulatedRuntime) -> None:
    one, other = runtime.machine("10.0.0.1"), runtime.machine("10.0.0.2")
    master_config = broker_config(broker_ip1="10.0.0.1", ha_listen_port=10912)
    slave_config = broker_config(
        broker_ip1="10.0.0.2", broker_id=1, broker_role="SLAVE", ha_master_address="10.0.0.1:10912"
    )
    async with make_broker(one, master_config) as master, make_broker(other, slave_config) as slave:
        async with BrokerPeer(runtime, master.address) as peer:
            await peer.sent(b"copied")
        end = master.services.store.max_commit_log_offset
        while slave.services.store.max_commit_log_offset < end:
            await asyncio.sleep(0.1)
        assert slave.part(HaClient).master_address is None


async def slave_of_a_port(world: World, name: str, sent: int, size_bytes: int = 100) -> BrokerConfig:
    """A slave of ``name`` on 10.0.0.77 that knows only the HA port of broker-a, which has messages."""
    await send(world, sent, size_bytes)
    master = world.brokers[MASTER].services
    return broker_config(
        broker_name=name,
        broker_ip1="10.0.0.77",
        broker_id=1,
        broker_role="SLAVE",
        ha_master_address=master.registration.ha_address,
        namesrv_addr=world.name_server,
        mapped_file_size_commit_log=master.config.mapped_file_size_commit_log,
    )


@pytest.mark.orbitmq(brokers=2)
async def test_a_slave_with_the_hamasteraddress_of_another_group_copies_nothing(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it knows its master it must not copy in RocketMQ's protocol, which does not name the log's
    owner.
    """
    world = orbitmq_world
    config = await slave_of_a_port(world, "broker-b", 5)
    async with make_broker(world.runtime.machine("10.0.0.77"), config) as slave:
        await world.sleep(20)
        assert slave.services.store.max_commit_log_offset == 0
    assert caplog.text.count("this broker is of broker-a of") >= 1


@pytest.mark.orbitmq(brokers=1)
async def test_a_slave_whose_master_nobody_names_says_that_it_does_not_know_whom_it_follows(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    config = await slave_of_a_port(world, "broker-z", 5)
    async with make_broker(world.runtime.machine("10.0.0.77"), config) as slave:
        await world.until(lambda: slave.services.store.max_commit_log_offset > 0)
        await world.sleep(20)
    assert caplog.text.count("no name server shows a master of broker-z") == 1


@pytest.mark.orbitmq(brokers=1, settings={"mappedFileSizeCommitLog": "131072"})
async def test_a_new_slave_with_hamasteraddress_copies_the_whole_log(orbitmq_world: World) -> None:
    """It must not begin with the last file when it connects before a name server has named the master."""
    world = orbitmq_world
    config = await slave_of_a_port(world, MASTER, 60, 3000)
    end = world.brokers[MASTER].services.store.max_commit_log_offset
    async with make_broker(world.runtime.machine("10.0.0.77"), config) as slave:
        store = slave.services.store
        await world.until(lambda: store.max_commit_log_offset == end)
        assert store.min_commit_log_offset == 0


@pytest.mark.orbitmq(settings={"brokerIP2": "192.0.2.7"})
async def test_slaves_are_told_brokerip2_and_clients_brokerip1(orbitmq_world: World) -> None:
    world = orbitmq_world
    broker = world.brokers[MASTER]
    async with BrokerPeer(world.runtime, broker.address) as peer:
        answer = await peer.ok(RequestCode.EXCHANGE_BROKER_HA_INFO)
    told = ExchangeBrokerHaInfoResponse.from_ext(answer.ext)
    assert told.master_ha_address == f"192.0.2.7:{broker.services.registration.ha_port}"
    assert told.master_address == broker.address
    assert broker.address.startswith(world.machines[MASTER].host)


# -- delay progress ------------------------------------------------------------------------------------


@pytest.mark.orbitmq(settings={"delayOffsetUpdateVersionStep": "3"})
async def test_the_delay_progress_has_a_new_version_after_delayoffsetupdateversionstep_changes(
    orbitmq_world: World,
) -> None:
    """A master of RocketMQ takes back only progress of a newer version."""
    broker = orbitmq_world.brokers[MASTER]
    delays = broker.part(ScheduleService).delays

    def counters(changes: int) -> list[Any]:
        first, seen = delays.version.counter, []
        for _ in range(changes):
            delays.move(1, LevelProgress(delays.place(1).offset + 1))
            seen.append(delays.version.counter - first)
        return seen

    assert counters(7) == [0, 0, 1, 1, 1, 2, 2]
    async with BrokerPeer(orbitmq_world.runtime, broker.address) as peer:
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"delayOffsetUpdateVersionStep=1")
    assert counters(3) == [1, 2, 3]


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
async def test_brokers_of_a_name_with_other_settings_say_so_once(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker uses its own numbers when no other can lead; the others' may differ."""
    world = orbitmq_world
    await send(world, 3)
    await world.until(lambda: same_end(world))
    assert "need the same" not in caplog.text
    world.brokers[MASTER].config.total_replicas = 3
    for _ in range(3):
        world.disconnect(SLAVE)
        await world.sleep(5)
        await world.until(lambda: same_end(world))
    lines = sorted(line for line in caplog.messages if "need the same" in line)
    master, slave = (world.brokers[name].address for name in (MASTER, SLAVE))
    rest = "all brokers of broker-a need the same"
    assert lines == sorted(
        [
            f"totalReplicas is 3 at {master} and 2 here: {rest}",
            f"totalReplicas is 2 at {slave} and 3 here: {rest}",
        ]
    )


@pytest.mark.orbitmq(replicas=3, settings={**ACTING, "totalReplicas": "2"})
async def test_more_brokers_than_totalreplicas_are_told(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await orbitmq_world.sleep(30)
    lines = [line for line in caplog.messages if "totalReplicas is 2" in line]
    assert len(lines) == 3  # each broker once
    assert lines[0].startswith("3 brokers of broker-a run and totalReplicas is 2: ")


def test_without_acting_masters_only_that_has_to_be_alike() -> None:
    ours = Comparison(BrokerConfig(total_replicas=1))
    ours.compare("10.0.0.1:10911", alike(BrokerConfig(total_replicas=2)))
    ours.compare("10.0.0.1:10911", {})  # an older build sends none
    assert ours.logged == {}
    ours.compare("10.0.0.1:10911", alike(BrokerConfig(enable_slave_acting_master=True)))
    assert ours.logged == {
        "10.0.0.1:10911": "enableSlaveActingMaster is true at 10.0.0.1:10911 and false here"
    }


@pytest.mark.orbitmq(replicas=2, settings=ACTING)
async def test_a_name_server_that_shows_no_acting_master_is_told_once(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave acts, and consumers cannot find it."""
    world = orbitmq_world
    await world.sleep(5)
    assert "supportActingMaster" not in caplog.text
    async with BrokerPeer(world.runtime, world.name_server) as names:
        await names.ok(RequestCode.UPDATE_NAMESRV_CONFIG, b"supportActingMaster=false")
    await world.sleep(100)
    lines = [line for line in caplog.messages if "supportActingMaster" in line]
    expected = f"name server {world.name_server} has not supportActingMaster=true: "
    assert [line.startswith(expected) for line in lines] == [True, True]  # each broker


@pytest.mark.parametrize("acting", [MASTER, SLAVE])
@pytest.mark.orbitmq(replicas=2)
async def test_acting_slaves_at_one_broker_of_a_name_only_are_told_at_both(
    orbitmq_world: World, acting: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await world.until(lambda: following(world).transferring)
    for name in (MASTER, SLAVE):
        await world.stop_broker(name)
    for name in (MASTER, SLAVE):
        world._cluster._settings["enableSlaveActingMaster"] = str(name == acting).lower()
        await world.start_broker(name)
    await world.until(lambda: following(world).transferring)
    await world.sleep(60)
    lines = sorted(line for line in caplog.messages if "enableSlaveActingMaster is" in line)
    rest = "all brokers of broker-a need the same"
    master, slave = (world.brokers[name].address for name in (MASTER, SLAVE))
    values = ("true", "false") if acting == MASTER else ("false", "true")
    assert lines == sorted(
        [
            f"enableSlaveActingMaster is {values[0]} at {master} and {values[1]} here: {rest}",
            f"enableSlaveActingMaster is {values[1]} at {slave} and {values[0]} here: {rest}",
        ]
    )
