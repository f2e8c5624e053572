"""A master and its slave through random faults: what was acknowledged stays, both logs become one again."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.replicas import MASTER, SLAVE, log_of, same_end
from tests.seeds import seeds

from orbitmq import Message, Producer, SendError
from orbitmq.message.record import decode_record
from orbitmq.testing import World
from orbitmq.testing.machine.memory_files import Keep

FAULTS = 5


class Sends:
    """Messages of one producer, one after the other; ``acknowledged`` are those that were answered."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[bytes] = []
        self.ended = False

    async def run(self, world: World, source: random.Random) -> None:
        number = 0
        while not self.ended:
            number += 1
            body = b"%d-" % number + source.randbytes(source.choice((20, 500, 3000)))
            try:
                await self._producer.send(Message("t", body))
            except SendError:
                await world.sleep(0.1)
                continue
            self.acknowledged.append(body)
            await world.sleep(0.05)


async def fault(world: World, source: random.Random) -> None:
    """One thing that befalls master, slave, or the network between them."""
    name = source.choice((MASTER, SLAVE))
    kind = source.choice(("crash", "crash", "stop", "disconnect", "partition", "slow"))
    if kind == "crash":
        world.crash(name, source.choice(list(Keep)))
        await world.sleep(source.random() * 3)
        await world.start_broker(name)
    elif kind == "stop":
        await world.stop_broker(name)
        await world.sleep(source.random() * 3)
        await world.start_broker(name)
    elif kind == "disconnect":
        world.disconnect(name)
    elif kind == "partition":
        world.partition(SLAVE)
        await world.sleep(source.random() * 25)
        world.heal()
    else:
        world.runtime.network.set_delay(0.001, 0.1)
        await world.sleep(3)
        world.runtime.network.set_delay(0, 0)


async def through_faults(world: World, seed: int) -> list[bytes]:
    """Send while faults happen; what was acknowledged. Both logs are the same afterwards."""
    source = random.Random(seed)
    async with world.producer(timeout=2) as producer:
        sends = Sends(producer)
        sending = asyncio.ensure_future(sends.run(world, source))
        for _ in range(FAULTS):
            await world.sleep(source.random() * 2)
            await fault(world, source)
        await world.sleep(2)
        sends.ended = True
        await sending
        await producer.send(Message("t", b"the last one"))
    await world.until(lambda: same_end(world), 120)
    assert log_of(world, MASTER) == log_of(world, SLAVE)
    return sends.acknowledged


@pytest.mark.parametrize("orbitmq_seed", seeds(5))
@pytest.mark.orbitmq(replicas=2, settings={"mappedFileSizeCommitLog": str(128 * 1024)})
async def test_what_was_acknowledged_is_on_both(orbitmq_world: World, orbitmq_seed: int) -> None:
    acknowledged = await through_faults(orbitmq_world, orbitmq_seed)
    assert len(acknowledged) > 10
    log = log_of(orbitmq_world, SLAVE)
    assert not [body for body in acknowledged if body not in log]


@pytest.mark.parametrize("orbitmq_seed", seeds(5))
@pytest.mark.parametrize("classic", [False, True])
@pytest.mark.orbitmq(
    replicas=2,
    settings={
        "mappedFileSizeCommitLog": str(128 * 1024),
        "flushDiskType": "ASYNC_FLUSH",
        "flushIntervalCommitLog": "700",
    },
)
async def test_what_a_master_loses_is_in_a_file_of_its_slave(
    orbitmq_world: World, orbitmq_seed: int, classic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    if classic:
        monkeypatch.setattr("orbitmq.replication.ha_handlers.STREAM_VERSION", None)
    await through_faults(world, orbitmq_seed)
    files = world.machines[SLAVE].disk
    folder = f"/store/{SLAVE}/aside"
    for name in files.list_dir(folder):
        decode_record(files.read_bytes(f"{folder}/{name}"), 0)
