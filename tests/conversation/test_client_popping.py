"""A push consumer whose broker tells it to pop: same handlers and settling, other requests to the broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.popping_group import (
    POPPED,
    QUEUES,
    dead,
    member,
    of_topic,
    prepare,
    running,
    send,
    switch,
)

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    OrbitError,
    ReceivedMessage,
    Settled,
)
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.message import property_names
from orbitmq.testing import World
from orbitmq.wire.bodies.client import ConsumerRunningInfo, GetConsumerListByGroupResponseBody
from orbitmq.wire.bodies.pop import MessageRequestMode
from orbitmq.wire.codes import RequestCode


@pytest.mark.behaviour("SH-03")
async def test_switched_to_pop_and_back_under_load_nothing_is_lost(orbitmq_world: World) -> None:
    world = orbitmq_world
    handled: Counter[bytes] = Counter()
    popped: set[bytes] = set()
    failed: set[bytes] = set()
    sent: list[bytes] = []
    stop = asyncio.Event()
    await prepare(world)
    await switch(world, MessageRequestMode.PULL)

    async def produce() -> None:
        async with world.producer() as producer:
            while not stop.is_set():
                body = b"m%d" % len(sent)
                await producer.send(Message("T", body))
                sent.append(body)
                await world.sleep(0.01)

    async def handle(message: ReceivedMessage) -> None:
        assert message.topic == "T"
        await world.sleep(0.05)
        if len(failed) < len(sent) // 50 and message.body not in failed:
            failed.add(message.body)
            raise RuntimeError("not the first time")
        if property_names.POP_CK in message.properties:
            popped.add(message.body)
        handled[message.body] += 1

    members = [member(world) for _ in range(2)]
    async with running(members[0], handle), running(members[1], handle):
        await world.until(lambda: sorted(of_topic(members[0]) + of_topic(members[1])) == QUEUES)
        producing = asyncio.ensure_future(produce())
        for _ in range(3):
            await world.sleep(3)
            await switch(world, MessageRequestMode.POP)
            await world.until(lambda: all(of_topic(one) == POPPED for one in members))
            before = len(popped)
            await world.sleep(3)
            assert len(popped) > before
            await switch(world, MessageRequestMode.PULL)
            await world.until(lambda: sorted(of_topic(members[0]) + of_topic(members[1])) == QUEUES)
        stop.set()
        await producing
        await world.until(lambda: len(handled) == len(sent), 120)
        await world.sleep(120)
    assert set(handled) == set(sent)
    assert failed
    # Handlers that end while a queue is handed over (assigned_queues.DRAIN_S) get no message twice either.
    assert sum(handled.values()) == len(sent)


@pytest.mark.parametrize("shape", ["single", "plain", "batch", "iteration", "batches"])
@pytest.mark.behaviour("SH-03")
async def test_every_shape_of_handler(orbitmq_world: World, shape: str) -> None:
    """One message is handled, one fails once and is then handled, one is rejected; each ends as it should."""
    world = orbitmq_world
    await prepare(world, 40)
    got: Counter[bytes] = Counter()

    def settle(message: ReceivedMessage) -> None:
        got[message.body] += 1
        if message.body == b"3" and message.reconsume_times == 0:
            assert message.retry(delay=20) is Settled.DONE
        elif message.body == b"4":
            assert message.reject("broken") is Settled.DONE
        elif message.body == b"5":
            assert message.ack() is Settled.DONE
            assert message.ack() is Settled.ALREADY

    async def single(message: ReceivedMessage) -> None:
        settle(message)

    def batch(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            settle(message)

    async def loop(consumer: Consumer) -> None:
        async for message in consumer:
            settle(message)

    async def loop_over_batches(consumer: Consumer) -> None:
        async for messages in consumer.batches(7):
            batch(messages)

    async with member(world) as consumer:
        work = {
            "single": lambda: consumer.run(single),
            "plain": lambda: consumer.run(settle),
            "batch": lambda: consumer.run(batch, batch=8),
            "iteration": lambda: loop(consumer),
            "batches": lambda: loop_over_batches(consumer),
        }
        working = asyncio.ensure_future(work[shape]())
        await world.until(lambda: sum(got.values()) == 41, 40)
        await world.sleep(150)
    await working
    assert got == Counter({b"%d" % number: 1 for number in range(40)} | {b"3": 2})
    assert await dead(world) == [b"4"]


@pytest.mark.behaviour("SH-03")
async def test_a_failure_comes_again_later_each_time_and_ends_as_a_dead_letter(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 1)
    at: list[float] = []

    async def fail(message: ReceivedMessage) -> None:
        assert message.reconsume_times == len(at)
        at.append(world.runtime.clock.monotonic())
        raise RuntimeError("never")

    async with running(member(world, max_reconsume_times=2), fail):
        await world.until(lambda: len(at) == 3, 60)
        await world.sleep(300)
    assert len(at) == 3
    assert 10 <= at[1] - at[0] <= 12
    assert 30 <= at[2] - at[1] <= 32
    assert await dead(world) == [b"0"]


@pytest.mark.behaviour("SH-03")
async def test_a_message_is_ours_for_as_long_as_its_handler_runs_or_it_waits(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 3)
    got: Counter[bytes] = Counter()

    async def slow(message: ReceivedMessage) -> None:
        got[message.body] += 1
        await world.sleep(150)

    async with running(member(world, concurrency=1, pop_invisible_for=5), slow), running(member(world), slow):
        await world.sleep(3 * 150 + 60)
    assert got == Counter({b"0": 1, b"1": 1, b"2": 1})


@pytest.mark.behaviour("SH-03")
async def test_what_takes_too_long_comes_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 1)
    got: list[int] = []

    async def stuck(message: ReceivedMessage) -> None:
        got.append(message.reconsume_times)
        if len(got) == 1:
            await world.sleep(200)
            assert message.ack() is Settled.GONE

    async with running(member(world, consume_timeout=30), stuck):
        await world.sleep(300)
    assert got == [0, 1]


@pytest.mark.behaviour("SH-03")
async def test_the_flow_limits_hold(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 100)
    free = asyncio.Event()
    got: set[bytes] = set()
    other: set[bytes] = set()

    async def blocked(message: ReceivedMessage) -> None:
        await free.wait()
        got.add(message.body)

    async def fast(message: ReceivedMessage) -> None:
        other.add(message.body)

    async with running(member(world, limits=FlowLimits(popped=10), pop_batch_size=8), blocked):
        await world.sleep(5)
        async with running(member(world), fast):
            await world.until(lambda: len(other) == 84)
            await world.sleep(5)
            assert len(other) == 84
        free.set()
        await world.until(lambda: len(got) == 16)


@pytest.mark.behaviour("SH-03")
async def test_closing_gives_back_what_no_handler_has_begun_with(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 20)
    begun: list[bytes] = []
    got: Counter[bytes] = Counter()

    async def slow(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await world.sleep(3)
        got[message.body] += 1

    async def fast(message: ReceivedMessage) -> None:
        got[message.body] += 1

    async with running(member(world, concurrency=1), slow):
        await world.until(lambda: begun)
    assert got == Counter(begun)
    async with running(member(world), fast):
        await world.until(lambda: len(got) == 20, 10)
        await world.sleep(120)
    assert set(got.values()) == {1}


@pytest.mark.behaviour("SH-03")
async def test_pauses_and_unsubscribing(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 10)
    got: list[bytes] = []
    again: list[bytes] = []

    async def keep(message: ReceivedMessage) -> None:
        got.append(message.body)
        if len(got) == 5:
            consumer.pause("T")

    async def keep_again(message: ReceivedMessage) -> None:
        again.append(message.body)

    consumer = member(world, concurrency=1)
    async with running(consumer, keep):
        await world.until(lambda: len(got) == 5)
        await world.sleep(90)
        assert len(got) == 5
        consumer.unsubscribe("T")
        await world.until(lambda: not of_topic(consumer))
        async with running(member(world), keep_again):
            await world.until(lambda: len(again) == 5, 30)
    assert len(set(got + again)) == 10


@pytest.mark.behaviour("SH-03")
async def test_a_broker_that_is_away_for_longer_than_the_invisible_time(orbitmq_world: World) -> None:
    """Messages that wait for a handler are dropped at the end of their invisible time, and are
    redelivered.
    """
    world = orbitmq_world
    await prepare(world, 6)
    got: Counter[bytes] = Counter()
    free = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        got[message.body] += 1
        await free.wait()

    async with running(member(world, concurrency=1, pop_invisible_for=5), handle):
        await world.until(lambda: got)
        await world.stop_broker("broker-a")
        await world.sleep(60)
        free.set()
        await world.sleep(5)
        assert sum(got.values()) == 1
        await world.start_broker("broker-a")
        await world.until(lambda: len(got) == 6, 120)
        await world.sleep(120)
    assert sum(got.values()) == 7  # the first message could not be acknowledged in time


@pytest.mark.behaviour("SH-03")
async def test_what_a_paused_topic_holds_blocks_no_other_topic(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 10)
    got: Counter[str] = Counter()

    async def keep(message: ReceivedMessage) -> None:
        got[message.topic] += 1
        if message.topic == "T":
            consumer.pause("T")

    async with world.admin() as admin:
        await admin.topics.create("U", queues=1)
    consumer = member(world, concurrency=1, limits=FlowLimits(total_bytes=1))
    consumer.subscribe("U")
    async with running(consumer, keep):
        await world.until(lambda: got["T"])
        async with world.producer() as producer:
            await producer.send(Message("U", b"more than the limit"))
        await world.until(lambda: got["U"], 20)
        consumer.resume()
        await world.until(lambda: got["T"] > 1, 20)


@pytest.mark.behaviour("SH-03")
async def test_a_pop_that_waits_takes_nothing_from_a_group_that_pulls_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    got: Counter[bytes] = Counter()

    async def keep(message: ReceivedMessage) -> None:
        got[message.body] += 1

    consumer = member(world)
    async with running(consumer, keep):
        await world.until(lambda: of_topic(consumer) == POPPED)
        await world.sleep(3)
        await switch(world, MessageRequestMode.PULL)
        await world.until(lambda: of_topic(consumer) == QUEUES)
        await send(world, 8)
        await world.until(lambda: len(got) == 8)
        await world.sleep(90)
    assert set(got.values()) == {1}


@pytest.mark.parametrize("orbitmq_seed", range(3))
@pytest.mark.behaviour("SH-03")
async def test_a_broker_that_crashes_while_the_group_is_switched(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    handled: Counter[bytes] = Counter()
    sent: list[bytes] = []
    stop = asyncio.Event()

    async def produce() -> None:
        async with world.producer() as producer:
            number = 0
            while not stop.is_set():
                number += 1
                with suppress(OrbitError):
                    await producer.send(Message("T", b"%d" % number))
                    sent.append(b"%d" % number)
                await world.sleep(0.02)

    async def handle(message: ReceivedMessage) -> None:
        await world.sleep(0.05)
        handled[message.body] += 1

    async with running(member(world), handle), running(member(world, pop_invisible_for=10), handle):
        producing = asyncio.ensure_future(produce())
        for mode in (MessageRequestMode.POP, MessageRequestMode.PULL, MessageRequestMode.POP):
            await switch(world, mode)
            await world.sleep(2)
            world.crash("broker-a")
            await world.sleep(1)
            await world.start_broker("broker-a")
        await world.sleep(2)
        stop.set()
        await producing
        await world.until(lambda: set(sent) <= set(handled), 200)
    # At most the messages in flight at the crash are delivered twice.
    assert sum(handled.values()) - len(handled) <= 3 * 20


@pytest.mark.behaviour("SH-03")
async def test_operators_see_what_is_popped(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 3)
    free = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await free.wait()

    consumer = member(world)
    async with (
        running(consumer, handle),
        BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer,
    ):
        await world.sleep(5)
        found = await peer.ok(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="cg")
        (client_id,) = GetConsumerListByGroupResponseBody.decode(found.body).consumer_id_list
        asked = await peer.ok(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="cg", clientId=client_id)
        table = ConsumerRunningInfo.decode(asked.body).mq_pop_table
        assert {place: info.wait_ack_count for place, info in table.items()} == {POPPED[0]: 3}
        free.set()


@pytest.mark.behaviour("SH-03")
async def test_a_handler_that_outlives_its_consumer_acknowledges_nothing(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 1)
    got: list[int] = []
    told: list[Settled] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.reconsume_times)
        if len(got) == 1:
            await world.sleep(10)
            told.append(message.ack())

    async with running(member(world, close_timeout=1, pop_invisible_for=5), handle):
        await world.until(lambda: got)
    assert told == [Settled.GONE]
    async with running(member(world), handle):
        await world.until(lambda: len(got) == 2, 20)
    assert got == [0, 1]


@pytest.mark.behaviour("CR-27")
async def test_a_new_group_that_pops_reads_a_young_queue_from_its_beginning(orbitmq_world: World) -> None:
    """The group must not begin with the newest message: a topic created by its first message would lose the
    rest.
    """
    world = orbitmq_world
    await prepare(world, 12)
    handled: Counter[bytes] = Counter()

    async def handler(message: ReceivedMessage) -> None:
        handled[message.body] += 1

    consumer = world.consumer("cg", allocate=ByBroker(), consume_from=ConsumeFrom.LAST)
    consumer.subscribe("T")
    async with running(consumer, handler):
        await world.until(lambda: len(handled) == 12)
    assert handled == Counter(b"%d" % number for number in range(12))
