"""The SimpleConsumer at a real broker in memory: receive, acknowledge, renew, redelivery."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from orbitmq import ConsumeFrom, Message, SimpleConsumer, ValidationError
from orbitmq.broker.broker import Broker
from orbitmq.broker.pop.held_pops import HeldPops
from orbitmq.client.consumer.leases import Lease
from orbitmq.client.core.pop_calls import PopOptions, Receipt
from orbitmq.errors import BrokerError, ClientStateError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.testing import World
from orbitmq.wire.pop_info import ExtraInfo


async def send(world: World, *texts: str, topic: str = "orders", **options: str) -> None:
    async with world.producer() as producer:
        for text in texts:
            await producer.send(Message(topic, text, **options))


def texts(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


def waiting_notices(broker: Broker) -> int:
    """The number of notice requests that wait at a broker for messages."""
    parts = [part for part in broker._lifecycle._components if part.name == "held notices"]
    return sum(len(part) for part in parts if isinstance(part, HeldPops))


@pytest.mark.behaviour("PP-15")
async def test_the_message_of_a_loop_that_was_left_is_renewed_no_more(orbitmq_world: World) -> None:
    """The consumer must not renew it for 15 minutes when no code works on it."""
    world = orbitmq_world
    await send(world, "a", "b")
    async with world.simple_consumer(invisible_for=10) as consumer:
        consumer.subscribe("orders")
        left = await anext(consumer.messages())
        begun = world.clock.monotonic()
        async for message in consumer:
            if message.body == left.body:
                break
        assert world.clock.monotonic() - begun < 12


@pytest.mark.behaviour("PP-15")
async def test_messages_that_a_loop_collected_are_renewed_to_the_last_one(orbitmq_world: World) -> None:
    """Code that settles messages itself leaves the loop to work on them; the last one is renewed like the
    others.
    """
    world = orbitmq_world
    await send(world, "a", "b")
    async with world.simple_consumer(invisible_for=10) as consumer:
        consumer.subscribe("orders")
        collected = []
        async for message in consumer.messages(auto_ack=False):
            collected.append(message)
            if len(collected) == 2:
                break
        await world.clock.sleep(30)
        assert [await consumer.ack(message) for message in collected] == [Settled.DONE] * 2


@pytest.mark.behaviour("CR-29")
async def test_a_second_run_is_refused_until_the_first_has_ended(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    got: list[ReceivedMessage] = []
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        first = asyncio.ensure_future(consumer.run(got.append))
        while not got:
            await world.sleep(0.1)
        with pytest.raises(ClientStateError, match=r"run\(\) of consumer .* is under way already"):
            await consumer.run(got.append)
        first.cancel()
        await asyncio.wait([first])
        await send(world, "b")
        again = asyncio.ensure_future(consumer.run(got.append))
        while len(got) < 2:
            await world.sleep(0.1)
        await consumer.close()
        await again


@pytest.mark.behaviour("PP-12")
async def test_a_clock_that_is_far_behind_the_brokers_is_named(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A receive raises an error instead of being empty."""
    world = orbitmq_world
    await send(world, "a")
    world.machines["broker-a"].skew_ms = 61_000
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        begun = world.clock.monotonic()
        for wait_s in (5, 0):
            with pytest.raises(BrokerError, match="the clock of this machine is behind the broker's"):
                await consumer.receive(wait=wait_s)
        assert world.clock.monotonic() - begun < 6
        with caplog.at_level(logging.WARNING):
            running = asyncio.ensure_future(consumer.run(print))
            await world.sleep(40)
        assert "the clock of this machine is behind the broker's" in caplog.text
        assert len(caplog.records) < 10
        running.cancel()
    world.machines["broker-a"].skew_ms = 59_000
    async with world.simple_consumer("other") as consumer:
        consumer.subscribe("orders")
        assert texts(await consumer.receive()) == ["a"]


