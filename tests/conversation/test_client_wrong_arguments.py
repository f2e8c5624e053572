"""Arguments of a wrong type: each public method of a client refuses them, and names the type that it
needs.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from orbitmq import Message, MessageQueue, Reader
from orbitmq.errors import ValidationError
from orbitmq.testing import World

NO_QUEUES: list[Any] = [None, "t/broker-a/0", 0, ("t", "broker-a", 0), MessageQueue("t", "broker-a", "0")]  # type: ignore[arg-type]
NO_OFFSETS: list[Any] = [None, "5", 1.5, True, -1, 1 << 63, b"5"]
NO_TEXTS: list[Any] = [None, 5, b"t", ["t"]]
NO_MESSAGES: list[Any] = [None, 5, "text", Message("t", b"x")]


@pytest.mark.parametrize("kind", ["assigned", "pull"])
async def test_queues_and_offsets(orbitmq_world: World, kind: str) -> None:
    await ready(orbitmq_world)
    async with consumer_of(orbitmq_world, kind) as consumer:
        queue = MessageQueue("t", "broker-a", 0)
        if kind == "assigned":
            consumer.assign([queue])
        else:
            consumer.subscribe("t")
            while queue not in consumer.assignment():
                await consumer.poll(timeout=0.5)
        for offset in NO_OFFSETS:
            with pytest.raises(ValidationError, match="offset must be 0 or more"):
                await consumer.seek(queue, offset)
        calls = ["position", "committed", "seek_to_begin", "seek_to_end", "min_offset", "max_offset"]
        for wrong in NO_QUEUES:
            for name in calls:
                with pytest.raises(ValidationError, match="queue"):
                    await getattr(consumer, name)(wrong)
            with pytest.raises(ValidationError, match="queue"):
                await consumer.seek(wrong, 0)


async def test_what_is_assigned_and_committed(orbitmq_world: World) -> None:
    await ready(orbitmq_world)
    async with consumer_of(orbitmq_world, "assigned") as consumer:
        queue = MessageQueue("t", "broker-a", 0)
        consumer.assign([queue])
        for wrong in [*NO_QUEUES, queue]:
            with pytest.raises(ValidationError, match="queue"):
                consumer.assign(wrong)
        for wrong in NO_QUEUES:
            with pytest.raises(ValidationError, match="queue"):
                consumer.assign([wrong])
            with pytest.raises(ValidationError, match="queue"):
                await consumer.commit({wrong: 1})
        for wrong in NO_OFFSETS:
            with pytest.raises(ValidationError, match="offset"):
                await consumer.commit({queue: wrong})
        with pytest.raises(ValidationError, match="mapping"):
            await consumer.commit([queue])
        assert consumer.assignment() == [queue]
        assert await consumer.committed(queue) == -1
        for wrong in NO_TEXTS:
            with pytest.raises(ValidationError, match="topic must be a string"):
                await consumer.queues(wrong)


@pytest.mark.parametrize("kind", ["push", "simple", "pull"])
async def test_topics(orbitmq_world: World, kind: str) -> None:
    consumer = consumer_of(orbitmq_world, kind)
    names = ["subscribe", "unsubscribe"] + ([] if kind == "simple" else ["pause", "resume"])
    for wrong in NO_TEXTS:
        for name in names:
            with pytest.raises(ValidationError, match="topic must be a string"):
                getattr(consumer, name)(wrong)
    with pytest.raises(ValidationError, match="topic must be a string or a pattern of one"):
        consumer.subscribe(re.compile(b"t.*"))


@pytest.mark.parametrize("kind", ["push", "simple", "pull"])
async def test_tags_and_sql_together(orbitmq_world: World, kind: str) -> None:
    with pytest.raises(ValidationError, match=r"tags='a' and sql='b = 1': give one of them"):
        consumer_of(orbitmq_world, kind).subscribe("t", "a", sql="b = 1")
    with pytest.raises(ValidationError, match="give one of them"):
        Reader("t", tags="a", sql="b = 1", name_servers="127.0.0.1:1", runtime=orbitmq_world.runtime)


async def test_messages_to_settle(orbitmq_world: World) -> None:
    async with orbitmq_world.simple_consumer() as consumer:
        for wrong in NO_MESSAGES:
            for outcome in (consumer.ack(wrong), consumer.retry(wrong), consumer.reject(wrong)):
                with pytest.raises(ValidationError, match="a received message is needed"):
                    await outcome
            with pytest.raises(ValidationError, match="a received message is needed"):
                await consumer.ack_all([wrong])
            with pytest.raises(ValidationError, match="a received message is needed"):
                await consumer.change_invisible(wrong, 5)


async def test_what_is_sent(orbitmq_world: World) -> None:
    await ready(orbitmq_world)
    async with orbitmq_world.producer() as producer:
        for wrong in NO_MESSAGES[:3]:
            with pytest.raises(ValidationError, match="Message"):
                await producer.send(wrong)
            with pytest.raises(ValidationError, match="Message"):
                await producer.send_batch([wrong])
            with pytest.raises(ValidationError, match="Message"):
                await producer.send_oneway(wrong)
        for queue in NO_QUEUES[1:]:
            with pytest.raises(ValidationError, match="queue"):
                await producer.send(Message("t", b"x"), queue=queue)
            with pytest.raises(ValidationError, match="queue"):
                await producer.send_oneway(Message("t", b"x"), queue=queue)
        with pytest.raises(ValidationError, match="selector must be a function"):
            await producer.send(Message("t", b"x"), selector=5)  # type: ignore[arg-type]
        for topic in NO_TEXTS:
            with pytest.raises(ValidationError, match="topic must be a string"):
                await producer.queues(topic)
            with pytest.raises(ValidationError, match="topic must be a string"):
                await producer.send(Message(topic, b"x"))
            with pytest.raises(ValidationError, match="topic must be a string"):
                await producer.recall(topic, "handle")
            with pytest.raises(ValidationError, match="handle must be a string"):
                await producer.recall("t", topic)
            if topic is not None:
                with pytest.raises(ValidationError, match="done must be a function"):
                    producer.submit(Message("t", b"x"), topic)


async def ready(world: World) -> None:
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)


def consumer_of(world: World, kind: str) -> Any:
    made = {
        "assigned": world.pull_consumer,
        "simple": world.simple_consumer,
        "push": world.consumer,
        "pull": world.pull_consumer,
    }
    return made[kind]("cg")
