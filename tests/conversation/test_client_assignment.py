"""Notices of a program's queues, and the waits that it can make: on_assigned, on_revoked, flush."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from orbitmq import (
    AutoBatch,
    ClientStateError,
    Message,
    MessageQueue,
    PullConsumer,
    ReceivedMessage,
    ValidationError,
)
from orbitmq.testing import World

TOPIC = "orders"


@pytest.mark.behaviour("SH-06")
async def test_a_member_hears_which_queues_come_and_go(orbitmq_world: World) -> None:
    world = orbitmq_world
    known: set[MessageQueue] = set()

    async def assigned(queues: list[MessageQueue]) -> None:
        assert queues
        assert known.isdisjoint(queues)
        known.update(queues)

    def revoked(queues: list[MessageQueue]) -> None:
        assert known.issuperset(queues)
        known.difference_update(queues)
        raise RuntimeError("a callback that raises is logged")

    async with world.producer() as producer:
        await producer.send(Message(TOPIC, b"x"))
        queues = sorted(await producer.queues(TOPIC))
    one = world.consumer("group", on_assigned=assigned, on_revoked=revoked)
    one.subscribe(TOPIC)
    async with one:
        await world.until(lambda: known == set(queues))
        async with world.consumer("group") as two:
            two.subscribe(TOPIC)
            await world.until(lambda: len(known) == len(queues) / 2)
            assert known == {queue for queue in one.assignment() if queue.topic == TOPIC}
        await world.until(lambda: known == set(queues))
        one.unsubscribe(TOPIC)
        await world.until(lambda: not known)
        one.subscribe(TOPIC)
        await world.until(lambda: known == set(queues))
    assert not known


def test_a_callback_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="on_assigned must be a function of a list of queues, got 3"):
        PullConsumer("group", on_assigned=3)  # type: ignore[arg-type]


@pytest.mark.behaviour("BA-10")
@pytest.mark.parametrize("options", [{}, {"auto_batch": AutoBatch(linger=1)}, {"max_in_flight": 2}])
async def test_flush_waits_for_all_that_was_sent_before(
    orbitmq_world: World, options: dict[str, Any]
) -> None:
    world = orbitmq_world
    begin = world.clock.monotonic()
    async with world.producer(**options) as producer:
        await producer.flush()  # no send is under way
        results = [producer.submit(Message(TOPIC, b"%d" % number)) for number in range(20)]
        waiting = asyncio.create_task(producer.send(Message(TOPIC, b"awaited")))
        await asyncio.sleep(0)
        await producer.flush()
        assert all(result.done() for result in results)
        assert world.clock.monotonic() - begin < 10
        assert (await waiting).message_id
    with pytest.raises(ClientStateError):
        await producer.flush()


@pytest.mark.behaviour("SH-07")
async def test_a_pattern_takes_the_topics_that_match_also_later_ones(orbitmq_world: World) -> None:
    world = orbitmq_world
    pattern, got = re.compile("orders-.*|.*REPLY.*|TBW102|rmq_sys.*|%.*|broker.*|Default.*"), set[str]()

    async def handle(message: ReceivedMessage) -> None:
        got.add(message.topic)

    async with world.producer() as producer:
        for topic in ("orders-a", "orders", "my-orders-b"):
            await producer.send(Message(topic, b"x"))
        async with world.consumer("group") as consumer:
            consumer.subscribe(pattern)
            consumer.subscribe(re.compile("matches nothing"))
            running = asyncio.create_task(consumer.run(handle))
            await world.until(lambda: got == {"orders-a"})
            await producer.send(Message("orders-c", b"x"))
            await world.until(lambda: "orders-c" in got, 60)
            topics = {queue.topic for queue in consumer.assignment()}
            assert topics == {"orders-a", "orders-c", "%RETRY%group"}
            consumer.unsubscribe(pattern)
            await world.until(lambda: len(consumer.assignment()) == 1)
        await running
    assert got == {"orders-a", "orders-c"}


async def test_a_subscription_by_name_goes_before_a_pattern(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        for number, tag in enumerate(("a", "b")):
            await producer.send(Message(TOPIC, b"%d" % number, tags=tag))
    consumer = world.consumer("group")
    consumer.subscribe(re.compile(TOPIC))
    consumer.subscribe(TOPIC, "b")
    with pytest.raises(ValidationError, match="names no tag"):
        consumer.subscribe(re.compile("x"), "||")
    async with consumer:
        async for message in consumer:
            assert message.body == b"1"
            break


async def test_a_pattern_looks_inside_the_namespace_only(orbitmq_world: World) -> None:
    world, got = orbitmq_world, list[bytes]()
    async with world.producer() as outside, world.producer("inner", namespace="space") as inside:
        await outside.send(Message(TOPIC, b"outside"))
        await inside.send(Message(TOPIC, b"inside"))
    async with world.consumer("group", namespace="space") as consumer:
        consumer.subscribe(re.compile("ord.*"))
        running = asyncio.create_task(consumer.run(lambda message: got.append(message.body)))
        await world.sleep(60)
    await running
    assert got == [b"inside"]


@pytest.mark.behaviour("SH-07")
async def test_a_simple_consumer_receives_from_the_topics_that_match(orbitmq_world: World) -> None:
    world, pattern = orbitmq_world, re.compile("orders-.*")
    async with world.producer() as producer, world.simple_consumer(invisible_for=60) as consumer:
        consumer.subscribe(pattern)
        assert await consumer.receive(wait=1) == []
        with pytest.raises(ValidationError, match="names no tag"):
            consumer.subscribe(re.compile("x"), "||")
        for topic in ("orders-a", "orders", "orders-b"):
            await producer.send(Message(topic, b"x"))
        got: set[str] = set()
        async with asyncio.timeout(120):
            while len(got) < 2:
                for message in await consumer.receive(wait=5):
                    got.add(message.topic)
                    await consumer.ack(message)
        assert got == {"orders-a", "orders-b"}
        consumer.unsubscribe(pattern)
        with pytest.raises(ValidationError, match="subscribe to a topic"):
            await consumer.receive(wait=0)


@pytest.mark.behaviour("SH-07")
@pytest.mark.parametrize("batch", [None, 4])
async def test_a_handler_of_a_pattern_leaves_named_topics_to_theirs(
    orbitmq_world: World, batch: int | None
) -> None:
    world, got = orbitmq_world, set[tuple[str, str]]()

    def noting(name: str) -> Any:
        async def handle(found: Any) -> None:
            got.update((name, message.topic) for message in (found if batch else [found]))

        return handle

    async with world.producer() as producer:
        for topic in ("orders-a", "orders-b"):
            await producer.send(Message(topic, b"x"))
        async with world.consumer("group") as consumer:
            consumer.on(re.compile("orders-.*"))(noting("pattern"))
            consumer.on(re.compile("orders-a"))(noting("second pattern"))
            consumer.on("orders-b")(noting("name"))
            running = asyncio.create_task(consumer.run(batch=batch))
            await world.until(lambda: len(got) == 2, 60)
            await producer.send(Message("orders-c", b"x"))
            await world.until(lambda: ("pattern", "orders-c") in got, 60)
        await running
    assert got == {("pattern", "orders-a"), ("name", "orders-b"), ("pattern", "orders-c")}
