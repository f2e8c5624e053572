"""A broker reports a topic as missing and then has it again: messages of the same topic are not read
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until
from tests.conversation.test_client_queue_moves import QUEUE, SCRIPTED, scripted
from tests.conversation.test_client_resets import Busy
from tests.replicas import ACTING, MASTER, SLAVE

from orbitmq import ConsumeFrom, Message, PullConsumer, ReceivedMessage
from orbitmq.testing import World
from orbitmq.testing.machines import Keep
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

pytestmark = pytest.mark.behaviour("CR-25")


def says_it_is_gone(broker: Any) -> list[bool]:
    """The next pull gets TOPIC_NOT_EXIST as soon as the list has an item."""
    gone: list[bool] = []

    def script(command: Command) -> Command | str:
        pulls = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        if gone and command.code in pulls and command.ext["topic"] == "t":
            gone.clear()
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return "default"

    broker.script = script
    return gone


@pytest.mark.parametrize("consume_from", [ConsumeFrom.FIRST, ConsumeFrom.LAST])
async def test_a_member_that_commits_nothing_at_the_broker_reads_nothing_again(
    world: Any, consume_from: ConsumeFrom
) -> None:
    broker = scripted(world, 20)
    gone = says_it_is_gone(broker)
    handler = Busy(b"")
    async with running(consumer_of(world, broadcast=True, consume_from=consume_from), handler) as consumer:
        await until(world, lambda: SCRIPTED in consumer.assignment())
        await world.runtime.clock.sleep(12)
        gone.append(True)
        await world.runtime.clock.sleep(20)
        broker.store("t", b"20")
        await world.runtime.clock.sleep(5)
    first = 0 if consume_from is ConsumeFrom.FIRST else 20
    assert handler.got == [b"%d" % number for number in range(first, 21)]


async def test_who_keeps_the_offsets_elsewhere_reads_nothing_again(world: Any) -> None:
    gone = says_it_is_gone(scripted(world, 20))
    consumer = PullConsumer(
        "cg",
        name_servers=world.name_servers,
        runtime=world.runtime,
        consume_from=ConsumeFrom.FIRST,
        auto_commit=False,
    )
    consumer.subscribe("t")
    got: list[bytes] = []
    async with consumer:
        await until(world, lambda: SCRIPTED in consumer.assignment())
        await consumer.seek(SCRIPTED, 15)
        for turn in range(10):
            got += [message.body for message in await consumer.poll(timeout=3)]
            if turn == 4:
                gone.append(True)
                await world.runtime.clock.sleep(20)
    assert got == [b"%d" % number for number in range(15, 20)]


async def test_the_oldest_message_may_be_in_flight(world: Any) -> None:
    gone = says_it_is_gone(scripted(world, 20))
    handler = Busy(b"0")
    async with running(consumer_of(world), handler):
        await until(world, lambda: len(handler.got) == 20)
        await world.runtime.clock.sleep(12)
        gone.append(True)
        await world.runtime.clock.sleep(20)
        handler.let_go.set()
        await world.runtime.clock.sleep(2)
    assert len(handler.got) == 20


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("acting", [True, False])
@pytest.mark.orbitmq(replicas=2, settings={**ACTING, "slaveReadEnable": "true"})
async def test_a_slave_that_was_not_told_of_the_topic_says_nothing(
    orbitmq_world: World, broadcast: bool, acting: bool
) -> None:
    world = orbitmq_world
    await world.sleep(20)
    hosts = [world.machines[name].host for name in (SLAVE, MASTER)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
    async with world.producer() as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if not broadcast and len(got) == 1:
            await world.sleep(90)

    consumer = world.consumer("cg", broadcast=broadcast)
    consumer.subscribe("T")
    async with consumer:
        running_task = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: len(got) == 20)
        await world.sleep(15)
        if acting:
            world.crash(MASTER, Keep.ANY)
        else:
            await world.stop_broker(MASTER)
        await world.sleep(20)
        world.heal()
        await world.start_broker(MASTER)
        await world.sleep(90)
        async with world.producer() as producer:
            await producer.send(Message("T", b"20"))
        await world.sleep(10)
    await running_task
    assert got == [b"%d" % number for number in range(21)]


# -- topics created again at a broker of OrbitMQ ---------------------------------------------------------


async def sent(world: World, bodies: Iterable[bytes]) -> None:
    async with world.producer() as producer:
        for body in bodies:
            await producer.send(Message("T", body))


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("fresh", [20, 30])
async def test_a_member_that_has_seen_no_message_reads_a_topic_made_again(
    orbitmq_world: World, broadcast: bool, fresh: int
) -> None:
    """The member begins behind the last message of the old topic, so it knows no message's time."""
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
        await sent(world, [b"old%d" % number for number in range(20)])
        before = Busy(b"")
        async with running(world.consumer("cg", broadcast=broadcast), before, "T"):
            await world.until(lambda: len(before.got) == 20)
        handler = Busy(b"")
        async with running(world.consumer("cg", broadcast=broadcast), handler, "T") as consumer:
            await world.until(lambda: bool(consumer.assignment()))
            await world.sleep(10)
            await admin.topics.delete("T")
            await world.sleep(20)
            await admin.topics.create("T", queues=1)
            await sent(world, [b"new%d" % number for number in range(fresh)])
            await world.sleep(60)
    assert handler.got == [b"new%d" % number for number in range(fresh)]


@pytest.mark.parametrize("fresh", [10, 30])
async def test_a_connected_member_needs_no_pause_before_the_topic_is_made_again(
    orbitmq_world: World, fresh: int
) -> None:
    """The deletion ends the waiting pull of the member."""
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
        await sent(world, [b"old%d" % number for number in range(20)])
        handler = Busy(b"")
        async with running(world.consumer("cg"), handler, "T"):
            await world.until(lambda: len(handler.got) == 20)
            await world.sleep(10)
            await admin.topics.delete("T")
            await admin.topics.create("T", queues=1)
            await sent(world, [b"new%d" % number for number in range(fresh)])
            await world.sleep(60)
    assert handler.got[20:] == [b"new%d" % number for number in range(fresh)]


async def test_a_topic_made_again_is_read_on_where_another_member_has_come_to(orbitmq_world: World) -> None:
    """Another member may have had the queue before this one sees the topic again."""
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
        await sent(world, [b"old%d" % number for number in range(20)])
        handler = Busy(b"")
        async with running(world.consumer("cg"), handler, "T"):
            await world.until(lambda: len(handler.got) == 20)
            await world.sleep(10)
            await admin.topics.delete("T")
            await world.sleep(20)
            await admin.topics.create("T", queues=1)
            await sent(world, [b"new%d" % number for number in range(30)])
            async with world.pull_consumer("cg") as other:
                await other.commit({QUEUE: 10})
            assert len(handler.got) == 20
            await world.sleep(60)
    assert handler.got[20:] == [b"new%d" % number for number in range(10, 30)]
