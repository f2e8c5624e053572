"""A group that is switched between pulling and popping while it consumes loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.conversation.broker_peer import BrokerPeer

from orbitmq import ConsumeFrom, Consumer, Message, OrbitError, SimpleConsumer
from orbitmq.message.model import ReceivedMessage
from orbitmq.testing import World
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode


@pytest.mark.behaviour("PP-11")
async def test_pull_pop_pull(orbitmq_world: World) -> None:
    world = orbitmq_world
    broker = world._cluster.brokers["broker-a"]
    handled: Counter[bytes] = Counter()
    sent: list[bytes] = []
    stop = asyncio.Event()

    async def produce() -> None:
        async with world.producer() as producer:
            while not stop.is_set():
                body = f"m{len(sent)}".encode()
                await producer.send(Message("orders", body))
                sent.append(body)
                await world.sleep(0.05)

    async def switch(peer: BrokerPeer, mode: MessageRequestMode) -> None:
        body = SetMessageRequestModeRequestBody("orders", "billing", mode)
        await peer.ok(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())

    async def pull(seconds: float) -> None:
        async def handle(message: ReceivedMessage) -> None:
            await world.sleep(0.02)
            assert message.topic == "orders"
            handled[message.body] += 1

        consumer: Consumer = world.consumer("billing", consume_from=ConsumeFrom.FIRST)
        async with consumer:
            await consumer.subscribe("orders")
            running = asyncio.ensure_future(consumer.run(handle))
            await world.sleep(seconds)
        await running

    async def pop(seconds: float) -> None:
        """A member that drops every third message, at the end too."""
        until = world.runtime.clock.monotonic() + seconds
        consumer: SimpleConsumer = world.simple_consumer("billing")
        async with consumer:
            consumer.subscribe("orders")
            while world.runtime.clock.monotonic() < until:
                try:
                    messages = await consumer.receive(8, 4, wait=1)
                except OrbitError:
                    continue
                for number, message in enumerate(messages):
                    if number % 3:
                        await consumer.ack(message)
                        handled[message.body] += 1

    peer = BrokerPeer(world.runtime, broker.address)
    async with peer:
        producing = asyncio.ensure_future(produce())
        await pull(10)
        await switch(peer, MessageRequestMode.POP)
        await pop(15)
        await switch(peer, MessageRequestMode.PULL)
        pulling = asyncio.ensure_future(pull(60))
        await world.sleep(10)
        stop.set()
        await producing
        await pulling
    assert set(sent) == set(handled), set(sent) - set(handled)
