"""Timers that wait longer than one roll window are delivered in their millisecond, too."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import Message, ReceivedMessage
from orbitmq.testing import World

HOURS = 3


@pytest.mark.behaviour("TW-17")
@pytest.mark.orbitmq(settings={"fileReservedTime": "1"})
@pytest.mark.parametrize("named", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
async def test_a_timer_that_is_stored_again_comes_in_its_millisecond(
    orbitmq_world: World, named: str
) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)
    await world.sleep(0.3)  # not at the beginning of a second
    after_ms = HOURS * 3_600_000
    values = {
        "TIMER_DELAY_MS": str(after_ms),
        "TIMER_DELAY_SEC": str(after_ms // 1000),
        "TIMER_DELIVER_MS": str(world.clock.now_ms() + after_ms),
    }
    async with world.producer() as producer:
        before_ms = world.clock.now_ms()
        await producer.send(Message("t", b"x", properties={named: values[named]}))
        sent_ms = world.clock.now_ms()
    come: list[ReceivedMessage] = []

    async def take() -> None:
        async for message in consumer:
            come.append(message)
            message.ack()

    async with world.consumer() as consumer:
        consumer.subscribe("t")
        taking = asyncio.ensure_future(take())
        await world.sleep(HOURS * 3600 + 10)
        taking.cancel()
    (message,) = come
    assert int(message.properties["TIMER_ROLL_TIMES"]) > 1
    assert before_ms <= message.store_timestamp_ms - after_ms <= sent_ms + 2
