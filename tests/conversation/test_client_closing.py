"""Closing runs to its end, whichever caller starts it and whichever stops waiting for it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, never, start, until

from orbitmq import Consumer, Message, Producer, PullConsumer, ReceivedMessage
from orbitmq.client.consumer.simple import SimpleConsumer
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.producer.transactional import TransactionProducer
from orbitmq.errors import ClientStateError
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode

KINDS: dict[str, Callable[..., Any]] = {
    "push": Consumer,
    "pull": PullConsumer,
    "simple": SimpleConsumer,
    "producer": Producer,
    "transactions": lambda group, **options: TransactionProducer(group, check=lambda _: None, **options),
}


def of_t(consumer: Consumer) -> int:
    return len([queue for queue in consumer.assignment() if queue.topic == "T"])


async def four_queues(world: World) -> None:
    async with world.admin() as admin:
        await admin.topics.create("T", queues=4)


async def send(world: World, count: int) -> None:
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message("T", b"%d" % number))


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("twice", [False, True], ids=["timeout", "second-cancel"])
async def test_a_member_whose_close_is_cancelled_leaves_its_group_all_the_same(
    orbitmq_world: World, twice: bool
) -> None:
    world = orbitmq_world
    await four_queues(world)
    begun: list[bytes] = []
    handled: list[bytes] = []
    runs: list[asyncio.Task[None]] = []

    async def slow(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await world.sleep(20)

    async def quick(message: ReceivedMessage) -> None:
        handled.append(message.body)

    async def block() -> None:
        async with leaving:
            runs.append(start(leaving, slow))
            await asyncio.Event().wait()

    staying, leaving = world.consumer("cg"), world.consumer("cg")
    staying.subscribe("T")
    leaving.subscribe("T")
    async with staying:
        runs.append(start(staying, quick))
        work = asyncio.ensure_future(block())
        await world.until(lambda: of_t(staying) == of_t(leaving) == 2)
        await send(world, 8)
        await world.until(lambda: begun)
        if twice:
            work.cancel()
            await world.sleep(1)
            assert not work.done(), "it closes"
            work.cancel()
            await asyncio.wait([work])
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await leaving.close()
            work.cancel()
        await world.until(lambda: of_t(staying) == 4, 25)
        handled.clear()
        await send(world, 40)
        await world.until(lambda: len(set(handled)) == 40)
        await leaving.close()
    await asyncio.gather(*runs)


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("kind", KINDS)
async def test_closing_again_waits_for_the_closing_that_was_cancelled(
    world: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = world.runtime.clock
    world.topics["t"] = {"a": 1}
    client = KINDS[kind]("g", name_servers=world.name_servers, runtime=world.runtime)
    await client.start()
    await client._client.find_route("t", for_send=False)
    await client._client.heartbeat()
    told: list[float] = []

    def silent(command: Any) -> Any:
        if command.code != RequestCode.UNREGISTER_CLIENT:
            return "default"
        told.append(clock.monotonic())
        return never(command)

    world.brokers["a"].script = silent
    begun = clock.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.close()
    await asyncio.gather(client.close(), client.close())
    # The broker that never responds gets 1 s.
    assert clock.monotonic() - begun == pytest.approx(1, abs=0.2)
    assert len(told) == 1
    assert client._client._closed
    await client.close()
    assert len(told) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_close_that_is_cancelled_at_once_closes_all_the_same(world: Any) -> None:
    producer = Producer("g", name_servers=world.name_servers, runtime=world.runtime)
    await producer.start()
    closing = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await until(world, lambda: producer._client._closed, 1)


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("how", ["cancelled", "closed"])
@pytest.mark.parametrize("kind", ["push", "pull", "simple"])
async def test_a_consumer_that_is_stopped_while_it_starts_is_no_member(
    world: Any, kind: str, how: str
) -> None:
    """Otherwise it would hold its share of the queues unread for as long as its shared client runs."""
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda command: (
        never(command) if command.code == RequestCode.CHECK_CLIENT_CONFIG else "default"
    )
    shared = ClientInstance(world.runtime, world.name_servers)
    async with Producer("pg", client=shared):
        consumer = KINDS[kind]("g", client=shared)
        consumer.subscribe("t", sql="a > 1")
        starting = asyncio.ensure_future(consumer.start())
        await world.runtime.clock.sleep(1)
        if how == "cancelled":
            starting.cancel()
        else:
            await consumer.close()
        await asyncio.wait([starting])
        assert shared.consumer("g") is None
        if how == "closed":
            assert isinstance(starting.exception(), ClientStateError)
        await consumer.close()
        again = KINDS[kind]("g", client=shared)
        async with again:
            assert shared.consumer("g") is not None


@pytest.mark.behaviour("SH-05")
async def test_brokers_that_another_group_has_yet_to_be_told_to_hear_of_a_close(world: Any) -> None:
    """Otherwise brokers keep the member for two minutes, and its queues stay unread."""
    world.topics["t"] = {"a": 1}
    shared = ClientInstance(world.runtime, world.name_servers)
    leaving, coming = Consumer("g", client=shared), Consumer("other", client=shared)
    leaving.subscribe("t")
    await leaving.start()
    await until(world, leaving.assignment)
    await coming.start()
    await leaving.close()
    told = world.brokers["a"].requests(RequestCode.UNREGISTER_CLIENT)
    assert [command.ext["consumerGroup"] for command in told] == ["g"]
    await coming.close()


@pytest.mark.behaviour("SH-05")
async def test_an_acknowledgement_that_a_close_gives_up_is_told(orbitmq_world: World) -> None:
    """Otherwise the caller of the acknowledgement waits for ever."""
    world = orbitmq_world
    await four_queues(world)
    await send(world, 1)
    consumer = world.simple_consumer("g", invisible_for=600, close_timeout=3)
    consumer.subscribe("T")
    async with consumer:
        (message,) = await consumer.receive(1)
        world.partition("broker-a")
        acknowledging = asyncio.ensure_future(consumer.ack(message))
        await world.sleep(1)
    with pytest.raises(ClientStateError, match="closed before a broker answered"):
        async with asyncio.timeout(1):
            await acknowledging


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("topics", [1, 2])
async def test_a_request_for_messages_ends_with_its_consumer(orbitmq_world: World, topics: int) -> None:
    """The receive must not continue until its own deadline."""
    world = orbitmq_world
    async with world.admin() as admin:
        for number in range(topics):
            await admin.topics.create(f"T{number}", queues=1)
    consumer = world.simple_consumer("g")
    for number in range(topics):
        consumer.subscribe(f"T{number}")
    async with consumer:
        receiving = asyncio.ensure_future(consumer.receive())
        await world.sleep(1)
    with pytest.raises(ClientStateError):
        async with asyncio.timeout(1):
            await receiving


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("kind", ["run", "poll", "receive", "subscribe"])
async def test_who_waits_for_the_check_of_a_filter_hears_of_the_close(world: Any, kind: str) -> None:
    """The waiting call raises ClientStateError instead of being cancelled."""
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda command: (
        never(command) if command.code == RequestCode.CHECK_CLIENT_CONFIG else "default"
    )
    clients = {"poll": PullConsumer, "receive": SimpleConsumer}
    consumer: Any = clients.get(kind, Consumer)("g", name_servers=world.name_servers, runtime=world.runtime)

    async def work() -> None:
        if kind == "subscribe":
            await consumer.subscribe("t", sql="a > 2")
        else:
            await getattr(consumer, kind)(*([print] if kind == "run" else []))

    async with consumer:
        consumer.subscribe("t", sql="a > 1")
        waiting = asyncio.ensure_future(work())
        await world.runtime.clock.sleep(1)
    with pytest.raises(ClientStateError):
        await waiting


async def test_several_handlers_may_close_their_consumer(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(4):
        world.brokers["a"].store("t", b"%d" % number)
    inside: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        inside.append(message.body)
        await until(world, lambda: len(inside) == 4)
        await consumer.close()

    consumer = consumer_of(world, concurrency=4)
    consumer.subscribe("t")
    begun = world.runtime.clock.monotonic()
    async with consumer:
        await consumer.run(handler)
    assert world.runtime.clock.monotonic() - begun < 2


async def test_what_goes_wrong_while_closing_is_told_and_logged(
    world: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer("g", name_servers=world.name_servers, runtime=world.runtime)
    await producer.start()
    close = producer._client.close

    async def broken() -> None:
        await close()
        await asyncio.sleep(1)
        raise ZeroDivisionError

    monkeypatch.setattr(producer._client, "close", broken)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await producer.close()
    await asyncio.sleep(2)
    assert "producer 'g' did not close as it should" in caplog.text
    with pytest.raises(ZeroDivisionError):
        await producer.close()
    gc.collect()
    assert "never retrieved" not in caplog.text
