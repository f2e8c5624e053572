"""What tests of replication ask of an ``orbitmq_world`` with two replicas."""

from __future__ import annotations

from orbitmq import Message
from orbitmq.replication.link.finding import MasterFinder
from orbitmq.replication.link.follower import Following
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.store import MessageStore
from orbitmq.testing import World

MASTER, SLAVE = "broker-a", "broker-a-1"


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


async def send(world: World, count: int, size: int = 100, pause_s: float = 0) -> None:
    async with world.producer() as producer:
        for number in range(count):
            await world.sleep(pause_s)
            await producer.send(Message("t", b"%d" % number + bytes(size)))


def following(world: World, name: str = SLAVE) -> Following:
    return world.brokers[name].part(Following)


async def leave(world: World, name: str = SLAVE) -> None:
    """Let a slave follow nobody until the test says whom."""
    await world.brokers[name].part(MasterFinder).end_work()
    following(world, name).follow(None, None)


def ha_port(world: World, name: str = MASTER) -> HaPort:
    return world.brokers[name].part(HaPort)