async def test_receive_and_acknowledge(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", "b", "c")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        messages = await consumer.receive(32, invisible_for=5)
        assert texts(messages) == ["a", "b", "c"]
        assert await consumer.ack_all(messages) == [Settled.DONE] * 3
        assert await consumer.ack(messages[0]) is Settled.ALREADY
        assert await consumer.receive(wait=30) == []


async def test_what_is_not_acknowledged_comes_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        [first] = await consumer.receive(invisible_for=5)
        asked = world.runtime.clock.monotonic()
        [again] = await consumer.receive(wait=30)
        assert 4.5 <= world.runtime.clock.monotonic() - asked <= 6
        assert (again.body, again.topic, again.reconsume_times) == (b"a", "orders", 1)
        assert await consumer.ack(first) is Settled.GONE
        assert await consumer.ack(again) is Settled.DONE
        assert await consumer.receive(wait=90) == []


@pytest.mark.behaviour("PE-04")
async def test_unless_told_a_message_comes_again_after_a_minute(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        assert texts(await consumer.receive(wait=5)) == ["a"]
        taken_s = world.clock.monotonic()
        while not await consumer.receive(wait=1):
            pass
        assert 60 <= world.clock.monotonic() - taken_s <= 61


async def test_a_longer_invisible_time(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        [message] = await consumer.receive(invisible_for=5)
        await world.sleep(3)
        assert await consumer.change_invisible(message, 60) is Settled.DONE
        assert await consumer.receive(wait=50) == []
        assert await consumer.ack(message) is Settled.DONE
        assert await consumer.receive(wait=60) == []


async def test_iteration_renews_while_a_message_is_handled(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", "b")
    handled = []
    async with world.simple_consumer(invisible_for=4) as consumer:
        consumer.subscribe("orders")
        async for message in consumer:
            await world.sleep(20)
            handled.append(message.body.decode())
            if len(handled) == 2:
                message.ack()
                break
        assert sorted(handled) == ["a", "b"]
        assert await consumer.receive(wait=60) == []


async def test_a_handler_that_fails_gets_the_message_again_later(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    times: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        times.append(world.runtime.clock.monotonic())
        if len(times) < 3:
            raise RuntimeError("not yet")

    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        running = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: len(times) == 3, timeout_s=120)
        await world.sleep(120)
        running.cancel()
    assert len(times) == 3
    # These are delay levels 3 and 4.
    assert 10 <= times[1] - times[0] <= 11
    assert 30 <= times[2] - times[1] <= 31


async def test_a_rejected_message_is_a_dead_letter(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a")
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        [message] = await consumer.receive()
        assert message.reject() is Settled.DONE
        assert await consumer.receive(wait=90) == []
    async with world.simple_consumer("undertaker") as consumer:
        consumer.subscribe("%DLQ%billing")
        [dead] = await consumer.receive()
        assert dead.body == b"a"


async def test_plain_handlers_run_and_what_nobody_awaited_has_failed(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await send(world, "a", "b")
    got: list[tuple[str, int]] = []

    async def really(message: ReceivedMessage) -> None:
        raise AssertionError("never awaited")

    def handle(message: ReceivedMessage) -> object:
        got.append((message.body.decode(), message.reconsume_times))
        return None

    async def forgets(message: ReceivedMessage) -> object:
        return really(message)

    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        running = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: len(got) == 2)
        await world.sleep(120)
        running.cancel()
        assert sorted(got) == [("a", 0), ("b", 0)]
        await send(world, "c")
        running = asyncio.ensure_future(consumer.run(forgets))
        await world.until(lambda: "a coroutine or future that was not awaited" in caplog.text)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        [again] = await consumer.receive(wait=30)
        # The waiting pop of the cancelled run got the message first, and gave it back.
        assert (again.body, again.reconsume_times) == (b"c", 2)


async def test_closing_lets_handlers_end_and_gives_back_what_none_has_begun_with(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await send(world, *map(str, range(10)))
    begun: list[str] = []
    ended: list[str] = []

    async def slow(message: ReceivedMessage) -> None:
        begun.append(message.body.decode())
        await world.sleep(3)
        ended.append(message.body.decode())

    async with world.simple_consumer(concurrency=2) as consumer:
        consumer.subscribe("orders")
        running = asyncio.ensure_future(consumer.run(slow))
        await world.until(lambda: len(begun) == 2)
    await running
    assert ended == begun
    assert len(begun) == 2
    async with world.simple_consumer() as other:
        other.subscribe("orders")
        left: list[ReceivedMessage] = []
        while len(left) < 8:
            # This is earlier than the end of the first consumer's minute.
            left += await other.receive(32, wait=5)
        await other.ack_all(left)
        assert texts(left) == sorted({*map(str, range(10))} - {*begun})
        assert await other.receive(wait=90) == []


@pytest.mark.behaviour("PP-15")
async def test_a_cancelled_run_gives_back_what_no_handler_has_begun_with(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, *map(str, range(16)))
    again: dict[str, float] = {}

    async def slow(message: ReceivedMessage) -> None:
        await world.sleep(5)

    async def handle(message: ReceivedMessage) -> None:
        again.setdefault(message.body.decode(), world.clock.monotonic() - cancelled)

    async with world.simple_consumer(concurrency=1, invisible_for=10) as consumer:
        consumer.subscribe("orders")
        first = asyncio.ensure_future(consumer.run(slow))
        await world.sleep(2)
        first.cancel()
        await asyncio.wait([first])
        cancelled = world.clock.monotonic()
        running = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: len(again) == 16, 30)
    await running
    # The message in the handler's hands is redelivered after its invisible time.
    assert sum(seconds < 2 for seconds in again.values()) == 15


@pytest.mark.behaviour("PP-15")
async def test_a_run_that_is_cancelled_as_messages_come_gives_them_back(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    handled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    async with world.simple_consumer(invisible_for=10) as consumer:
        receive = consumer._asking.receive

        async def received(*args: Any, **options: Any) -> list[Lease]:
            found = await receive(*args, **options)
            # The cancellation comes after this function ends and before `first` continues.
            asyncio.get_running_loop().call_soon(first.cancel)
            return found

        monkeypatch.setattr(consumer._asking, "receive", received)
        consumer.subscribe("orders")
        first = asyncio.ensure_future(consumer.run(handle))
        await send(world, "a")
        await asyncio.wait([first])
        assert first.cancelled()
        assert handled == []
        monkeypatch.undo()
        running = asyncio.ensure_future(consumer.run(handle))
        await world.until(lambda: handled, 8)
    await running
    assert handled == [b"a"]


async def test_settling_after_close_is_told(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", "b")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        one, two = await consumer.receive(2)
    assert [one.ack(), two.retry(), one.ack()] == [Settled.GONE, Settled.GONE, Settled.ALREADY]


async def test_settling_by_the_consumer_takes_level_and_reason(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "a", "b")
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        one, two = sorted(await consumer.receive(2), key=lambda message: message.body)
        asked = world.runtime.clock.monotonic()
        assert await consumer.retry(one, delay_level=2, reason="no stock") is Settled.DONE
        assert await consumer.reject(two, "cannot be read") is Settled.DONE
        [again] = await consumer.receive(wait=30)
        assert again.body == b"a"
        assert 5 <= world.runtime.clock.monotonic() - asked <= 6
        with pytest.raises(ValidationError, match="not both"):
            await consumer.retry(again, delay_level=2, delay=3)
        await consumer.ack(again)
    async with world.simple_consumer("undertaker") as consumer:
        consumer.subscribe("%DLQ%billing")
        [dead] = await consumer.receive()
        assert (dead.body, dead.properties["DLQ_REASON"]) == (b"b", "cannot be read")


@pytest.mark.orbitmq(brokers=2)
async def test_a_broker_that_is_away_costs_no_message_of_another(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
    async with world.producer() as producer:
        for name in world.brokers:
            await producer.send(Message("orders", name), queue=MessageQueue("orders", name, 0))
    begun: list[str] = []

    async def slow(message: ReceivedMessage) -> None:
        begun.append(message.body.decode())
        await world.sleep(30)

    async with world.simple_consumer(invisible_for=2, close_timeout=0) as consumer:
        consumer.subscribe("orders")
        running = asyncio.ensure_future(consumer.run(slow))
        await world.until(lambda: len(begun) == 2)
        world.partition("broker-a")
        await world.sleep(60)
        assert begun.count("broker-b") == 1
        world.heal()
        running.cancel()


async def topic_at_both(world: World) -> list[str]:
    """Create the topic "orders" with one queue at each broker; returns the brokers' names."""
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
    return list(world.brokers)


async def send_to(world: World, broker_name: str, *texts: str) -> None:
    async with world.producer() as producer:
        for text in texts:
            await producer.send(Message("orders", text), queue=MessageQueue("orders", broker_name, 0))


async def begun_at(world: World, consumer: SimpleConsumer, *names: str) -> None:
    """Let the consumer receive and acknowledge a message of each of these brokers."""
    for name in names:
        await send_to(world, name, "first")
    for _ in names:
        await consumer.ack_all(await consumer.receive())


def answers_late(
    world: World,
    consumer: SimpleConsumer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *,
    late_s: float = 1,
    times: int = 1000,
) -> None:
    """Delay a broker's responses to pops, for a number of times."""
    pop, left = consumer._asking._pops.pop, iter(range(times))

    async def late(options: PopOptions, topic: str, broker_name: str, *args: Any, **more: Any) -> Any:
        found = await pop(options, topic, broker_name, *args, **more)
        if broker_name == name and next(left, None) is not None:
            await world.clock.sleep(late_s)
        return found

    monkeypatch.setattr(consumer._asking._pops, "pop", late)


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("PP-16")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_silent_broker_holds_up_no_message_of_another(orbitmq_world: World, ordered: bool) -> None:
    """They must not arrive after the silent broker's 10 s, when their invisible time is over."""
    world = orbitmq_world
    silent, other = await topic_at_both(world)
    async with world.simple_consumer(invisible_for=8, ordered=ordered) as consumer:
        consumer.subscribe("orders")
        await begun_at(world, consumer, silent, other)
        world.partition(silent)
        await send_to(world, other, *"abcdef")
        begun = world.clock.monotonic()
        found: list[str] = []
        while len(found) < 6:
            messages = await consumer.receive(1)
            assert await consumer.ack_all(messages) == [Settled.DONE]
            found += texts(messages)
        assert found == [*"abcdef"]
        assert world.clock.monotonic() - begun < 0.5
        world.heal()
        await send_to(world, silent, "g")
        assert texts(await consumer.receive()) == ["g"]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("PP-16")
async def test_what_comes_late_in_order_is_not_asked_for_again(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same receive must not go on and pop these messages again, with other receipts."""
    world = orbitmq_world
    silent, other = await topic_at_both(world)
    async with world.simple_consumer(invisible_for=8, ordered=True) as consumer:
        consumer.subscribe("orders")
        await begun_at(world, consumer, silent, other)
        answers_late(world, consumer, monkeypatch, silent, times=1)
        await send_to(world, silent, *"abc")
        messages = await consumer.receive(8, wait=5)
        assert texts(messages) == [*"abc"]
        assert await consumer.ack_all(messages) == [Settled.DONE] * 3


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("PP-16")
@pytest.mark.parametrize("late_s", [1, 6])
async def test_what_a_silent_broker_dealt_out_comes_with_its_answer_or_again(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, late_s: int
) -> None:
    world = orbitmq_world
    silent, other = await topic_at_both(world)
    async with world.simple_consumer(invisible_for=8) as consumer:
        consumer.subscribe("orders")
        await begun_at(world, consumer, silent, other)
        await send_to(world, silent, "kept")
        answers_late(world, consumer, monkeypatch, silent, late_s=late_s)
        assert await consumer.receive(wait=0.5) == []
        monkeypatch.undo()
        begun = world.clock.monotonic()
        [message] = await consumer.receive()
        assert message.body == b"kept"
        assert world.clock.monotonic() - begun < late_s
        # The later message has too little of its invisible time left, so it is given back.
        assert message.reconsume_times == (0 if late_s == 1 else 1)
        assert await consumer.ack(message) is Settled.DONE


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("PP-16")
async def test_what_comes_late_is_given_back_by_a_consumer_that_closes(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    silent, _ = await topic_at_both(world)
    await send_to(world, silent, "kept")
    async with world.simple_consumer(invisible_for=60, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        answers_late(world, consumer, monkeypatch, silent)
        assert await consumer.receive(wait=0.5) == []
        await world.clock.sleep(1)
    async with world.simple_consumer(invisible_for=60) as consumer:
        consumer.subscribe("orders")
        [message] = await consumer.receive(wait=5)
        assert message.body == b"kept"


async def test_two_members_share_the_messages(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, *map(str, range(40)))
    async with world.simple_consumer() as one, world.simple_consumer() as other:
        one.subscribe("orders")
        other.subscribe("orders")
        found = [*await one.receive(20), *await other.receive(20)]
        while len(found) < 40:
            found += await one.receive(20) + await other.receive(20)
        assert texts(found) == sorted(map(str, range(40)))


@pytest.mark.orbitmq(brokers=2)
async def test_messages_of_several_brokers_and_topics(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "x")
    await send(world, "y", topic="bills")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        consumer.subscribe("bills")
        found = [message.body for message in await consumer.receive(2)]
        if len(found) < 2:
            found += [message.body for message in await consumer.receive(2)]
        assert sorted(found) == [b"x", b"y"]
        receiving = asyncio.ensure_future(consumer.receive(wait=60))
        await world.sleep(10)
        await send(world, "z", topic="bills")
        asked = world.runtime.clock.monotonic()
        [late] = await receiving
        assert late.body == b"z"
        assert world.runtime.clock.monotonic() - asked < 1


@pytest.mark.orbitmq(brokers=2)
async def test_messages_that_come_one_by_one_are_dealt_out_at_once_and_no_question_stays_behind(
    orbitmq_world: World,
) -> None:
    """A member must not leave notice requests at other brokers, ask for each notice anew, or pause
    for 0.2 s.
    """
    world, clock = orbitmq_world, orbitmq_world.runtime.clock
    late_s: list[float] = []
    async with world.admin() as admin, world.simple_consumer() as consumer, world.producer() as producer:
        for topic in ("orders", "bills"):
            await admin.topics.create(topic, queues=1)
            consumer.subscribe(topic)

        async def receive() -> None:
            while len(late_s) < 100:
                for message in await consumer.receive():
                    late_s.append(clock.monotonic() - float(message.body))
                    message.ack()

        receiving = asyncio.ensure_future(receive())
        await world.sleep(1)
        for number in range(100):
            await producer.send(Message(("orders", "bills")[number % 2], str(clock.monotonic())))
            await world.sleep(0.05)
            assert sum(map(waiting_notices, world.brokers.values())) <= 4
        await receiving
        assert max(late_s) < 0.05


@pytest.mark.orbitmq(brokers=2)
async def test_what_is_there_is_received_though_a_question_waits(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.admin() as admin, world.simple_consumer() as consumer, world.producer() as producer:
        await admin.topics.create("orders", queues=1)
        consumer.subscribe("orders")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(wait=60), 1)
        await producer.send(Message("orders", b"y"))
        assert texts(await consumer.receive(wait=0)) == ["y"]
        assert await consumer.receive(wait=0.05) == []


async def test_tags_and_order(orbitmq_world: World) -> None:
    world = orbitmq_world
    await send(world, "1", "2", tags="new")
    await send(world, "3", tags="old")
    async with world.simple_consumer() as consumer:
        consumer.subscribe("orders", tags="new")
        assert texts(await consumer.receive()) == ["1", "2"]


async def test_ordered_messages_wait_for_the_one_before(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        for number in range(6):
            await producer.send(Message("orders", str(number)), ordering_key="one")
    async with world.simple_consumer(ordered=True) as consumer:
        consumer.subscribe("orders")
        first = await consumer.receive(3, invisible_for=5)
        assert [message.body for message in first] == [b"0", b"1", b"2"]
        assert await consumer.receive(3, wait=2) == []
        await consumer.ack(first[0])
        await consumer.ack(first[2])
        again = await consumer.receive(3, invisible_for=5)
        assert [message.body for message in again] == [b"1", b"3", b"4"]
        assert [message.reconsume_times for message in again] == [1, 0, 0]
        await consumer.ack_all(again)
        last = await consumer.receive(3)
        assert [message.body for message in last] == [b"5"]


@pytest.mark.parametrize(
    "arguments", [{"max_messages": 0}, {"max_messages": 33}, {"invisible_for": 0}, {"invisible_for": 3.2e7}]
)
async def test_numbers_that_no_broker_takes(orbitmq_world: World, arguments: dict[str, float]) -> None:
    async with orbitmq_world.simple_consumer() as consumer:
        consumer.subscribe("orders")
        with pytest.raises(ValidationError, match=next(iter(arguments))):
            await consumer.receive(**arguments)  # type: ignore[arg-type]


def test_a_receipt_knows_its_deadline() -> None:
    receipt = Receipt("T", "T", 7, ExtraInfo.decode("7 1000 500 0 0 broker-a 2 7"))
    assert receipt.deadline_ms == 1500


@pytest.mark.orbitmq(brokers=1, replicas=2, settings={"slaveReadEnable": "true"})
async def test_master_and_slave_know_a_consumer_that_pops(orbitmq_world: World) -> None:
    """A slave that begins to act notifies the consumers that it knows, so it has to know this one at once."""
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("pops", b"1"))
    async with world.simple_consumer("pops_group", consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("pops")
        await consumer.receive(1)
        clients = [broker.services.clients for broker in world.brokers.values()]
        await world.until(lambda: all(each.consumers("pops_group") for each in clients), timeout_s=2)
