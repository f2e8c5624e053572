"""A slave that may be read finds the same messages as its master by key, id, time and offset."""

from __future__ import annotations

import pytest
from tests.conversation.test_broker_query import Peer, bodies
from tests.replicas import MASTER, SLAVE, same_end

from orbitmq.testing import Keep, World
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.orbitmq(replicas=2, settings={"slaveReadEnable": "true"})


def client_of(world: World, name: str) -> Peer:
    return Peer(world.runtime, world.brokers[name].address)


async def stored(world: World, numbers: range) -> list[str]:
    """Send messages with keys to the master; returns their unique ids."""
    async with client_of(world, MASTER) as peer:
        sent = [
            await peer.sent(b"%d" % number, properties={"KEYS": f"order-{number} customer-{number % 3}"})
            for number in numbers
        ]
    return [answer.transaction_id or "" for answer in sent]


async def found(world: World, name: str, ids: list[str]) -> list[object]:
    """The responses of a broker to searches: by key, by id, by time, by offset."""
    async with client_of(world, name) as peer:
        answers = [await peer.query(key) for key in ("order-4", "customer-1", "customer-2", "nobody")]
        answers += [await peer.query(unique, unique=True) for unique in ids]
        queue = {"topic": "T", "queueId": 0}
        answers.append(await peer.ok(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=peer.now()))
        answers += [await peer.pull(offset) for offset in (0, 5)]
        return [(answer.code, answer.ext, bytes(answer.body)) for answer in answers]


async def test_a_slave_finds_by_key_and_by_id_what_its_master_finds(orbitmq_world: World) -> None:
    world = orbitmq_world
    ids = await stored(world, range(9))
    await world.until(lambda: same_end(world))
    async with client_of(world, SLAVE) as peer:
        assert bodies(await peer.query("customer-1")) == [b"1", b"4", b"7"]
        assert bodies(await peer.query("order-4")) == [b"4"]
        for number, unique in enumerate(ids):
            assert bodies(await peer.query(unique, unique=True)) == [b"%d" % number]
    assert await found(world, SLAVE, ids) == await found(world, MASTER, ids)


@pytest.mark.parametrize("keep", list(Keep))
async def test_a_slave_that_starts_again_finds_old_and_new(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    ids = await stored(world, range(6))
    await world.until(lambda: same_end(world))
    world.crash(SLAVE, keep)
    ids += await stored(world, range(6, 9))
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world))
    async with client_of(world, SLAVE) as peer:
        assert bodies(await peer.query("customer-1")) == [b"1", b"4", b"7"]
    assert await found(world, SLAVE, ids) == await found(world, MASTER, ids)
