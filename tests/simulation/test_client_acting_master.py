"""Clients of a group whose master is lost while a slave acts for it: how long anything stands still."""

from __future__ import annotations

import asyncio

import pytest
from tests.replicas import ESCAPING, MASTER
from tests.seeds import seeds

from orbitmq import ConsumeFrom, Message
from orbitmq.errors import SendError
from orbitmq.testing import Keep, World

pytestmark = pytest.mark.orbitmq(brokers=2, replicas=2, settings=ESCAPING)


class Load:
    """A producer with one try for each message, and consumers of one group each; what happened when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: dict[bytes, tuple[float, str]] = {}
        self.failed: list[float] = []
        self.received: dict[str, dict[bytes, float]] = {"plain": {}, "ordered": {}}
        self.again: dict[str, int] = {"plain": 0, "ordered": 0}
        self.stopped = False

    async def produce(self) -> None:
        number = 0
        async with self.world.producer(retries=0) as producer:
            while not self.stopped:
                body, number = b"%d" % number, number + 1
                begun = self.world.clock.monotonic()
                try:
                    result = await producer.send(Message("t", body))
                except SendError:
                    self.failed.append(begun)
                else:
                    self.sent[body] = self.world.clock.monotonic(), result.queue.broker_name
                await asyncio.sleep(0.05)

    async def consume(self, name: str) -> None:
        options = {"consume_from": ConsumeFrom.FIRST, "ordered": name == "ordered"}
        async with self.world.consumer(name, **options) as consumer:  # type: ignore[arg-type]
            consumer.subscribe("t")
            async for message in consumer:
                if message.body in self.received[name]:
                    self.again[name] += 1
                else:
                    self.received[name][message.body] = self.world.clock.monotonic()
                if self.stopped and len(self.received[name]) >= len(self.sent):
                    return

    async def until_received(self, bodies: set[bytes], seconds: float) -> None:
        await self.world.until(lambda: all(bodies <= got.keys() for got in self.received.values()), seconds)

    def delays(self, name: str) -> list[float]:
        """How long after its send each message came, of those sent to the group with the fault."""
        got = self.received[name]
        return [got[body] - when for body, (when, broker) in self.sent.items() if broker == MASTER]


async def under_load(world: World) -> tuple[Load, list[asyncio.Task[None]]]:
    load = Load(world)
    tasks = [
        asyncio.create_task(load.produce()),
        *(asyncio.create_task(load.consume(name)) for name in load.received),
    ]
    await world.until(lambda: all(len(got) > 40 for got in load.received.values()), 60)
    await asyncio.sleep(30)
    return load, tasks


async def ended(load: Load, tasks: list[asyncio.Task[None]]) -> None:
    load.stopped = True
    await tasks[0]
    await load.until_received(set(load.sent), 60)
    # The members live on and know which messages they have handled, whichever broker leads.
    assert load.again == dict.fromkeys(load.again, 0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("orbitmq_seed", seeds(2))
async def test_a_killed_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    load, tasks = await under_load(world)
    await asyncio.sleep(world.runtime.random.random() * 5)
    killed = world.clock.monotonic()
    world.crash(MASTER, Keep.PREFIX)
    await asyncio.sleep(30)
    assert [when - killed for when in load.failed if when > killed + 1] == []
    assert all(broker != MASTER for when, broker in load.sent.values() if when > killed + 1)
    # What the slave had before the crash is consumed from it without standing still.
    assert max(load.delays("plain")) <= 1.5
    assert max(load.delays("ordered")) <= 1.5
    back = world.clock.monotonic()
    await world.start_broker(MASTER)
    await world.until(lambda: max(when for when, broker in load.sent.values() if broker == MASTER) > back, 30)
    used = min(when for when, broker in load.sent.values() if broker == MASTER and when > back)
    assert used - back <= 6
    await ended(load, tasks)


@pytest.mark.parametrize("orbitmq_seed", seeds(1))
async def test_a_frozen_master(orbitmq_world: World) -> None:
    world = orbitmq_world
    load, tasks = await under_load(world)
    frozen = world.clock.monotonic()
    world.partition(MASTER)
    await asyncio.sleep(30)
    assert all(broker != MASTER for when, broker in load.sent.values() if when > frozen + 8)
    assert max(load.delays("plain")) <= 8
    assert max(load.delays("ordered")) <= 8
    world.heal()
    await asyncio.sleep(10)
    assert max(when for when, broker in load.sent.values() if broker == MASTER) > frozen + 30
    await ended(load, tasks)


@pytest.mark.parametrize("orbitmq_seed", seeds(1))
async def test_a_group_that_starts_after_the_fault_reads_the_backlog_at_once(orbitmq_world: World) -> None:
    world = orbitmq_world
    load = Load(world)
    load.received = {"late": {}}
    load.again = {"late": 0}
    producing = asyncio.create_task(load.produce())
    await asyncio.sleep(20)
    world.crash(MASTER, Keep.PREFIX)
    await asyncio.sleep(2)
    backlog = {body for body, (_, broker) in load.sent.items() if broker == MASTER}
    begun = world.clock.monotonic()
    consuming = asyncio.create_task(load.consume("late"))
    await load.until_received(backlog, 60)
    assert world.clock.monotonic() - begun <= 1.5
    await ended(load, [producing, consuming])


@pytest.mark.parametrize("orbitmq_seed", seeds(1))
async def test_no_send_of_an_ordinary_producer_fails_when_a_master_freezes(orbitmq_world: World) -> None:
    world = orbitmq_world
    took: list[float] = []
    used: list[tuple[float, str]] = []

    async def send() -> None:
        async with world.producer() as producer:
            while True:
                begun = world.clock.monotonic()
                result = await producer.send(Message("t", b"body"))
                used.append((world.clock.monotonic(), result.queue.broker_name))
                took.append(used[-1][0] - begun)
                await asyncio.sleep(0.05)

    sending = asyncio.create_task(send())
    await asyncio.sleep(15)
    world.partition(MASTER)
    await asyncio.sleep(25)
    assert not sending.done()
    assert max(took) <= 1.5
    world.heal()
    healed = world.clock.monotonic()
    await asyncio.sleep(10)
    assert min(when for when, broker in used if broker == MASTER and when > healed) - healed <= 2
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
