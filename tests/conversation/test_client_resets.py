"""Brokers reset a queue's offset, and topics are created again, while messages are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until
from tests.conversation.test_client_queue_moves import (
    QUEUE,
    SCRIPTED,
    InOrder,
    committed,
    filled,
    scripted,
    sent,
)

from orbitmq import ConsumeFrom, Message, MessageQueue, ReceivedMessage
from orbitmq.client.consumer.allocation import by_config
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class Busy:
    """A handler that keeps the message with this body until it is released, and returns from others
    at once.
    """

    def __init__(self, body: bytes) -> None:
        self.got: list[bytes] = []
        self.let_go = asyncio.Event()
        self._body = body

    async def __call__(self, message: ReceivedMessage) -> None:
        self.got.append(message.body)
        if message.body == self._body and self.got.count(message.body) == 1:
            await self.let_go.wait()


@asynccontextmanager
async def busy_member(world: Any, handler: Any, **options: Any) -> AsyncIterator[Any]:
    consumer = world.consumer("cg", **options)
    consumer.subscribe("T")
    async with consumer:
        task = asyncio.ensure_future(consumer.run(handler))
        yield consumer
    await task


async def reset(world: Any, offset: int) -> None:
    """Reset the group as ``orbitmq group reset`` does."""
    async with world.admin() as admin:
        await admin.groups.move("cg", (await admin.groups.plan("cg", {QUEUE: offset})).whole())


@pytest.mark.behaviour("CR-23")
@pytest.mark.parametrize("target", [0, 290])
async def test_a_reset_with_a_message_in_flight_is_not_undone(orbitmq_world: Any, target: int) -> None:
    world = orbitmq_world
    await filled(world, 300)
    handler = Busy(b"280")
    async with busy_member(world, handler) as consumer:
        await world.until(lambda: len(handler.got) == 300)
        await world.sleep(6)
        await reset(world, target)
        again = 300 - target
        await world.until(lambda: len(handler.got) == 300 + again)
        assert consumer._offsets.get(QUEUE) == 300
        await world.sleep(6)
        handler.let_go.set()
        await world.sleep(1)
    assert handler.got[300:] == [b"%d" % number for number in range(target, 300)]
    assert await committed(world) == 300


@pytest.mark.behaviour("CR-23")
async def test_a_reset_is_carried_on_by_the_next_member(orbitmq_world: Any) -> None:
    world = orbitmq_world
    await filled(world, 300)
    first, again = Busy(b"299"), []

    async def slow(message: ReceivedMessage) -> None:
        if len(first.got) < 300:
            await first(message)
            return
        again.append(int(message.body))
        await world.sleep(0.1)

    async with busy_member(world, slow, concurrency=2):
        await world.until(lambda: len(first.got) == 300)
        await world.sleep(6)
        await reset(world, 0)
        await world.until(lambda: len(again) > 40)
        first.let_go.set()
        await world.sleep(6)
    assert len(again) < 200
    async with busy_member(world, slow):
        await world.sleep(60)
    assert set(again) == set(range(300))


@pytest.mark.behaviour("CR-18")
@pytest.mark.behaviour("CR-23")
async def test_in_order_a_reset_at_the_broker_waits_for_the_handler_too(orbitmq_world: Any) -> None:
    world = orbitmq_world
    await filled(world, 20)
    handler = InOrder(world, 20)
    async with busy_member(world, handler, ordered=True, concurrency=4):
        await world.until(lambda: 10 in handler.seen)
        await world.sleep(6)
        await reset(world, 5)
        await world.sleep(30)
    assert handler.overlaps == []
    assert handler.seen == [*range(11), *range(5, 20)]


@pytest.mark.behaviour("CR-23")
async def test_a_queue_that_lost_its_end_gives_what_is_held_again(world: Any) -> None:
    broker = scripted(world, 20)
    handler = Busy(b"5")
    async with running(consumer_of(world, concurrency=1), handler):
        await until(world, lambda: len(handler.got) == 6)
        del broker.queues["t", 0][15:]
        await world.runtime.clock.sleep(1)
        broker.store("t", b"new")
        handler.let_go.set()
        await world.runtime.clock.sleep(1)
    assert set(handler.got) == {*(b"%d" % number for number in range(15)), b"new"}
    assert broker.offsets["cg", "t", 0] == 16


@pytest.mark.behaviour("CR-23")
async def test_what_is_held_is_handled_though_the_broker_deleted_it(world: Any) -> None:
    broker = scripted(world, 40)
    handler = Busy(b"5")

    def script(command: Command) -> Any:
        if command.code == RequestCode.PULL_MESSAGE and command.ext["queueOffset"] == "32":
            found = {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": "36",
                "minOffset": "36",
                "maxOffset": "40",
            }
            return command.reply(ResponseCode.PULL_OFFSET_MOVED, ext=found)
        return "default"

    broker.script = script
    async with running(consumer_of(world, concurrency=1), handler) as consumer:
        await until(world, lambda: len(handler.got) == 6)
        await world.runtime.clock.sleep(1)
        assert consumer._offsets.get(SCRIPTED) == 5
        handler.let_go.set()
        await until(world, lambda: len(handler.got) == 36)
        await world.runtime.clock.sleep(1)
    assert handler.got == [b"%d" % number for number in (*range(32), *range(36, 40))]
    assert broker.offsets["cg", "t", 0] == 40


# -- progress that a broker missed ---------------------------------------------------------------------


B_QUEUE = MessageQueue("t", "b", 0)


async def back(world: Any) -> None:
    await world.brokers["b"].start()
    world.down.clear()


@asynccontextmanager
async def progress_while_away(world: Any, handler: Busy, **options: Any) -> AsyncIterator[Any]:
    """A member that finishes message 4 of b's queue while broker b is away; after the block b is back."""
    world.topics["t"] = {"a": 1, "b": 1}
    broker = world.brokers["b"]
    for number in range(5):
        broker.store("t", b"%d" % number)
    async with running(consumer_of(world, **options), handler) as consumer:
        await until(world, lambda: len(handler.got) == 5)
        await world.runtime.clock.sleep(6)
        world.down.add("b")
        await broker.stop()
        handler.let_go.set()
        await until(world, lambda: B_QUEUE not in consumer.assignment(), 60)
        assert broker.offsets["cg", "t", 0] == 4
        yield consumer
        if "b" in world.down:
            await back(world)
        await until(world, lambda: B_QUEUE in consumer.assignment(), 60)
        await world.runtime.clock.sleep(10)


