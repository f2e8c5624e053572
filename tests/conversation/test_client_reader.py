"""Reading a topic without a group: its start, filter and end, and brokers that are away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbitmq import ClientStateError, ConsumeFrom, Message, MessageQueue, Reader, ValidationError
from orbitmq.durations import instant
from orbitmq.errors import NotAllReadError, OrbitError, TopicNotFoundError
from orbitmq.testing import World

TOPIC = "orders"


async def send(world: World, *texts: str, **options: Any) -> None:
    async with world.producer() as producer:
        for text in texts:
            await producer.send(Message(TOPIC, text, **options))


async def bodies(reader: Reader) -> list[str]:
    return sorted([message.body.decode() async for message in reader])


@pytest.mark.behaviour("CR-32")
async def test_it_reads_to_the_present_end_and_leaves_no_trace(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, *"abcdefgh")
    async with world.reader(TOPIC) as reader:
        for _ in range(2):
            assert await bodies(reader) == list("abcdefgh")
        batches = [batch async for batch in reader.batches()]
        assert sorted(message.body for batch in batches for message in batch) == [
            b"%c" % c for c in b"abcdefgh"
        ]
        for batch in batches:
            offsets = [message.queue_offset for message in batch]
            assert offsets == sorted(offsets)
            assert len({message.queue_id for message in batch}) == 1
    async with world.admin() as admin:
        assert not [group for group in (await admin.groups.list()).found if "TOOLS" in str(group)]


@pytest.mark.behaviour("CR-32")
async def test_it_begins_where_it_is_told(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", "b")
    async with world.reader(TOPIC) as reader:
        ends = await reader.offsets()
        assert sum(ends.values()) - sum((await reader.offsets(ConsumeFrom.FIRST)).values()) == 2
    await world.sleep(10)
    later = instant(world.clock.now_ms())
    await world.sleep(10)
    await send(world, "c", "d")
    for start, found in ((ends, "cd"), (later, "cd"), (later - timedelta(seconds=60), "abcd")):
        async with world.reader(TOPIC, start=start) as reader:
            assert await bodies(reader) == list(found)
    async with world.reader(TOPIC, start=ConsumeFrom.LAST) as reader:
        assert await bodies(reader) == []
    one = next(queue for queue, offset in ends.items() if offset)
    async with world.reader(TOPIC, start={one: 0}) as reader:
        assert {message.queue_id async for message in reader} == {one.queue_id}


async def test_it_reads_what_the_filter_wants(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", tags="new", properties={"price": "3"})
    await send(world, "b", tags="paid", properties={"price": "9"})
    async with world.reader(TOPIC, tags="new || other") as reader:
        assert await bodies(reader) == ["a"]


@pytest.mark.behaviour("CR-32")
async def test_it_follows_a_topic_over_a_restart_of_the_broker_until_it_closes(orbitmq_world: World) -> None:
    world, got = orbitmq_world, list[str]()
    told: list[bool] = []
    await send(world, "old")

    def on_broker(name: str, error: Exception | None) -> None:
        assert name in world.machines
        told.append(error is None)

    async def follow(reader: Reader) -> None:
        async for message in reader:
            got.append(message.body.decode())

    reader = world.reader(TOPIC, start=ConsumeFrom.LAST, follow=True, on_broker=on_broker)
    async with reader:
        following = asyncio.create_task(follow(reader))
        await world.sleep(5)
        await send(world, "a")
        await world.until(lambda: got == ["a"])
        (name,) = world.brokers
        await world.stop_broker(name)
        await world.sleep(60)
        await world.start_broker(name)
        await send(world, "b")
        await world.until(lambda: got == ["a", "b"], 60)
    await following
    assert told == [False, True]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CR-32")
async def test_a_broker_that_is_away_is_named_after_the_messages_of_the_others(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create(TOPIC)
    await send(world, *"abcdefghabcdefgh")
    first, second = sorted(world.brokers)
    async with world.reader(TOPIC) as reader:
        there = [m.body async for m in reader if m.broker_name == first]
        assert there
        await world.stop_broker(second)
        found: list[bytes] = []

        async def read() -> None:
            async for batch in reader.batches():
                found.extend(message.body for message in batch)

        with pytest.raises(NotAllReadError, match=f"missing: {second}: ") as raised:
            await read()
        assert sorted(found) == sorted(there)
        assert list(raised.value.left_out) == [second]
        await world.stop_broker(first)
        with pytest.raises(OrbitError) as all_away:
            await bodies(reader)
        assert not isinstance(all_away.value, NotAllReadError)


async def test_a_loss_is_logged_once_for_all_queues(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    caplog.set_level(logging.INFO, "orbitmq.client")
    await send(world, "a")
    async with world.reader(TOPIC, follow=True) as reader, aclosing(reader.messages()) as messages:
        assert (await anext(messages)).body == b"a"
        (name,) = world.brokers
        await world.stop_broker(name)
        following = asyncio.ensure_future(anext(messages))
        await world.sleep(30)
        await world.start_broker(name)
        await send(world, "b")
        assert (await following).body == b"b"
        await world.sleep(5)
    said = [record.getMessage() for record in caplog.records if "reader" in record.getMessage()]
    assert len(said) == 1
    assert [line for line in caplog.messages if line == f"{name} answers again"]


async def test_it_refuses_what_it_cannot_read(orbitmq_world: World) -> None:
    world = orbitmq_world
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"start": "first"}, "start must be ConsumeFrom.FIRST, ConsumeFrom.LAST, a datetime"),
        ({"start": ConsumeFrom.TIMESTAMP}, "start must be ConsumeFrom.FIRST"),
        ({"start": datetime(2026, 1, 1)}, "start must have a time zone"),
        ({"start": datetime(1969, 1, 1, tzinfo=UTC)}, "start must be an instant from 1970"),
        ({"start": {}}, "start names no queue"),
        ({"start": {MessageQueue(TOPIC, "b", 0): -1}}, "offset must be 0 or more"),
        ({"start": {"queue": 1}}, "queue must be a MessageQueue"),
        ({"tags": "||"}, "names no tag"),
        ({"sql": " "}, "the SQL expression is empty"),
        ({"on_broker": 3}, "on_broker must be a function"),
        ({"folow": True}, "did you mean 'follow'"),
    ]
    for options, text in wrong:
        with pytest.raises(ValidationError, match=text):
            world.reader(TOPIC, **options)
    with pytest.raises(ValidationError, match="topic"):
        world.reader("no topic")
    reader = world.reader("unknown")
    with pytest.raises(ClientStateError, match="reader of 'unknown' is not running"):
        await bodies(reader)
    async with reader:
        with pytest.raises(TopicNotFoundError):
            await bodies(reader)
