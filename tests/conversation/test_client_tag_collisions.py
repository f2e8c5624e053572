"""Two tags with one hash: brokers compare the hash only, every consumer compares the text."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.popping_group import prepare

from orbitmq import ConsumeFrom, Message, PullConsumer, ReceivedMessage
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.message.tags import java_hash
from orbitmq.testing import World

pytestmark = pytest.mark.behaviour("FI-10")


async def send_both(world: World, topic: str = "T") -> None:
    """Send three messages of each of two tags with the same Java hash."""
    assert java_hash("Aa") == java_hash("BB")
    async with world.producer() as producer:
        for number in range(3):
            for tag in ("Aa", "BB"):
                await producer.send(Message(topic, f"{tag}{number}", tags=tag))


async def test_a_simple_consumer_gets_and_keeps_only_what_has_the_text(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send_both(world)
    async with world.simple_consumer(invisible_for=10) as consumer:
        consumer.subscribe("T", tags="Aa")
        got: list[str] = []
        # A message whose tag only has the same hash is acknowledged, so it is not redelivered after its
        # invisible time.
        for _ in range(5):
            for message in await consumer.receive(wait=20):
                got.append(message.body.decode())
                await consumer.ack(message)
    assert sorted(got) == ["Aa0", "Aa1", "Aa2"]
    async with world.simple_consumer() as consumer:
        consumer.subscribe("T")
        assert await consumer.receive(wait=60) == []


async def test_a_simple_consumer_with_other_tags_gives_nothing(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("T", b"x", tags="BB"))
    async with world.simple_consumer() as consumer:
        consumer.subscribe("T", tags="Aa || Cc")
        begun = world.clock.monotonic()
        assert await consumer.receive(wait=5) == []
        assert world.clock.monotonic() - begun < 6


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("pops", [False, True])
async def test_handlers_get_only_what_has_the_text(orbitmq_world: World, pops: bool, ordered: bool) -> None:
    world = orbitmq_world
    if pops:
        await prepare(world)
    await send_both(world)
    got: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body.decode())

    consumer = world.consumer(
        "cg", ordered=ordered, consume_from=ConsumeFrom.FIRST, allocate=ByBroker(), pop_invisible_for=10
    )
    consumer.subscribe("T", tags="Aa")
    async with consumer:
        running = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: len(got) == 3, 60)
        await world.sleep(60)
        await consumer.close()
        await running
    assert sorted(got) == ["Aa0", "Aa1", "Aa2"]


async def test_polls_give_only_what_has_the_text(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send_both(world)
    options = {"name_servers": world.name_server, "runtime": world.runtime}
    async with PullConsumer("pull", consume_from=ConsumeFrom.FIRST, **options) as pulling:
        pulling.subscribe("T", tags="Aa")
        got = [message.body.decode() for _ in range(5) for message in await pulling.poll(timeout=3)]
    assert sorted(got) == ["Aa0", "Aa1", "Aa2"]
    async with world.pull_consumer("assigned") as assigned:
        assigned.assign(await assigned.queues("T"), tags="Aa")
        got = [message.body.decode() for _ in range(5) for message in await assigned.poll(timeout=3)]
    assert sorted(got) == ["Aa0", "Aa1", "Aa2"]
