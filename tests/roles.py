"""Who leads among two brokers of one name in memory: looked at all the time, and what clients are shown."""

from __future__ import annotations

import asyncio
from functools import partial

from orbitmq import Message
from orbitmq.broker.role import Role, RoleChanged
from orbitmq.testing import World
from orbitmq.wire.bodies import TopicRouteData

MASTER, SLAVE = "broker-a", "broker-a-1"
ACTING = {"enableSlaveActingMaster": "true"}


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
