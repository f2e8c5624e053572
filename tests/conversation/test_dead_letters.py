"""Dead letters with real consumers and a real broker."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import Consumer, Message, ReceivedMessage
from orbitmq.testing import World

DEAD = "%DLQ%cg"
# More failures than tries of one message: a group that read its own dead letters would fail for ever.
FAILURES = 10


async def collect(consumer: Consumer, topic: str, got: list[tuple[str, bytes]], *, failures: int) -> None:
    async def listener(message: ReceivedMessage) -> None:
        got.append((message.topic, message.body))
        if len(got) <= failures:
            raise RuntimeError("not yet")

    consumer.subscribe(topic)
    await consumer.run(listener)


@pytest.mark.behaviour("DQ-03")
async def test_a_group_reads_its_dead_letters_only_when_it_subscribes_to_them(orbitmq_world: World) -> None:
    world = orbitmq_world
    got: list[tuple[str, bytes]] = []
    async with world.producer() as producer, world.consumer("cg", max_reconsume_times=1) as consumer:
        task = asyncio.create_task(collect(consumer, "t", got, failures=FAILURES))
        await producer.send(Message("t", b"poison"))
        store = world.brokers["broker-a"].services.store
        await world.until(lambda: store.max_offset(DEAD, 0) == 1, 60)
        assert got == [("t", b"poison")] * 2
        await world.sleep(120)
        assert len(got) == 2
        assert {queue.topic for queue in consumer.assignment()} == {"t", "%RETRY%cg"}
    await task
    again: list[tuple[str, bytes]] = []
    async with world.consumer("cg") as consumer:
        task = asyncio.create_task(collect(consumer, DEAD, again, failures=0))
        await world.until(lambda: again, 60)
    await task
    assert again == [(DEAD, b"poison")]
