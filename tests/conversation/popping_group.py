"""A group whose consumers the broker tells to pop: how tests switch it, fill its topic and run its
members.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.conversation.broker_peer import BrokerPeer

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    MessageQueue,
    ReceivedMessage,
)
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.testing import World
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode

POPPED = [MessageQueue("T", "broker-a", -1)]
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


async def switch(world: World, mode: MessageRequestMode, share: int = 0, inside: str = "") -> None:
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        body = SetMessageRequestModeRequestBody(f"{inside}T", f"{inside}cg", mode, share)
        await peer.ok(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())


async def prepare(world: World, messages: int = 0) -> None:
    """Create a topic that the group is to pop, with this number of messages."""
    async with world.admin() as admin:
        await admin.topics.create("T", queues=4)
    await switch(world, MessageRequestMode.POP)
    await send(world, messages)


async def send(world: World, messages: int) -> None:
    async with world.producer() as producer:
        for number in range(messages):
            await producer.send(Message("T", b"%d" % number))


def member(world: World, **options: Any) -> Consumer:
    consumer = world.consumer("cg", allocate=ByBroker(), consume_from=ConsumeFrom.FIRST, **options)
    consumer.subscribe("T")
    return consumer


@asynccontextmanager
async def running(consumer: Consumer, handler: Callable[[Any], Any], **options: Any) -> AsyncIterator[None]:
    async with consumer:
        work = asyncio.ensure_future(consumer.run(handler, **options))
        yield
    await work


def of_topic(consumer: Consumer) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment() if queue.topic == "T"]


async def dead(world: World) -> list[bytes]:
    found: list[bytes] = []
    consumer = world.consumer("reader", consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("%DLQ%cg")

    async def keep(message: ReceivedMessage) -> None:
        found.append(message.body)

    async with running(consumer, keep):
        await world.sleep(10)
    return sorted(found)
