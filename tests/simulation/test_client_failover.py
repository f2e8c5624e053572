"""A master is killed and comes back: how long sends with one try fail, and when it is used again."""

from __future__ import annotations

import asyncio

import pytest
from tests.seeds import seeds

from orbitmq import Message, Producer
from orbitmq.errors import SendError
from orbitmq.runtime.seam import Clock
from orbitmq.testing import Keep, World

OFTEN_S, SELDOM_S = 0.02, 0.5


class Sends:
    """Sends all the time, one try each, and notes when which broker took or did not take it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.taken: list[tuple[float, str]] = []
        self.failed: list[float] = []
        self.pause_s = OFTEN_S
        self.stopped = False

    async def run(self, producer: Producer) -> None:
        while not self.stopped:
            begin = self.clock.monotonic()
            try:
                result = await producer.send(Message("t", b"body"))
            except SendError:
                self.failed.append(begin)
            else:
                self.taken.append((self.clock.monotonic(), result.queue.broker_name))
            await asyncio.sleep(self.pause_s)

    async def seldom(self, seconds: float) -> None:
        """Let time pass in which little happens; the last second of it is busy again."""
        self.pause_s = SELDOM_S
        await asyncio.sleep(max(0.0, seconds - 1))
        self.pause_s = OFTEN_S
        await asyncio.sleep(min(1.0, seconds))


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.parametrize("orbitmq_seed", seeds(6))
async def test_a_dead_master_and_its_return_are_noticed_within_a_second(orbitmq_world: World) -> None:
    world, dice = orbitmq_world, orbitmq_world.runtime.random
    sends = Sends(world.clock)
    async with world.producer(retries=0) as producer:
        senders = [asyncio.create_task(sends.run(producer)) for _ in range(4)]
        await sends.seldom(5 + dice.uniform(0, 40))
        killed = world.clock.monotonic()
        world.crash("broker-a", dice.choice(list(Keep)))
        await asyncio.sleep(0.5)
        await sends.seldom(dice.uniform(0, 120))
        back = world.clock.monotonic()
        await world.start_broker("broker-a")
        await asyncio.sleep(5)
        sends.stopped = True
        await asyncio.gather(*senders)
    assert {name for when, name in sends.taken if when < killed} == {"broker-a", "broker-b"}
    assert [round(when - killed, 2) for when in sends.failed if not killed - 1 <= when <= killed + 1] == []
    returned = next(when for when, name in sends.taken if when >= back and name == "broker-a")
    assert returned - back <= 1