@pytest.mark.behaviour("CR-24")
@pytest.mark.scripted("a", "b")
async def test_progress_made_while_a_broker_was_away_counts(world: Any) -> None:
    handler = Busy(b"4")
    async with progress_while_away(world, handler):
        world.brokers["b"].offsets["cg", "t", 0] = 3  # the broker has also lost its last seconds
    assert len(handler.got) == 5
    assert world.brokers["b"].offsets["cg", "t", 0] == 5


@pytest.mark.behaviour("CR-24")
@pytest.mark.scripted("a", "b")
async def test_progress_made_while_a_broker_was_away_is_not_that_of_another_queue(world: Any) -> None:
    handler, broker = Busy(b"4"), world.brokers["b"]
    async with progress_while_away(world, handler):
        broker.offsets.clear()
        broker.queues.clear()
        for number in range(3):
            broker.store("t", b"new%d" % number)
    assert handler.got[5:] == [b"new0", b"new1", b"new2"]
    assert broker.offsets["cg", "t", 0] == 3


@pytest.mark.behaviour("CR-24")
@pytest.mark.scripted("a", "b")
async def test_progress_made_while_a_broker_was_away_is_not_that_of_a_longer_topic_made_again(
    world: Any,
) -> None:
    handler, broker, made_at = Busy(b"4"), world.brokers["b"], ["1@10"]

    def script(command: Command) -> Any:
        if command.code != RequestCode.QUERY_CONSUMER_OFFSET or command.ext["topic"] != "t":
            return "default"
        offset = broker.offsets.get(("cg", "t", 0), 0)
        return command.reply(ext={"offset": str(offset), "madeAt": made_at[-1]})

    broker.script = script
    async with progress_while_away(world, handler):
        made_at.append("9@90")
        broker.offsets.clear()
        broker.queues.clear()
        for number in range(9):
            broker.store("t", b"new%d" % number)
    assert handler.got[5:] == [b"new%d" % number for number in range(9)]
    assert broker.offsets["cg", "t", 0] == 9


@pytest.mark.behaviour("CR-24")
@pytest.mark.scripted("a", "b")
async def test_progress_made_while_a_broker_was_away_does_not_count_once_others_went_on(world: Any) -> None:
    handler, broker = Busy(b"4"), world.brokers["b"]

    def all_or_those_of_a(_client: str, queues: Any, members: Any) -> list[MessageQueue]:
        return [queue for queue in queues if len(members) == 1 or queue.broker_name == "a"]

    async with progress_while_away(world, handler, allocate=all_or_those_of_a):
        other = consumer_of(world, allocate=by_config([B_QUEUE]))
        other.subscribe("t")
        async with other:
            await back(world)
            await until(world, lambda: B_QUEUE in other.assignment(), 60)
            await world.runtime.clock.sleep(60)
        broker.offsets["cg", "t", 0] = 2  # the group was reset while the other member had the queue
    assert handler.got[5:] == [b"2", b"3", b"4"]


