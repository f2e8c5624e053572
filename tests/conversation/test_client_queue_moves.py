"""Queues that are taken, handed over and moved at the same time: one pull loop each, each with its
progress.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until

from orbitmq import ConsumeFrom, Message, MessageQueue, PullConsumer, ReceivedMessage
from orbitmq.wire.bodies.client import LockBatchResponseBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

QUEUE = MessageQueue("T", "broker-a", 0)
SCRIPTED = MessageQueue("t", "a", 0)


async def filled(world: Any, messages: int) -> None:
    """Create topic T with one queue and this number of messages, from 0 on."""
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
    await sent(world, range(messages))


async def sent(world: Any, numbers: range) -> None:
    async with world.producer() as producer:
        for number in numbers:
            await producer.send(Message("T", b"%d" % number))


async def committed(world: Any) -> int:
    """The offset that the broker has for group cg."""
    async with PullConsumer("asks", name_servers=world.name_server, runtime=world.runtime) as asks:
        return (await asks._membership.calls.committed("cg", QUEUE)).offset


def pull_loops() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if "pull T " in task.get_name()]


# -- taken, handed over and moved at the same time -------------------------------------------------------


@pytest.mark.behaviour("CR-21")
async def test_a_queue_that_is_moved_while_queues_are_shared_has_one_pull_loop(orbitmq_world: Any) -> None:
    world = orbitmq_world
    await filled(world, 10)
    consumer = PullConsumer(
        "cg", name_servers=world.name_server, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe("T")
    got: Counter[bytes] = Counter()
    async with consumer:
        await world.until(lambda: QUEUE in consumer.assignment())
        world.runtime.network.set_delay(0.005, 0.02)
        for number in range(12):
            consumer.subscribe("T")
            await world.sleep(0.002 * number)
            await consumer.seek(QUEUE, 10)
            await world.sleep(0.2)
        assert len(pull_loops()) == 1
        await sent(world, range(10, 15))
        until_s = world.clock.monotonic() + 10
        while world.clock.monotonic() < until_s:
            got.update(message.body for message in await consumer.poll(timeout=0.5))
    assert got == {b"%d" % number: 1 for number in range(10, 15)}


@pytest.mark.behaviour("CR-11")
@pytest.mark.behaviour("CR-21")
async def test_a_queue_taken_again_while_it_is_handed_over_is_committed(orbitmq_world: Any) -> None:
    world = orbitmq_world
    await filled(world, 200)
    got: list[int] = []

    async def slow(message: ReceivedMessage) -> None:
        await world.sleep(0.2)
        got.append(int(message.body))

    consumer = world.consumer("cg", concurrency=1)
    consumer.subscribe("T")
    async with consumer:
        task = asyncio.ensure_future(consumer.run(slow))
        await world.until(lambda: len(got) > 10)
        consumer.unsubscribe("T")
        await world.sleep(0.05)
        consumer.subscribe("T")
        await world.sleep(20)
        assert QUEUE in consumer.assignment()
    await task
    assert await committed(world) == max(got) + 1
    assert len(got) - len(set(got)) <= 1  # a message may be in flight for longer than the hand-over waits


def slow_to_tell(world: Any, seconds: float, told: list[Command]) -> Any:
    """A script for a broker that delays its response with the group's offset on t by this time."""

    async def tell(command: Command) -> Command:
        await world.runtime.clock.sleep(seconds)
        return command.reply(ext={"offset": "0"})

    def script(command: Command) -> Any:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET and command.ext["topic"] == "t":
            told.append(command)
            return tell(command)
        return "default"

    return script


