"""The assigned-queue consumer against scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq import AssignedConsumer, ConsumeFrom, MessageQueue
from orbitmq.durations import instant
from orbitmq.errors import ClientStateError, TopicNotFoundError, ValidationError
from orbitmq.message.properties import encode_properties
from orbitmq.transport.errors import TransportError


def assigned_of(world: Any, **options: Any) -> AssignedConsumer:
    return AssignedConsumer("ag", name_servers=world.name_servers, runtime=world.runtime, **options)


@pytest.mark.scripted("a", "b")
async def test_polling_gives_every_message_in_queue_order(world: Any) -> None:
    world.topics["t"] = {"a": 2, "b": 1}
    for number in range(90):
        world.brokers["a" if number % 3 else "b"].store("t", b"%d" % number, (number % 3) // 2)
    async with assigned_of(world) as consumer:
        queues = await consumer.queues("t")
        assert len(queues) == 3
        consumer.assign(queues)
        assert consumer.assignment() == queues
        await consumer.seek_to_begin(*queues)
        got = []
        while messages := await consumer.poll(20, timeout=0.3):
            assert len(messages) <= 20
            got += messages
        assert sorted(int(m.body) for m in got) == list(range(90))
        for queue in queues:
            own = [m.queue_offset for m in got if m.queue == queue]
            assert own == list(range(30))
            assert await consumer.position(queue) == 30


async def test_seek_and_commit(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(10):
        world.brokers["a"].store("t", b"%d" % number)
    queue = MessageQueue("t", "a", 0)
    async with assigned_of(world) as consumer:
        consumer.assign([queue])
        assert await consumer.committed(queue) == -1
        assert await consumer.position(queue) == 10
        assert await consumer.poll(timeout=0.1) == []
        consumer.seek(queue, 7)
        assert [m.body for m in await consumer.poll(2, timeout=1)] == [b"7", b"8"]
        assert await consumer.position(queue) == 9
        await consumer.commit()
        assert await consumer.committed(queue) == 9
        await consumer.commit({queue: 4})
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 10)
        assert await consumer.offset_by_time(queue, instant(5)) == 1
        await consumer.seek_to_end(queue)
        assert await consumer.position(queue) == 10
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([queue])
        assert (await consumer.poll(1))[0].body == b"4"


async def test_a_new_message_wakes_a_waiting_poll(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    queue = MessageQueue("t", "a", 0)
    async with assigned_of(world) as consumer:
        consumer.assign([queue], tags="yes")
        assert await consumer.poll(timeout=0.1) == []
        world.brokers["a"].store("t", b"no", properties=encode_properties({"TAGS": "no"}))
        world.brokers["a"].store("t", b"x", properties=encode_properties({"TAGS": "yes"}))
        begun = world.runtime.clock.monotonic()
        assert [m.body for m in await consumer.poll(timeout=5)] == [b"x"]
        assert world.runtime.clock.monotonic() - begun < 0.1
        consumer.assign([queue])
        assert await consumer.position(queue) == 2
        consumer.assign([])
        assert await consumer.poll(timeout=0.01) == []


@pytest.mark.behaviour("CR-23")
async def test_a_place_outside_a_queue_is_told_and_left(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The position, and what was committed, stayed behind the end: what came there next was skipped."""
    world.topics["t"] = {"a": 1}
    broker, queue = world.brokers["a"], MessageQueue("t", "a", 0)
    for number in range(3):
        broker.store("t", b"%d" % number)
    async with assigned_of(world) as consumer:
        consumer.assign([queue])
        with pytest.raises(ValidationError, match="0 or more"):
            consumer.seek(queue, -1)
        consumer.seek(queue, 9)
        assert await consumer.poll(timeout=0.1) == []
        assert await consumer.position(queue) == 3
        assert "offset 9 is outside 0 to 3, going on at 3" in caplog.text
        await consumer.commit()
        assert await consumer.committed(queue) == 3
        # Named twice it began anew at the committed offset.
        consumer.seek(queue, 1)
        consumer.assign([queue, queue])
        assert await consumer.position(queue) == 1


@pytest.mark.scripted("a", "b")
async def test_failures_are_told_when_nothing_else_comes(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign(await consumer.queues("t"))
        await world.brokers["a"].stop()
        world.brokers["b"].store("t", b"x")
        assert [m.body for m in await consumer.poll(timeout=2)] == [b"x"]
        with pytest.raises(TransportError):
            await consumer.poll(timeout=0.5)
        with pytest.raises(TopicNotFoundError):
            await consumer.queues("unknown")


async def test_misuse_is_named(world: Any) -> None:
    consumer = assigned_of(world)
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClientStateError, match="started already"):
            await consumer.start()
        with pytest.raises(ClientStateError, match="not assigned"):
            consumer.seek(MessageQueue("t", "a", 0), 1)
    await consumer.close()