@pytest.mark.behaviour("CR-24")
async def test_progress_that_was_not_committed_when_others_went_on_is_forgotten(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker, clock, got, lost = world.brokers["a"], world.runtime.clock, [], []
    for number in range(10):
        broker.store("t", b"%d" % number)

    async def listener(message: ReceivedMessage) -> None:
        got.append(int(message.body))

    def script(command: Command) -> Any:
        if lost and command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return command.reply(ResponseCode.SYSTEM_BUSY, "busy")
        return "default"

    broker.script = script
    async with running(consumer_of(world), listener) as consumer:
        await until(world, lambda: len(got) == 10)
        lost.append(True)
        await consumer._queues.drop(SCRIPTED)
        lost.clear()
        # The other member has committed another offset meanwhile, after a reset of the group to 0.
        broker.offsets["cg", "t", 0] = 4
        await clock.sleep(25)
        assert SCRIPTED in consumer.assignment()
    assert got[10:] == list(range(4, 10))


# -- topics created again ------------------------------------------------------------------------------


async def made_anew(world: Any, consumer: Any, fresh: int, pause_s: float) -> None:
    """Delete topic T and create it again a minute later; the first messages follow after this time."""
    async with world.admin() as admin:
        await admin.topics.delete("T")
        await world.sleep(60)
        await admin.topics.create("T", queues=1)
    await consumer.commit()
    await world.sleep(pause_s)
    async with world.producer() as producer:
        for number in range(fresh):
            await producer.send(Message("T", b"new%d" % number))


def new(handler: Busy) -> list[bytes]:
    return [body for body in handler.got if body.startswith(b"new")]


@pytest.mark.behaviour("CR-23")
@pytest.mark.parametrize("fresh", [30, 10])
async def test_a_new_message_at_the_offset_of_one_in_flight_is_handled(
    orbitmq_world: Any, fresh: int
) -> None:
    world = orbitmq_world
    await filled(world, 20)
    handler = Busy(b"5")
    async with busy_member(world, handler) as consumer:
        await world.until(lambda: len(handler.got) == 20)
        await world.sleep(10)
        await made_anew(world, consumer, fresh, 15)
        await world.sleep(10)
        handler.let_go.set()
        await world.sleep(10)
        assert consumer._offsets.get(QUEUE) == fresh
    assert new(handler) == [b"new%d" % number for number in range(fresh)]
    assert await committed(world) == fresh


@pytest.mark.behaviour("CR-25")
@pytest.mark.parametrize("busy", [b"", b"5"])
@pytest.mark.parametrize("fresh", [30, 10])
@pytest.mark.parametrize("consume_from", [ConsumeFrom.FIRST, ConsumeFrom.LAST])
async def test_a_topic_made_anew_is_read_from_its_beginning(
    orbitmq_world: Any, busy: bytes, fresh: int, consume_from: ConsumeFrom
) -> None:
    world = orbitmq_world
    await filled(world, 0)
    handler = Busy(busy)
    async with busy_member(world, handler, consume_from=consume_from) as consumer:
        await world.until(lambda: QUEUE in consumer.assignment())
        await sent(world, range(20))
        await world.until(lambda: len(handler.got) == 20)
        await world.sleep(10)
        await made_anew(world, consumer, fresh, 0)
        await world.sleep(10)
        handler.let_go.set()
        await world.sleep(1)
    assert new(handler) == [b"new%d" % number for number in range(fresh)]
    assert await committed(world) == fresh


@pytest.mark.behaviour("CR-25")
async def test_a_topic_that_was_gone_for_a_moment_is_gone_on_with(world: Any) -> None:
    broker, gone = scripted(world, 20), [True]
    handler = Busy(b"5")

    def script(command: Command) -> Any:
        if gone and command.code in (RequestCode.PULL_MESSAGE, RequestCode.GET_MIN_OFFSET):
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return "default"

    async with running(consumer_of(world), handler) as consumer:
        await until(world, lambda: len(handler.got) == 20)
        await world.runtime.clock.sleep(6)
        broker.script = script
        broker.store("t", b"20")
        await world.runtime.clock.sleep(20)
        assert consumer._offsets.get(SCRIPTED) == -1
        broker.store("t", b"21")
        gone.clear()
        await until(world, lambda: len(handler.got) == 22)
        assert consumer._offsets.get(SCRIPTED) == 5
        handler.let_go.set()
    assert handler.got == [b"%d" % number for number in range(22)]
    assert broker.offsets["cg", "t", 0] == 22