@pytest.mark.behaviour("CR-21")
async def test_a_reset_of_a_queue_that_is_just_taken_counts(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker, asked, got = world.brokers["a"], [], []
    for number in range(10):
        broker.store("t", b"%d" % number)
    broker.script = slow_to_tell(world, 1, asked)

    async def listener(message: ReceivedMessage) -> None:
        got.append(int(message.body))

    async with running(consumer_of(world), listener) as consumer:
        await until(world, lambda: asked)
        await consumer._queues.move({SCRIPTED: 7})
        await until(world, lambda: got)
        await world.runtime.clock.sleep(1)
        assert got == [7, 8, 9]
    assert broker.offsets["cg", "t", 0] == 10


@pytest.mark.behaviour("LK-03")
async def test_a_lock_lost_while_its_queue_is_taken_is_asked_for_again(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker, asked, got, locks = world.brokers["a"], [], [], []
    broker.store("t", b"0")
    slow = slow_to_tell(world, 3, asked)

    def script(command: Command) -> Any:
        if command.code == RequestCode.LOCK_BATCH_MQ:
            locks.append(command)
            if len(locks) == 2:  # the first renewal, while the offset's query is under way
                return command.reply(body=LockBatchResponseBody(set()).encode())
        return slow(command) if len(locks) <= 2 else "default"

    async def listener(message: ReceivedMessage) -> None:
        got.append(int(message.body))

    broker.script = script
    async with running(consumer_of(world, ordered=True), listener):
        await until(world, lambda: got, 60)
    assert len(locks) > 2


# -- in order ------------------------------------------------------------------------------------------


class InOrder:
    """A handler that is slow once, at message 10, and records messages that are handled at the same time."""

    def __init__(self, world: Any, seconds: float) -> None:
        self.seen: list[int] = []
        self.overlaps: list[tuple[int, list[int]]] = []
        self.ended_s = 0.0
        self._clock = world.runtime.clock
        self._seconds = seconds
        self._running: list[int] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        number = int(message.body)
        if self._running:
            self.overlaps.append((number, list(self._running)))
        self._running.append(number)
        self.seen.append(number)
        slow = number == 10 and self.seen.count(10) == 1
        await self._clock.sleep(self._seconds if slow else 0.01)
        self._running.remove(number)
        if slow:
            self.ended_s = self._clock.monotonic()


def scripted(world: Any, messages: int) -> Any:
    world.topics["t"] = {"a": 1}
    for number in range(messages):
        world.brokers["a"].store("t", b"%d" % number)
    return world.brokers["a"]


@pytest.mark.behaviour("CR-18")
@pytest.mark.behaviour("CR-22")
async def test_in_order_a_moved_queue_waits_for_the_handler_of_before(world: Any) -> None:
    broker, handler, clock = scripted(world, 20), InOrder(world, 10), world.runtime.clock
    async with running(consumer_of(world, ordered=True, concurrency=4), handler) as consumer:
        await until(world, lambda: 10 in handler.seen)
        for offset in (15, 5):
            await consumer._queues.move({SCRIPTED: offset})
            assert broker.offsets["cg", "t", 0] == offset
            assert SCRIPTED in consumer.assignment()
        await clock.sleep(5)
        assert len(handler.seen) == 11
        await clock.sleep(10)
    assert handler.overlaps == []
    assert handler.seen == [*range(11), *range(5, 20)]
    assert broker.offsets["cg", "t", 0] == 20


@pytest.mark.behaviour("CR-22")
async def test_in_order_a_handler_that_never_ends_does_not_hold_up_a_reset_for_ever(world: Any) -> None:
    broker, handler, clock = scripted(world, 20), InOrder(world, 10_000), world.runtime.clock
    consumer = consumer_of(world, ordered=True, concurrency=4, consume_timeout=60, close_timeout=1)
    consumer.subscribe("t")
    async with consumer:
        task = asyncio.ensure_future(consumer.run(handler))
        await until(world, lambda: 10 in handler.seen)
        await consumer._queues.move({SCRIPTED: 15})
        await clock.sleep(59)
        assert len(handler.seen) == 11
        await clock.sleep(3)
        assert handler.seen[11:] == [15, 16, 17, 18, 19]
    assert broker.offsets["cg", "t", 0] == 20
    task.cancel()


@pytest.mark.behaviour("CR-22")
@pytest.mark.behaviour("LK-08")
async def test_in_order_a_moved_queue_is_not_unlocked_before_the_handler_of_before_ends(world: Any) -> None:
    broker, handler, clock = scripted(world, 20), InOrder(world, 10), world.runtime.clock
    async with running(consumer_of(world, ordered=True), handler) as consumer:
        await until(world, lambda: 10 in handler.seen)
        await consumer._queues.move({SCRIPTED: 5})
        consumer.unsubscribe("t")
        await clock.sleep(15)
        (unlocked_s,) = broker.times(RequestCode.UNLOCK_BATCH_MQ)
        assert 0 <= unlocked_s - handler.ended_s < 0.1
    assert len(handler.seen) == 11
    assert broker.offsets["cg", "t", 0] == 5


@pytest.mark.behaviour("CR-22")
async def test_in_order_a_loop_that_was_left_holds_up_no_reset(world: Any) -> None:
    """The loop's last message is unsettled and no code works on it; the reset must not wait 15 minutes for
    it.
    """
    scripted(world, 20)
    consumer = consumer_of(world, ordered=True)
    consumer.subscribe("t")
    async with consumer:
        async for message in consumer.messages():
            if message.body == b"10":
                break
        await consumer._queues.move({SCRIPTED: 5})
        begin = world.runtime.clock.monotonic()
        got: list[int] = []
        async for message in consumer.messages():
            got.append(int(message.body))
            if len(got) == 15:
                break
        assert world.runtime.clock.monotonic() - begin < 5
    assert got == list(range(5, 20))
