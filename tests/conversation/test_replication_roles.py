"""Two brokers of one name and a name server: who leads through faults, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from orbitmq import Message
from orbitmq.broker.role import Role
from orbitmq.testing import World
from orbitmq.wire.bodies import TopicRouteData

MASTER, SLAVE = "broker-a", "broker-a-1"
ACTING = {"enableSlaveActingMaster": "true"}

pytestmark = pytest.mark.orbitmq(replicas=2, settings=ACTING)


class Watch:
    """Looks at all brokers all the time: special services never run on two of one name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.both: list[tuple[float, list[str]]] = []
        self.roles: list[tuple[float, str, Role]] = []
        self._task = asyncio.ensure_future(self._look())

    def role(self, name: str) -> Role | None:
        broker = self._world.brokers.get(name)
        return None if broker is None or broker._services is None else broker.services.role.role

    def leaders(self) -> list[str]:
        """Who delivers now: a part that leads runs, and nothing keeps it from it."""
        return [
            name
            for name, broker in self._world.brokers.items()
            if broker._services is not None
            and broker.services.role.leads
            and "delayed messages" in broker.running
        ]

    async def _look(self) -> None:
        last: dict[str, Role | None] = {}
        while True:
            for name in self._world.brokers:
                role = self.role(name)
                if role is not None and last.get(name) is not role:
                    last[name] = role
                    self.roles.append((self._world.clock.monotonic(), name, role))
            leaders = self.leaders()
            if len(leaders) > 1:
                self.both.append((self._world.clock.monotonic(), leaders))
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        self._task.cancel()


@pytest.fixture
def watch(orbitmq_world: World) -> Iterator[Watch]:
    """The invariant, checked at the end of each test that uses it."""
    watch = Watch(orbitmq_world)
    yield watch
    watch.stop()
    assert watch.both == []


def route(world: World, topic: str = "t") -> TopicRouteData | None:
    server = world._cluster._name_server
    return None if server is None else server.routes.route(topic, acting_master=True)


def shown(world: World, topic: str = "t") -> tuple[dict[int, str], int] | None:
    """Who is shown to clients, and with which permission."""
    found = route(world, topic)
    if found is None:
        return None
    names = {machine.host: name for name, machine in world.machines.items()}
    addresses = found.broker_datas[0].broker_addrs
    return {i: names[at.split(":")[0]] for i, at in addresses.items()}, found.queue_datas[0].perm


BOTH = ({0: MASTER, 1: SLAVE}, 6)
SLAVE_ONLY = ({0: SLAVE}, 4)


async def online(world: World, watch: Watch) -> None:
    async with world.producer() as producer:
        await producer.send(Message("t", b"x"))
    await world.until(lambda: watch.role(MASTER) is Role.MASTER and watch.role(SLAVE) is Role.SLAVE)
    await world.until(lambda: shown(world) == BOTH)
    await world.sleep(5)


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


async def test_a_master_cut_off_from_all_is_fenced_and_comes_back_through_pre_online(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    world.partition(MASTER)
    assert await world.until(lambda: shown(world) == SLAVE_ONLY) <= 5
    assert watch.role(MASTER) is Role.FENCED
    await world.until(lambda: watch.leaders() == [SLAVE])
    await world.sleep(20)
    world.heal()
    assert await world.until(lambda: watch.role(MASTER) is Role.PRE_ONLINE) <= 3
    assert await world.until(lambda: shown(world) == BOTH) <= 3
    await world.until(lambda: watch.leaders() == [MASTER])


async def test_a_master_that_only_the_name_server_misses_keeps_its_work_until_its_right_ends(
    orbitmq_world: World, watch: Watch
) -> None:
    world = orbitmq_world
    await online(world, watch)
    hosts = [world.machines[name].host for name in ("nameserver", MASTER)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    await world.until(lambda: watch.role(MASTER) is Role.FENCED)
    await world.sleep(20)
    world.heal()
    await world.until(lambda: watch.leaders() == [MASTER])
    assert shown(world) == BOTH


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


async def test_without_a_name_server_nobody_leads_for_long(orbitmq_world: World, watch: Watch) -> None:
    world = orbitmq_world
    await online(world, watch)
    await world.stop_name_server()
    await world.until(lambda: watch.leaders() == [])
    await world.sleep(30)
    assert watch.leaders() == []
    await world.start_name_server()
    await world.until(lambda: watch.leaders() == [MASTER])


async def test_a_clean_stop_hands_over_within_a_second(orbitmq_world: World, watch: Watch) -> None:
    world = orbitmq_world
    await online(world, watch)
    begin = world.clock.monotonic()
    await world.stop_broker(MASTER)
    assert world.clock.monotonic() - begin <= 1
    assert shown(world) == SLAVE_ONLY
    assert await world.until(lambda: watch.leaders() == [SLAVE]) <= 1


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
