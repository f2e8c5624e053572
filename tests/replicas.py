"""Brokers of one name in memory: who leads among them, what their logs hold, what clients are shown."""

from __future__ import annotations

import asyncio
from functools import partial

from orbitmq import Message
from orbitmq.broker.role import Role, RoleChanged
from orbitmq.message.record import iter_records
from orbitmq.replication.link.finding import MasterFinder
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.store import MessageStore
from orbitmq.testing import World
from orbitmq.wire.bodies.route import TopicRouteData

MASTER, SLAVE = "broker-a", "broker-a-1"
# The master of another group.
OTHER = "broker-b"
ACTING = {"enableSlaveActingMaster": "true"}
ESCAPING = {**ACTING, "enableRemoteEscape": "true", "slaveReadEnable": "true"}


def role_of(world: World, name: str) -> Role | None:
    """The role of a broker; ``None``: it does not run."""
    broker = world.brokers.get(name)
    return None if broker is None or broker._services is None else broker.services.role.role


# -- logs ----------------------------------------------------------------------------------------------


def store(world: World, name: str) -> MessageStore:
    return world.brokers[name].services.store


def log_of(world: World, name: str) -> bytes:
    data, at = b"", store(world, name).min_commit_log_offset
    while piece := store(world, name).raw.data(at, 1 << 30):
        data += piece
        at += len(piece)
    return data


def same_end(world: World) -> bool:
    return store(world, MASTER).max_commit_log_offset == store(world, SLAVE).max_commit_log_offset > 0


def kill(world: World, name: str = MASTER) -> None:
    """SIGKILL: what the process wrote is there, what it meant to write later is not."""
    del world.brokers[name]
    world.machines[name].kill()


def cut_off(world: World, other: str = SLAVE) -> None:
    """The master and this machine do not reach each other; all others reach both."""
    world.runtime.network.partition([world.machines[MASTER].host], [world.machines[other].host])


async def send(world: World, count: int, size: int = 100, pause_s: float = 0) -> None:
    async with world.producer() as producer:
        for number in range(count):
            await world.sleep(pause_s)
            await producer.send(Message("t", b"%d" % number + bytes(size)))


def following(world: World, name: str = SLAVE) -> HaClient:
    return world.brokers[name].part(HaClient)


async def leave(world: World, name: str = SLAVE) -> None:
    """Let a slave follow nobody until the test says whom."""
    await world.brokers[name].part(MasterFinder).end_work()
    following(world, name).follow(None, None)


def ha_port(world: World, name: str = MASTER) -> HaPort:
    return world.brokers[name].part(HaPort)


def bodies(world: World, name: str, topic: str = "t") -> set[bytes]:
    """What the log of a broker holds of one topic."""
    return {record.body for record in iter_records(log_of(world, name)) if record.topic == topic}


# -- roles ---------------------------------------------------------------------------------------------


class Watch:
    """Looks at all brokers all the time: special services never run on two of one name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.both: list[tuple[float, list[str]]] = []
        self.roles: list[tuple[float, str, Role]] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        self._task = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    def role(self, name: str) -> Role | None:
        return role_of(self._world, name)

    def leaders(self) -> list[str]:
        """Who delivers now: a part that leads runs, and nothing keeps it from it."""
        return [
            name
            for name, broker in self._world.brokers.items()
            if broker._services is not None
            and broker.services.role.leads
            and "delayed messages" in broker.running
        ]

    def _note(self, name: str, role: Role) -> None:
        self.roles.append((self._world.clock.monotonic(), name, role))

    def _changed(self, name: str, event: RoleChanged) -> None:
        self._note(name, event.after)

    def since(self, at: float, name: str) -> list[Role]:
        """The roles that a broker took from a time on."""
        return [role for when, who, role in self.roles if who == name and when >= at]

    async def _look(self) -> None:
        known: set[int] = set()
        while True:
            for name, broker in self._world.brokers.items():
                if broker._services is not None and id(broker) not in known:
                    known.add(id(broker))
                    self._note(name, broker.services.role.role)
                    broker.services.events.subscribe(RoleChanged, partial(self._changed, name))
            leaders = self.leaders()
            if len(leaders) > 1:
                self.both.append((self._world.clock.monotonic(), leaders))
            await asyncio.sleep(0.005)


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
