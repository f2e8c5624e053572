"""Handlers in every shape: batches, by topic, paused; and the limits of a consumer's held messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until

from orbitmq import MessageQueue, ReceivedMessage, Settled
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message.properties import encode_properties
from orbitmq.wire.codes import RequestCode

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
Batch = list[ReceivedMessage]


def filled(world: Any, messages: int, queues: int = 1) -> Any:
    world.topics["t"] = {"a": queues}
    for number in range(messages):
        properties = encode_properties({"UNIQ_KEY": f"id{number}"})
        world.brokers["a"].store("t", b"%d" % number, number % queues, properties)
    return world.brokers["a"]


def returned(broker: Any) -> dict[str, str]:
    return {command.ext["originMsgId"]: command.ext["delayLevel"] for command in broker.requests(BACK)}


async def run_until(world: Any, consumer: Any, condition: Any, **options: Any) -> None:
    """Let the consumer run with these options until the condition is true."""
    async with consumer:
        task = asyncio.ensure_future(consumer.run(**options))
        await until(world, condition, 30)
        await consumer.close()
        await task


# -- batches ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CR-01")
@pytest.mark.behaviour("CR-03")
async def test_a_batch_is_a_list_and_what_is_left_unsettled_is_done(world: Any) -> None:
    broker = filled(world, 70)
    got: list[list[int]] = []

    async def handler(batch: Batch) -> None:
        got.append([int(message.body) for message in batch])
        for message in batch:
            if int(message.body) % 10 == 3:
                message.retry(delay_level=5)
            elif int(message.body) % 10 == 4:
                message.reject()
            elif int(message.body) % 10 == 5:
                message.ack()

    consumer = consumer_of(world, concurrency=1)
    consumer.subscribe("t")
    await run_until(world, consumer, lambda: sum(map(len, got)) == 70, handler=handler, batch=10)
    assert [number for batch in got for number in batch] == list(range(70))
    assert max(map(len, got)) == 10
    levels = {3: "5", 4: "-1"}
    assert returned(broker) == {f"id{n}": levels[n % 10] for n in range(70) if n % 10 in levels}
    assert broker.offsets["cg", "t", 0] == 70


@pytest.mark.behaviour("CR-04")
async def test_what_a_failing_batch_did_not_settle_comes_again(world: Any) -> None:
    broker = filled(world, 8)

    async def handler(batch: Batch) -> None:
        assert len(batch) == 8
        batch[0].ack()
        batch[1].retry(delay_level=9)
        async with batch[2].process():
            pass
        raise RuntimeError("no more")

    consumer = consumer_of(world)
    consumer.subscribe("t")
    await run_until(world, consumer, lambda: len(broker.requests(BACK)) == 6, handler=handler, batch=32)
    assert returned(broker) == {"id1": "9", "id3": "0", "id4": "0", "id5": "0", "id6": "0", "id7": "0"}
    assert broker.offsets["cg", "t", 0] == 8


@pytest.mark.behaviour("CR-01")
@pytest.mark.parametrize("orbitmq_seed", range(3))
async def test_batches_of_an_ordered_consumer_are_of_one_queue_in_order(world: Any) -> None:
    filled(world, 200, queues=3)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    busy: set[int] = set()
    failures = 0

    async def handler(batch: Batch) -> None:
        nonlocal failures
        (queue_id,) = {message.queue_id for message in batch}
        offsets = [message.queue_offset for message in batch]
        assert offsets == sorted(offsets)
        assert queue_id not in busy
        busy.add(queue_id)
        await world.runtime.clock.sleep(world.runtime.random.uniform(0, 0.02))
        busy.discard(queue_id)
        for message in batch:
            if world.runtime.random.random() < 0.05:
                failures += 1
                raise RuntimeError("sometimes")
            seen[queue_id].append(message.queue_offset)
            message.ack()

    consumer = consumer_of(world, ordered=True, failure_pause=0.02)
    consumer.subscribe("t")
    await run_until(world, consumer, lambda: sum(map(len, seen.values())) == 200, handler=handler, batch=16)
    assert failures
    for offsets in seen.values():
        assert offsets == list(range(len(offsets)))


async def test_batches_for_a_loop(world: Any) -> None:
    broker = filled(world, 40)
    sizes: list[int] = []
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        async for batch in consumer.batches(16):
            sizes.append(len(batch))
            if sum(sizes) == 40:
                batch[0].retry(delay_level=2)
                batch[1].ack()
                break
        assert batch[2].ack() is Settled.DONE
        assert batch[0].ack() is Settled.ALREADY
        await until(world, lambda: broker.requests(BACK))
    assert sizes == [16, 16, 8]
    assert returned(broker) == {"id32": "2"}
    assert broker.offsets["cg", "t", 0] == 35


@pytest.mark.parametrize("size", [0, -1, 10_001, "many", 1.5])
async def test_a_size_of_a_batch_that_is_none_is_refused(world: Any, size: Any) -> None:
    async with consumer_of(world) as consumer:
        with pytest.raises(ValidationError, match="1 to 10,000 messages"):
            await consumer.run(lambda batch: None, batch=size)
        with pytest.raises(ValidationError, match="1 to 10,000 messages"):
            consumer.batches(size)


# -- by topic --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 8])
async def test_a_message_goes_to_the_handler_of_its_subscription(world: Any, batch: int | None) -> None:
    world.topics.update({"t": {"a": 1}, "u": {"a": 1}, "%RETRY%cg": {"a": 1}})
    broker = world.brokers["a"]
    for topic in ("t", "u"):
        broker.store(topic, topic.encode(), 0, encode_properties({"TAGS": "x"}))
        broker.store(topic, topic.encode(), 0, encode_properties({"TAGS": "y", "UNIQ_KEY": f"bad {topic}"}))
        broker.store("%RETRY%cg", b"again " + topic.encode(), 0, encode_properties({"RETRY_TOPIC": topic}))
    broker.store("%RETRY%cg", b"left", 0, encode_properties({"RETRY_TOPIC": "gone", "UNIQ_KEY": "left"}))
    got: dict[str, list[bytes]] = {"t": [], "u": []}
    consumer = consumer_of(world)

    def note(topic: str, messages: Any) -> None:
        for message in messages if batch else [messages]:
            got[topic].append(message.body)

    @consumer.on("t", tags="x")
    async def of_t(messages: Any) -> None:
        note("t", messages)

    @consumer.on("u")
    def of_u(messages: Any) -> None:
        note("u", messages)
        if not batch and messages.tags == "y":
            raise RuntimeError("u fails")

    assert of_t.__name__ == "of_t"
    await run_until(
        world,
        consumer,
        lambda: len(got["t"]) == 2 and len(got["u"]) == 3 and "left" in returned(broker),
        batch=batch,
    )
    assert sorted(got["t"]) == [b"again t", b"t"]
    assert sorted(got["u"]) == [b"again u", b"u", b"u"]
    assert set(returned(broker)) == ({"left"} if batch else {"left", "bad u"})


@pytest.mark.behaviour("CR-01")
@pytest.mark.parametrize("batch", [None, 4])
async def test_a_handler_that_is_registered_while_the_others_run_counts(
    world: Any, batch: int | None
) -> None:
    """Without this the messages of its topic would fail, 16 times, for lack of a handler."""
    world.topics |= {"t": {"a": 1}, "u": {"a": 1}}
    for topic in ("t", "u"):
        world.brokers["a"].store(topic, topic.encode())
    got: list[object] = []
    consumer = consumer_of(world)
    consumer.on("t")(got.append)
    async with consumer:
        running = asyncio.ensure_future(consumer.run(batch=batch))
        await until(world, lambda: got)
        consumer.on("u")(got.append)
        await until(world, lambda: len(got) == 2, 30)
    await running
    assert world.brokers["a"].requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []


@pytest.mark.behaviour("CR-29")
async def test_a_topic_is_subscribed_to_when_its_handler_is_known(world: Any) -> None:
    """Messages that arrive between subscription and handler would be sent back and redelivered 10 s later."""
    world.topics |= {"t": {"a": 1}, "u": {"a": 1}}
    world.brokers["a"].store("u", b"u")
    got: list[object] = []
    consumer = consumer_of(world)
    consumer.on("t")(got.append)
    async with consumer:
        running = asyncio.ensure_future(consumer.run())
        register = consumer.on("u")
        await world.runtime.clock.sleep(5)
        register(got.append)
        await until(world, lambda: got, 30)
        with pytest.raises(ValidationError, match="topic"):
            consumer.on("not a topic")
        with pytest.raises(ValidationError, match="names no tag"):
            consumer.on("u", tags=" || ")
    await running
    assert world.brokers["a"].requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []


@pytest.mark.behaviour("CR-29")
async def test_a_second_run_is_refused_until_the_first_has_ended(world: Any) -> None:
    """Two runs would share the messages at random, and an operator's message would go to the later
    handler.
    """
    filled(world, 4)
    got: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message)

    consumer = consumer_of(world)
    consumer.subscribe("t")
    async with consumer:
        first = asyncio.ensure_future(consumer.run(listener))
        second = asyncio.ensure_future(consumer.run(listener, batch=4))
        with pytest.raises(ClientStateError, match=r"run\(\) of consumer 'cg' is under way already"):
            await second
        first.cancel()
        await asyncio.wait([first])
        third = asyncio.ensure_future(consumer.run(listener))
        await until(world, lambda: len(got) >= 4)
        await consumer.close()
        await third


async def test_without_a_handler_run_says_so(world: Any) -> None:
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        with pytest.raises(ClientStateError, match="no handler"):
            await consumer.run()


# -- pause and resume ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_paused_topic_rests_and_the_others_go_on(world: Any, ordered: bool) -> None:
    world.topics.update({"t": {"a": 1}, "u": {"a": 1}, "%RETRY%cg": {"a": 1}})
    broker = world.brokers["a"]
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with running(consumer_of(world, ordered=ordered), handler) as consumer:
        consumer.subscribe("u")
        await until(world, lambda: len(consumer.assignment()) == 3)
        consumer.pause("t")
        for number in range(3):
            broker.store("t", b"t%d" % number)
            broker.store("u", b"u%d" % number)
        broker.store("%RETRY%cg", b"again t", 0, encode_properties({"RETRY_TOPIC": "t"}))
        await until(world, lambda: len(got) == 3)
        await world.runtime.clock.sleep(40)
        assert sorted(got) == [b"u0", b"u1", b"u2"]
        assert len(consumer.assignment()) == 3
        assert broker.heartbeats
        consumer.resume("t")
        assert await until(world, lambda: len(got) == 7) < 1
        consumer.pause()
        broker.store("u", b"u3")
        await world.runtime.clock.sleep(20)
        assert len(got) == 7
        with pytest.raises(ClientStateError, match=r"only resume\(\)"):
            consumer.resume("u")
        consumer.resume()
        await until(world, lambda: len(got) == 8)
    assert broker.offsets["cg", "t", 0] == 3
    assert [body for body in got if body.startswith(b"t")] == [b"t0", b"t1", b"t2"]


async def test_what_is_held_of_a_paused_topic_does_not_block_the_others(world: Any) -> None:
    world.topics.update({"t": {"a": 1}, "u": {"a": 1}})
    broker = world.brokers["a"]
    gate = asyncio.Event()
    got: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        if message.topic == "t":
            await gate.wait()
        got.append(message.topic)

    limits = FlowLimits(total_bytes=20_000)
    async with running(consumer_of(world, limits=limits, concurrency=2), handler) as consumer:
        for _ in range(4):
            broker.store("t", bytes(10_000))
        await world.runtime.clock.sleep(1)
        consumer.pause("t")
        consumer.subscribe("u")
        broker.store("u", b"x")
        gate.set()
        await until(world, lambda: "u" in got)
        assert got.count("t") == 2
        consumer.resume()
        await until(world, lambda: got.count("t") == 4)
        assert consumer._intake.total.size_bytes == 0


# -- limits ----------------------------------------------------------------------------------------------


async def test_all_queues_together_hold_no_more_than_the_limit(world: Any) -> None:
    queues, size = 8, 1000
    world.topics["t"] = {"a": queues}
    broker = world.brokers["a"]
    for number in range(800):
        broker.store("t", bytes(size), number % queues)
    gate = asyncio.Event()
    done = 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal done
        await gate.wait()
        done += 1

    limits = FlowLimits(total_bytes=100 * size)
    async with running(consumer_of(world, limits=limits), handler) as consumer:
        await world.runtime.clock.sleep(5)
        # One pull of each queue may be under way when the limit is reached.
        assert 100 * size <= consumer._intake.total.size_bytes <= (100 + queues * 32) * size
        gate.set()
        await until(world, lambda: done == 800, 30)
        assert consumer._intake.total.size_bytes == 0
    assert sum(broker.offsets["cg", "t", queue_id] for queue_id in range(queues)) == 800


async def test_a_queue_that_is_given_up_counts_no_longer(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", bytes(1000))

    async def handler(message: ReceivedMessage) -> None:
        await world.runtime.clock.sleep(100)

    async with running(consumer_of(world, close_timeout=0.1), handler) as consumer:
        await until(world, lambda: consumer._intake.total.size_bytes == 1000)
        await consumer._queues.drop(MessageQueue("t", "a", 0))
        assert consumer._intake.total.size_bytes == 0


def test_the_limit_of_all_queues_is_256_mib() -> None:
    assert FlowLimits().total_bytes == 256 * 1024 * 1024
