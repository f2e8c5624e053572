"""Tasks that process messages are cancelled midway: no message stays half settled, and no queue stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, until
from tests.conversation.test_client_pull import committed, filled, pull_consumer

from orbitmq import Consumer, ReceivedMessage
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

BACK = RequestCode.CONSUMER_SEND_MSG_BACK

Work = Callable[[Consumer, list[bytes]], Awaitable[None]]


def takes_back_slowly(world: Any, broker: Any) -> None:
    async def slowly(command: Command) -> Command:
        await world.runtime.clock.sleep(1)
        return command.reply()

    broker.script = lambda command: slowly(command) if command.code == BACK else "default"


async def handled(consumer: Consumer, got: list[bytes]) -> None:
    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)
        if message.body == b"0":
            message.reject()

    await consumer.run(handler)


async def handled_in_batches(consumer: Consumer, got: list[bytes]) -> None:
    async def handler(batch: list[ReceivedMessage]) -> None:
        got.extend(message.body for message in batch)
        batch[0].reject()

    await consumer.run(handler, batch=3)


async def looped(consumer: Consumer, got: list[bytes]) -> None:
    async for message in consumer:
        got.append(message.body)
        if message.body == b"0":
            message.reject()


async def looped_in_batches(consumer: Consumer, got: list[bytes]) -> None:
    async for batch in consumer.batches(3):
        got.extend(message.body for message in batch)
        batch[0].reject()


@pytest.mark.behaviour("CR-13")
@pytest.mark.parametrize("ordered", [False, True], ids=["any-order", "ordered"])
@pytest.mark.parametrize("work", [handled, handled_in_batches, looped, looped_in_batches])
async def test_what_is_sent_back_when_its_run_is_cancelled_is_sent_back_to_the_end(
    world: Any, work: Work, ordered: bool
) -> None:
    """Otherwise the message is held for ever, which stops the offset, and in order the whole queue."""
    broker = filled(world, 3)
    takes_back_slowly(world, broker)
    got: list[bytes] = []
    async with consumer_of(world, ordered=ordered, concurrency=1) as consumer:
        consumer.subscribe("t")
        first = asyncio.ensure_future(work(consumer, got))
        await until(world, lambda: broker.requests(BACK))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        again = asyncio.ensure_future(work(consumer, got))
        await world.runtime.clock.sleep(5)
        await consumer.commit()
        assert committed(broker) == 3
    await again
    assert sorted(got) == [b"0", b"1", b"2"]
    assert len(broker.requests(BACK)) == 1


@pytest.mark.behaviour("CR-13")
async def test_a_poll_that_is_cancelled_finishes_what_the_one_before_gave(world: Any) -> None:
    """The handled messages beside the returned one must not be sent back a quarter of an hour later."""
    broker = filled(world, 4)
    takes_back_slowly(world, broker)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        first, *_ = await consumer.poll(4)
        first.retry()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await consumer.poll()
        await consumer.poll(timeout=1)
        await consumer.commit()
        assert committed(broker) == 4
        await world.runtime.clock.sleep(1900)
    assert len(broker.requests(BACK)) == 1


async def test_polls_at_the_same_time_are_finished_by_the_next_one(world: Any) -> None:
    """The next poll settles the messages of all of them, not those of one."""
    broker = filled(world, 0)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        polls = [asyncio.ensure_future(consumer.poll(1)) for _ in range(3)]
        await world.runtime.clock.sleep(1)
        for number in range(3):
            broker.store("t", b"%d" % number)
        found = await asyncio.gather(*polls)
        assert sorted(message.body for (message,) in found) == [b"0", b"1", b"2"]
        await consumer.poll(timeout=0.1)
        await consumer.commit()
        assert committed(broker) == 3
        await world.runtime.clock.sleep(1900)
    assert broker.requests(BACK) == []


@pytest.mark.behaviour("CR-15")
async def test_in_order_a_message_of_a_loop_that_was_left_comes_again_after_the_consume_timeout(
    world: Any,
) -> None:
    """No code holds the message any more; without the timeout its queue would wait until the consumer
    closes.
    """
    filled(world, 3)
    got: list[bytes] = []
    async with consumer_of(world, ordered=True, consume_timeout=60) as consumer:
        consumer.subscribe("t")
        async for message in consumer:
            got.append(message.body)
            break
        begun = world.runtime.clock.monotonic()
        async for message in consumer:
            got.append(message.body)
            if len(got) == 4:
                break
        assert 60 <= world.runtime.clock.monotonic() - begun < 100
    assert got == [b"0", b"0", b"1", b"2"]


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("work", [looped, looped_in_batches])
async def test_a_loop_that_waits_for_a_broker_ends_when_its_consumer_closes(world: Any, work: Work) -> None:
    """The loop ends without an exception: its task was not cancelled by the caller."""
    broker = filled(world, 1)

    async def never(command: Command) -> Command:
        await world.runtime.clock.sleep(60)
        return command.reply()

    broker.script = lambda command: never(command) if command.code == BACK else "default"
    got: list[bytes] = []
    consumer = consumer_of(world, close_timeout=1)
    await consumer.start()
    consumer.subscribe("t")
    looping = asyncio.ensure_future(work(consumer, got))
    await until(world, lambda: broker.requests(BACK))
    await consumer.close()
    await looping
    assert got == [b"0"]
