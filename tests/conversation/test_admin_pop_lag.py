"""The lag of a group that pops includes its messages in flight."""

from __future__ import annotations

import pytest

from orbitmq import Message, MessageQueue
from orbitmq.testing import World

pytestmark = pytest.mark.behaviour("PP-18")

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRY = "%RETRY%billing"


async def fill(world: World, count: int = 20) -> None:
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
        await admin.groups.create("billing")
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message("orders", b"%d" % number))


async def test_popped_and_not_acknowledged_is_behind_and_in_flight(orbitmq_world: World) -> None:
    world = orbitmq_world
    await fill(world)
    async with world.admin() as admin, world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        messages = await consumer.receive(20, 30, wait=5)
        assert len(messages) == 20
        [lag] = (await admin.groups.lag("billing", topic="orders")).whole()
        assert (lag.queue, lag.committed, lag.end) == (QUEUE, 20, 20)
        assert (lag.lag, lag.in_flight, lag.popped) == (20, 20, 20)
        await world.sleep(5)
        found = (await admin.groups.why("billing")).whole()
        assert (found.lag, found.in_flight) == (20, 20)
        assert found.text.startswith("billing is 20 behind, ")
        assert 5 <= found.age < 30
        assert "20 of them are popped and not acknowledged." in found.text
        [progress] = [
            one
            for one in (await admin.groups.progress()).whole()
            if one.queue == QUEUE and one.group == "billing"
        ]
        assert (progress.lag, progress.popped) == (20, 20)
        assert (await admin.groups.lags()).whole()["billing"] == 20

        for message in messages[1:]:
            await consumer.ack(message)
        [lag] = (await admin.groups.lag("billing", topic="orders")).whole()
        assert (lag.lag, lag.in_flight) == (1, 1), "those behind the first one are done"
        await consumer.ack(messages[0])
        [lag] = (await admin.groups.lag("billing", topic="orders")).whole()
        assert (lag.lag, lag.in_flight, lag.age) == (0, 0, 0)
        assert (await admin.groups.why("billing")).whole().text == "billing is not behind."


async def test_redelivered_and_not_acknowledged_is_behind_and_in_flight(orbitmq_world: World) -> None:
    world = orbitmq_world
    await fill(world)
    async with world.admin() as admin, world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        assert len(await consumer.receive(20, 10, wait=5)) == 20
        await world.sleep(12)
        again = await consumer.receive(20, 60, wait=5)
        assert len(again) == 20
        lags = (await admin.groups.lag("billing")).whole()
        by_topic: dict[str, int] = {}
        for lag in lags:
            by_topic[lag.queue.topic] = by_topic.get(lag.queue.topic, 0) + lag.in_flight
        assert by_topic.pop("orders") == 0
        assert sum(by_topic.values()) == 20, by_topic
        assert all(topic.startswith(RETRY) for topic in by_topic)
        assert (await admin.groups.why("billing")).whole().lag == 20
