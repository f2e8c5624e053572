"""Messages that a member settled while a broker was away stay settled when it returns, however slowly."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, never, running, until
from tests.conversation.test_client_masters_lost import master_is_lost, slave_of
from tests.conversation.test_client_resets import B_QUEUE, Busy, back, progress_while_away

from orbitmq import MessageQueue
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.wire.bodies.pop import MessageQueueAssignment, MessageRequestMode, QueryAssignmentResponseBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

pytestmark = [pytest.mark.behaviour("CR-24"), pytest.mark.scripted("a", "b")]


def shares(world: Any, has: Callable[[str], bool]) -> None:
    """Let brokers assign the queues of the broker names for which ``has`` is true."""

    def script(command: Command) -> Command | str:
        if command.code != RequestCode.QUERY_ASSIGNMENT:
            return "default"
        topic = json.loads(command.body)["topic"]
        queues = [MessageQueue(topic, name, 0) for name in world.topics.get(topic, {}) if has(name)]
        pulled = [MessageQueueAssignment(queue, MessageRequestMode.PULL) for queue in queues]
        return command.reply(body=QueryAssignmentResponseBody(pulled).encode())

    for broker in world.brokers.values():
        broker.script = script


async def test_though_the_broker_is_too_busy_to_say_where_the_queue_ends(world: Any) -> None:
    handler, asked = Busy(b"4"), 0

    def script(command: Command) -> Command | str:
        nonlocal asked
        if command.code == RequestCode.GET_MAX_OFFSET:
            asked += 1
            if asked == 1:
                return command.reply(ResponseCode.SYSTEM_BUSY, "busy")
        return "default"

    async with progress_while_away(world, handler):
        broker = world.brokers["b"]
        broker.script = script
        broker.offsets["cg", "t", 0] = 3
    assert asked > 1
    assert len(handler.got) == 5


@pytest.mark.behaviour("MO-07")
async def test_though_a_slave_that_is_behind_is_in_the_route_by_then(world: Any) -> None:
    """With ordered consumption, the end of the queue is that at the broker that grants the lock."""
    handler, broker = Busy(b"4"), world.brokers["b"]
    async with AsyncExitStack() as stack:
        async with progress_while_away(world, handler, ordered=True) as consumer:
            broker.offsets["cg", "t", 0] = 3
            slave = await stack.enter_async_context(slave_of(world, "b"))
            slave.queues["t", 0] = slave.queues["t", 0][:4]
            slave.script = lambda command: (
                never(command) if command.code == RequestCode.PULL_MESSAGE else "default"
            )

            async def granted_late(command: Command) -> Command:
                master_is_lost(world, slave, "b")
                await consumer._client.refresh("t")
                return broker._on_lock_batch_mq(None, command)

            broker.script = lambda command: (
                granted_late(command) if command.code == RequestCode.LOCK_BATCH_MQ else "default"
            )
        assert [pull.ext["queueOffset"] for pull in slave.requests(RequestCode.PULL_MESSAGE)] == ["5"]


@pytest.mark.parametrize("late_s", [0, 5])
async def test_though_the_broker_that_shares_sees_its_return_later(world: Any, late_s: float) -> None:
    handler, knows = Busy(b"4"), [True]
    shares(world, lambda name: name == "a" or (knows[0] and name not in world.down))
    async with progress_while_away(world, handler, allocate=ByBroker()) as consumer:
        knows[0] = False
        await world.runtime.clock.sleep(3)
        world.brokers["b"].offsets["cg", "t", 0] = 3
        await back(world)
        await world.runtime.clock.sleep(late_s)
        knows[0] = True
        consumer._rebalancer.soon()
    assert len(handler.got) == 5


async def test_though_the_broker_that_shares_sees_its_loss_sooner(world: Any) -> None:
    handler, gone = Busy(b"4"), [False]
    shares(world, lambda name: name == "a" or not gone[0])
    world.topics["t"] = {"a": 1, "b": 1}
    broker = world.brokers["b"]
    for number in range(5):
        broker.store("t", b"%d" % number)
    async with running(consumer_of(world, allocate=ByBroker()), handler) as consumer:
        await until(world, lambda: len(handler.got) == 5)
        await world.runtime.clock.sleep(6)
        await broker.stop()
        gone[0] = True
        handler.let_go.set()
        consumer._rebalancer.soon()
        await until(world, lambda: B_QUEUE not in consumer.assignment(), 60)
        world.down.add("b")
        await world.runtime.clock.sleep(10)
        await broker.start()
        world.down.clear()
        gone[0] = False
        await until(world, lambda: B_QUEUE in consumer.assignment(), 60)
        await world.runtime.clock.sleep(10)
    assert len(handler.got) == 5
