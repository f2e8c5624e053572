"""The operations library finds single messages: by position, by unique id, by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.conversation.scripted import running as consuming
from tests.conversation.scripted import until

from orbitmq import (
    BrokerError,
    ConsumeFrom,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    SendResult,
    UnreadableMessage,
    ValidationError,
)
from orbitmq.admin import Admin, ConsumedNow
from orbitmq.cluster.local import LocalCluster
from orbitmq.errors import MessageNotFoundError, TopicNotFoundError
from orbitmq.message.ids import offset_message_id, parse_offset_message_id
from orbitmq.testing import World
from orbitmq.testing.machine.simulated import SimulatedRuntime


@asynccontextmanager
async def cluster(runtime: SimulatedRuntime, **settings: str) -> AsyncIterator[tuple[Producer, Admin]]:
    async with (
        LocalCluster(runtime, brokers=2, root="/c", settings=settings) as servers,
        Admin(servers.name_server, runtime=runtime) as admin,
        Producer("pg", name_servers=servers.name_server, runtime=runtime) as producer,
    ):
        await admin.topics.create("t", queues=2)
        yield producer, admin


async def sent(runtime: SimulatedRuntime, producer: Producer, count: int, **more: Any) -> list[SendResult]:
    results = []
    for number in range(count):
        results.append(await producer.send(Message("t", b"%d" % number, keys=["all", f"k{number}"], **more)))
        await runtime.clock.sleep(0.01)
    await runtime.clock.sleep(1)  # the index holds a record a moment after it is stored
    return results


@pytest.mark.behaviour("MV-13")
async def test_a_message_is_found_by_its_place_and_by_its_unique_id(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        for number, result in enumerate(await sent(runtime, producer, 6, tags="x")):
            by_place = await admin.messages.get(result.offset_message_id)
            by_unique_id = await admin.messages.get(result.message_id, topic="t")
            for message in (by_place, by_unique_id):
                assert message.queue == result.queue
                assert message.queue_offset == result.queue_offset
                assert message.offset_message_id == result.offset_message_id
                assert (message.body, message.tags) == (b"%d" % number, "x")
                assert message.message_id == result.message_id


@pytest.mark.behaviour("MV-13")
async def test_messages_are_found_by_key_on_all_brokers_in_order(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        results = await sent(runtime, producer, 8)
        found = (await admin.messages.find("t", key="all")).whole()
        assert [message.body for message in found] == [b"%d" % number for number in range(8)]
        assert {message.broker_name for message in found} == {"broker-a", "broker-b"}
        (one,) = (await admin.messages.find("t", key="k3")).whole()
        assert one.message_id == results[3].message_id
        assert (await admin.messages.find("t", key="k9")).whole() == []
        assert len((await admin.messages.find("t", key="all", max_messages=1)).whole()) == 2
        before = found[4].stored_at - timedelta(seconds=5)
        # An index entry has the store time in whole seconds.
        assert (await admin.messages.find("t", key="all", end=before)).whole() == []
        assert len((await admin.messages.find("t", key="all", begin=before)).whole()) == 8


@pytest.mark.behaviour("MV-13")
async def test_keys_with_the_same_hash_are_told_apart(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        # "Aa" and "BB" have the same hash in Java.
        await producer.send(Message("t", b"1", keys="Aa"))
        await producer.send(Message("t", b"2", keys="BB"))
        await runtime.clock.sleep(1)
        assert [message.body for message in (await admin.messages.find("t", key="BB")).whole()] == [b"2"]


async def test_a_trace_tells_who_sent_a_message_and_who_got_it(runtime: SimulatedRuntime) -> None:
    async with (
        LocalCluster(runtime, brokers=1, root="/c", settings={"traceTopicEnable": "true"}) as servers,
        Admin(servers.name_server, runtime=runtime) as admin,
    ):
        await admin.topics.create("t", queues=2)
        options: dict[str, Any] = {"name_servers": servers.name_server, "runtime": runtime}
        async with Producer("traced", trace=True, **options) as traced:
            sent = await traced.send(Message("t", b"x"))
        outcomes = iter([RuntimeError("not yet"), None])
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            outcome = next(outcomes)
            if outcome is not None:
                raise outcome
            done.set()

        async with Consumer("cg", trace=True, consume_from=ConsumeFrom.FIRST, **options) as consumer:
            consumer.subscribe("t")
            running = asyncio.create_task(consumer.run(handle))
            await done.wait()
            await consumer.close()
            await running
        await runtime.clock.sleep(2)
        steps = (await admin.messages.trace(sent.message_id)).whole()
        assert [(step.kind, step.group, step.result, step.redeliveries) for step in steps] == [
            ("send", "traced", "success", None),
            ("delivery", "cg", "exception", 0),
            ("delivery", "cg", "success", 1),
        ]
        assert steps[0].topic == "t"
        with pytest.raises(MessageNotFoundError, match=r"no trace of message 00AA.*trace=True"):
            (await admin.messages.trace("00AA")).whole()
        with pytest.raises(ValidationError):
            (await admin.messages.trace("")).whole()


async def test_without_a_trace_topic_there_is_no_trace(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (_, admin):
        with pytest.raises(MessageNotFoundError, match="traceTopicEnable"):
            (await admin.messages.trace("00AA")).whole()


async def test_what_cannot_be_found_says_why(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        (result,) = await sent(runtime, producer, 1)
        host, port, offset = parse_offset_message_id(result.offset_message_id)
        with pytest.raises(MessageNotFoundError, match="can not find message"):
            await admin.messages.get(offset_message_id(host, port, offset + 1_000_000))
        with pytest.raises(ValidationError, match="is not 32 or 56 hexadecimal digits"):
            await admin.messages.get("4711")
        with pytest.raises(
            ValidationError, match=r"192\.0\.2\.1:1 is not the address of a broker; a unique id"
        ):
            await admin.messages.get(offset_message_id("192.0.2.1", 1, 0))
        with pytest.raises(MessageNotFoundError, match="with the unique id 4711 in t"):
            await admin.messages.get("4711", topic="t")
        with pytest.raises(TopicNotFoundError):
            await admin.messages.get("4711", topic="nothing")
        with pytest.raises(TopicNotFoundError):
            (await admin.messages.find("nothing", key="k")).whole()
        with pytest.raises(ValidationError, match="key must not be empty"):
            await admin.messages.find("t", key="")
        with pytest.raises(ValidationError, match="key must be one key, without spaces, got 'a b'"):
            await admin.messages.find("t", key="a b")
        with pytest.raises(ValidationError, match=r"max_messages must be 1 to 2,147,483,647, got 0"):
            (await admin.messages.find("t", key="k", max_messages=0)).whole()


async def test_looking_moves_nobodys_progress(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        results = await sent(runtime, producer, 2)
        (await admin.messages.find("t", key="all")).whole()
        await admin.messages.get(results[0].offset_message_id)
        assert (await admin.groups.lag("TOOLS_CONSUMER")).whole() == []


async def test_a_message_that_cannot_be_unpacked_is_shown_all_the_same(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as (producer, admin):
        make = producer._outgoing._compress
        producer._outgoing._compress = lambda body: (b"junk", make(body)[1])  # type: ignore[method-assign]
        result = await producer.send(Message("t", bytes(5000), keys="big"))
        await runtime.clock.sleep(1)
        (found,) = (await admin.messages.find("t", key="big")).whole()
        for message in (found, await admin.messages.get(result.offset_message_id)):
            assert isinstance(message, UnreadableMessage)
            assert message.stored_body == b"junk"


@pytest.mark.orbitmq(brokers=2)
async def test_fewer_queues_hide_messages_and_are_refused(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        await admin.topics.create("t", queues=4)
        told = await admin.topics.would_hide("t", 2)
        assert "with 2 no consumer gets the messages in queues 2 to 3 any more. Keep 4 queues, or" in told
        assert "in queue 3 any more" in await admin.topics.would_hide("t", 3)
        assert [await admin.topics.would_hide(topic, 4) for topic in ("t", "new")] == ["", ""]
        await admin.topics.create("t", queues=8)
        with pytest.raises(ValidationError, match="no consumer gets the messages in queues 2 to 7 any more"):
            await admin.topics.create("t", queues=2)
        assert [entry.read_queues for entry in await admin.topics.route("t")] == [8, 8]


@pytest.mark.behaviour("CS-42")
async def test_a_member_handles_a_stored_message_now(orbitmq_world: World) -> None:
    world = orbitmq_world
    handled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)
        if message.body == b"slow":
            await world.sleep(handled.count(b"slow") * 4 - 4)
        if handled.count(b"bad") > 1:
            raise LookupError("no such order")

    async with world.admin() as admin, world.producer() as producer:
        await admin.topics.create("t", queues=1)
        sent = {body: await producer.send(Message("t", body)) for body in (b"good", b"slow", b"bad")}
        async with consuming(world.consumer("billing", consume_from=ConsumeFrom.FIRST), handle):
            await until(world, lambda: len(handled) == 3, 60)
            await world.sleep(10)
            [member] = (await admin.groups.show("billing")).whole().members
            before = (await admin.groups.lag("billing", topic="t")).whole()

            async def consume(body: bytes, client_id: str = member.client_id) -> ConsumedNow:
                return await admin.messages.consume(sent[body].message_id, "billing", client_id, topic="t")

            done = await consume(b"good")
            assert (done.outcome, done.succeeded, done.took) == ("success", True, 0)
            done = await consume(b"slow")
            assert (done.succeeded, done.took) == (True, 4)
            done = await consume(b"bad")
            assert (done.outcome, done.succeeded) == ("throw exception", False)
            assert "no such order" in done.remark
            with pytest.raises(BrokerError, match="nobody"):
                await consume(b"good", "nobody")
            await world.sleep(60)
            assert sorted(handled) == sorted([b"good", b"slow", b"bad"] * 2)
            assert (await admin.groups.lag("billing", topic="t")).whole() == before
