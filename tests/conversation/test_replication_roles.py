"""Two brokers of one name and a name server: which of them leads through faults, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, SLAVE_ONLY, Watch, online, send, shown

from orbitmq.broker.role import Role
from orbitmq.cluster.layout import ClusterError
from orbitmq.testing import SimulatedLoop, World

pytestmark = pytest.mark.orbitmq(replicas=2, settings=ACTING)


@pytest.fixture
def watch(orbitmq_loop: SimulatedLoop, orbitmq_world: World) -> Iterator[Watch]:
    """The watch on the roles, whose invariant is checked at the end of each test that uses it."""
    watch = orbitmq_loop.enter(Watch(orbitmq_world))
    yield watch
    assert watch.roles, "nobody looked"
    assert watch.both == []


@pytest.mark.behaviour("MB-10")
async def test_the_slave_acts_for_a_killed_master_and_makes_way_when_it_is_back(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    world.crash(MASTER)
    assert await world.until(lambda: shown(world) == SLAVE_ONLY) <= 0.2
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 1.0
    await world.sleep(30)
    assert watch.leaders() == [SLAVE]
    begin = world.clock.monotonic()
    await world.start_broker(MASTER)
    await world.until(lambda: shown(world) == BOTH)
    assert world.clock.monotonic() - begin <= 3
    await world.until(lambda: watch.leaders() == [MASTER])
    assert watch.role(SLAVE) is Role.SLAVE
    await world.sleep(20)
    assert watch.leaders() == [MASTER]


@pytest.mark.behaviour("PO-16")
async def test_a_master_cut_off_from_all_is_fenced_and_comes_back_through_pre_online(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    world.partition(MASTER)
    lost = world.clock.monotonic()
    assert await world.until(lambda: shown(world) == SLAVE_ONLY) <= 5
    assert watch.role(MASTER) is Role.FENCED
    # The name server says how long the master has been silent, and the link has been as long: no new wait
    # starts.
    await world.until(lambda: watch.leaders() == [SLAVE])
    assert world.clock.monotonic() - lost <= 5
    await world.sleep(20)
    begin = world.clock.monotonic()
    world.heal()
    assert await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH) <= 3
    assert watch.since(begin, MASTER) == [Role.PRE_ONLINE, Role.MASTER]


async def test_a_master_that_only_the_name_server_misses_lets_its_slave_take_over(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    hosts = [world.machines[name].host for name in ("nameserver", MASTER)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)
    # The slave asks over the living connection, so it waits neither for a timeout nor for a port that
    # refuses.
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 1.5
    await world.sleep(20)
    assert watch.leaders() == [SLAVE]
    master, slave = (world.brokers[name].services.store for name in (MASTER, SLAVE))
    assert master.max_commit_log_offset == slave.max_commit_log_offset, "the log is copied on"
    world.heal()
    await world.until(lambda: watch.leaders() == [MASTER])
    assert shown(world) == BOTH


async def test_a_master_that_hears_no_name_server_makes_way(orbitmq_world: World, watch: Watch) -> None:
    """Its heartbeats arrive, but as a fenced master it must not stay in the routes, or no broker would
    deliver.
    """
    world = orbitmq_world
    await online(world, watch)
    name_server, master = (world.machines[name].host for name in ("nameserver", MASTER))
    world.runtime.network.partition([name_server], [master], one_way=True)
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 5
    assert shown(world) == SLAVE_ONLY
    await world.sleep(20)
    assert watch.leaders() == [SLAVE]
    world.heal()
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)


@pytest.mark.behaviour("PO-21")
async def test_a_master_that_returns_while_the_name_server_is_down_leads_beside_nobody(
    orbitmq_world: World, watch: Watch
) -> None:
    """A port that refuses connections must not count as proof that no broker leads: the slave acts."""
    world = orbitmq_world
    await online(world, watch)
    world.crash(MASTER)
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.stop_name_server()
    starting = asyncio.ensure_future(world.start_broker(MASTER))
    await world.sleep(3)
    assert watch.role(MASTER) is Role.PRE_ONLINE
    await world.start_name_server()
    await starting
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)


@pytest.mark.behaviour("PO-21")
async def test_a_master_that_starts_without_a_name_server_leads_when_its_slave_has_come(
    orbitmq_world: World, watch: Watch
) -> None:
    """The master must not refuse messages for ten seconds when its slave is connected."""
    world = orbitmq_world
    await online(world, watch)
    await world.stop_name_server()
    await world.sleep(10)
    world.crash(MASTER)
    await world.sleep(1)
    begin = world.clock.monotonic()
    starting = asyncio.ensure_future(world.start_broker(MASTER))
    await world.until(lambda: watch.leaders() == [MASTER])
    assert world.clock.monotonic() - begin <= 2
    for _ in range(20):
        await world.sleep(1)
        assert watch.leaders() == [MASTER], "its slave leaves the lead to it"
    with pytest.raises(ClusterError):  # the master does not register
        await starting
    await world.start_name_server()
    assert shown(world) == BOTH
    assert watch.leaders() == [MASTER]


@pytest.mark.behaviour("PO-21")
async def test_a_master_that_starts_alone_without_a_name_server_takes_messages_fenced(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    await world.stop_name_server()
    world.crash(SLAVE)
    world.crash(MASTER)
    begin = world.clock.monotonic()
    starting = asyncio.ensure_future(world.start_broker(MASTER))
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)
    assert 5 <= world.clock.monotonic() - begin <= 6.5
    await world.start_name_server()
    await starting
    await world.start_broker(SLAVE)
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)


async def test_a_name_server_that_restarts_changes_no_role(orbitmq_world: World, watch: Watch) -> None:
    world = orbitmq_world
    await online(world, watch)
    before = len(watch.roles)
    await world.stop_name_server()
    await world.sleep(1)
    await world.start_name_server()
    await world.sleep(30)
    assert watch.roles[before:] == []
    assert watch.leaders() == [MASTER]
    assert shown(world) == BOTH


@pytest.mark.behaviour("HB-10")
@pytest.mark.parametrize("phase_s", [0, 0.2, 0.4, 0.6, 0.8])
async def test_without_a_name_server_the_master_leads_while_its_slave_leaves_it_to_it(
    orbitmq_world: World, watch: Watch, phase_s: float
) -> None:
    """Until the name server's answers count for the master again, the slave must keep its promise not to
    lead.
    """
    world = orbitmq_world
    await online(world, watch)
    await world.sleep(phase_s)
    before = len(watch.roles)
    await world.stop_name_server()
    await world.sleep(30)
    assert watch.leaders() == [MASTER]
    assert watch.roles[before:] == [], "not fenced for a moment"
    await world.start_name_server()
    await world.sleep(30)
    assert watch.leaders() == [MASTER]
    assert watch.roles[before:] == []


async def test_without_a_name_server_and_without_its_slave_a_master_is_fenced(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    await world.stop_name_server()
    await world.sleep(10)
    hosts = [world.machines[name].host for name in (SLAVE, MASTER)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    assert await world.until(lambda: watch.leaders() == []) <= 4.5
    await world.sleep(30)
    assert watch.leaders() == []
    world.heal()
    assert await world.until(lambda: watch.leaders() == [MASTER]) <= 25
    # The slave is cut off from the master but not from the name server, which returns: the slave acts.
    world.runtime.network.partition(hosts[:1], hosts[1:])
    name_server = world.machines["nameserver"].host
    world.runtime.network.partition(hosts[1:], [name_server])
    with pytest.raises(ClusterError):  # the master does not register
        await world.start_name_server()
    assert watch.leaders() == [SLAVE]


async def test_a_name_server_that_is_silent_leaves_the_lead_to_the_links(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    before = len(watch.roles)
    world.partition("nameserver")
    await world.sleep(60)
    assert watch.leaders() == [MASTER]
    world.heal()
    await world.sleep(30)
    assert watch.leaders() == [MASTER]
    assert watch.roles[before:] == []


@pytest.mark.behaviour("SS-08")
async def test_a_clean_stop_hands_over_within_a_second(
    orbitmq_world: World, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await online(world, watch)
    begin = world.clock.monotonic()
    await world.stop_broker(MASTER)
    assert world.clock.monotonic() - begin <= 1
    assert shown(world) == SLAVE_ONLY
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 1
    # This is another line than that of a master which lost its name servers.
    assert [m for m in caplog.messages if m.endswith("master becomes fenced master: it stops")]


async def test_an_acting_master_that_stops_cleanly_is_followed_by_the_master(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    await world.stop_broker(MASTER)
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.stop_broker(SLAVE)
    await world.start_broker(MASTER)
    await world.until(lambda: watch.leaders() == [MASTER])
    await world.start_broker(SLAVE)
    await world.until(lambda: shown(world) == BOTH)


@pytest.mark.behaviour("MB-11")
@pytest.mark.behaviour("PO-05")
async def test_a_slave_that_starts_alone_acts_until_its_master_comes(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    world.crash(SLAVE)
    world.crash(MASTER)
    await world.sleep(1)
    await world.start_broker(SLAVE)
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 6
    await world.start_broker(MASTER)
    await world.until(lambda: watch.leaders() == [MASTER])


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize(
    "cut", [("nameserver", MASTER), (MASTER, "nameserver"), (MASTER, SLAVE), (SLAVE, "nameserver")]
)
async def test_any_two_that_do_not_hear_each_other_make_no_second_leader(
    orbitmq_world: World, watch: Watch, cut: tuple[str, str], one_way: bool
) -> None:
    world = orbitmq_world
    await online(world, watch)
    hosts = [world.machines[name].host for name in cut]
    world.runtime.network.partition(hosts[:1], hosts[1:], one_way=one_way)
    await world.sleep(40)
    world.heal()
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
    await world.sleep(20)
    assert watch.leaders() == [MASTER]


async def test_a_master_that_is_lost_again_right_after_its_return_is_stood_in_for_at_once(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    world.crash(MASTER)
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.start_broker(MASTER)
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
    await world.sleep(1.5)
    world.crash(MASTER)
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 1.5


async def test_an_operator_sees_roles_and_lags(orbitmq_world: World, watch: Watch) -> None:
    world = orbitmq_world
    await online(world, watch)
    async with world.admin(timeout=0.5) as admin:
        master, slave = await admin.brokers.states()
        assert (master.role, master.special_services) == ("master", True)
        assert (slave.role, slave.special_services) == ("slave", False)
        assert (slave.lag_bytes, slave.lag, slave.in_sync) == (0, 0, True)
        assert slave.log_end == master.log_end
        assert slave.epoch == master.epoch
        world.crash(MASTER)
        await world.until(lambda: watch.leaders() == [SLAVE])
        (slave,) = await admin.brokers.states()
        assert (slave.role, slave.special_services) == ("acting master", True)
        assert master.epoch is not None
        assert slave.epoch == master.epoch + 1, "it took the lead"


async def test_an_operator_sees_how_far_a_slave_lags(orbitmq_world: World, watch: Watch) -> None:
    world = orbitmq_world
    await online(world, watch)
    async with world.admin(timeout=0.5) as admin:
        _, before = await admin.brokers.states()
        ends = [[world.machines[name].host] for name in (MASTER, SLAVE)]
        world.runtime.network.partition(*ends, one_way=True)
        await send(world, 3, 1000)
        await world.sleep(2)
        master, slave = await admin.brokers.states()
        assert slave.role == "slave"
        assert slave.log_end == before.log_end
        assert master.log_end is not None
        assert slave.log_end is not None
        assert slave.lag_bytes == master.log_end - slave.log_end > 3000
        assert slave.lag == pytest.approx(2.0, abs=0.2)
        assert slave.epoch == master.epoch == before.epoch
        # No sender waits for the slave, so the master has not checked it before.
        assert slave.in_sync is False
        assert slave.silent is not None
        assert slave.silent >= 2.0
        world.heal()
        await world.sleep(1)
        master, slave = await admin.brokers.states()
        assert (slave.lag_bytes, slave.lag, slave.in_sync, slave.silent) == (0, 0, True, 0)
        assert slave.log_end == master.log_end
