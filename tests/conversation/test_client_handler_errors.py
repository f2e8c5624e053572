"""The report on a failed handler: one line, and the traceback of the user's code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orbitmq import Consumer, Message, SimpleConsumer
from orbitmq.client.consumer.direct import consume_directly
from orbitmq.testing import World


async def the_users_function(_given: object) -> None:
    await asyncio.sleep(0)
    raise KeyError("price")


def the_users_plain_function(_given: object) -> None:
    raise KeyError("price")


async def by_handler(consumer: Consumer) -> None:
    await consumer.run(the_users_function)


async def by_plain_handler(consumer: Consumer) -> None:
    await consumer.run(the_users_plain_function)


async def by_batch(consumer: Consumer) -> None:
    await consumer.run(the_users_function, batch=8)


async def by_topic(consumer: Consumer) -> None:
    consumer.on("orders")(the_users_function)
    await consumer.run()


async def by_topic_in_batches(consumer: Consumer) -> None:
    consumer.on("orders")(the_users_function)
    await consumer.run(batch=8)


async def by_block(consumer: Consumer) -> None:
    async for message in consumer:
        async with message.process():
            await the_users_function(message)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.exc_text or "" for record in caplog.records if "fail" in record.getMessage()]


@pytest.mark.behaviour("CR-28")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "door", [by_handler, by_plain_handler, by_batch, by_topic, by_topic_in_batches, by_block]
)
async def test_a_failed_handler_is_logged_with_its_traceback(
    orbitmq_world: World,
    caplog: pytest.LogCaptureFixture,
    door: Callable[[Any], Awaitable[None]],
    ordered: bool,
) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("orders", b"a"))
    consumer = world.consumer(ordered=ordered)
    consumer.subscribe("orders")
    with caplog.at_level(logging.WARNING):
        async with consumer:
            running = asyncio.ensure_future(door(consumer))
            while not failures(caplog):
                await world.sleep(0.1)
            await consumer.close()
            await running
    assert "in the_users_" in failures(caplog)[0]
    assert "KeyError: 'price'" in failures(caplog)[0]


@pytest.mark.behaviour("CR-28")
async def test_a_failed_handler_of_a_simple_consumer_is_logged_with_its_traceback(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("orders", b"a"))
    consumer: SimpleConsumer = world.simple_consumer()
    consumer.subscribe("orders")
    with caplog.at_level(logging.WARNING):
        async with consumer:
            running = asyncio.ensure_future(consumer.run(the_users_function))
            while not failures(caplog):
                await world.sleep(0.1)
            await consumer.close()
            await running
    assert "in the_users_function" in failures(caplog)[0]


@pytest.mark.behaviour("CR-28")
async def test_a_handler_that_fails_on_request_is_logged_with_its_traceback(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    async with world.producer() as producer, world.simple_consumer() as consumer:
        await producer.send(Message("orders", b"a"))
        consumer.subscribe("orders")
        [message] = await consumer.receive(1)
        with caplog.at_level(logging.WARNING):
            await consume_directly(the_users_function, message, world.clock, in_batch=False)
    assert "in the_users_function" in failures(caplog)[0]
