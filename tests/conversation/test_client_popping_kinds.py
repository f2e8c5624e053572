"""Consumers of other kinds that pop because the broker says so: polled, ordered, in a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.conversation.popping_group import POPPED, dead, member, of_topic, prepare, running, send, switch

from orbitmq import (
    ConsumeFrom,
    Message,
    MessageQueue,
    PullConsumer,
    ReceivedMessage,
    Settled,
)
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.testing import World
from orbitmq.wire.bodies.pop import MessageRequestMode


@pytest.mark.behaviour("SH-04")
async def test_a_consumer_that_commits_by_hand_gets_nothing_until_the_group_pulls_again(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    await prepare(world, 4)
    async with poller(world, auto_commit=False) as consumer:
        assert await consumer.poll(timeout=30) == []
        assert "to pop T, which this consumer cannot" in caplog.text
        await switch(world, MessageRequestMode.PULL)
        got = []
        while len(got) < 4:
            got += await consumer.poll()


def poller(world: World, **options: Any) -> PullConsumer:
    options = {"consume_from": ConsumeFrom.FIRST, "allocate": ByBroker(), **options}
    consumer = PullConsumer("cg", name_servers=world.name_server, runtime=world.runtime, **options)
    consumer.subscribe("T")
    return consumer


@pytest.mark.behaviour("SH-04")
async def test_a_pull_consumer_gives_what_it_popped(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 40)
    got: Counter[bytes] = Counter()
    async with poller(world) as consumer:
        while len(got) < 30:
            for message in await consumer.poll(8):
                got[message.body] += 1
                if message.body == b"3" and got[b"3"] == 1:
                    assert message.retry(delay=20) is Settled.DONE
        assert of_topic(consumer) == POPPED
        left_behind = await consumer.poll(4)
    # The messages of the last poll are not settled: another member gets them at once.
    async with poller(world) as consumer:
        for _ in range(8):
            got.update(message.body for message in await consumer.poll(8, timeout=5))
    assert set(got) == {b"%d" % number for number in range(40)}
    assert {body for body, count in got.items() if count > 1} <= {b"3"}
    assert all(got[message.body] == 1 for message in left_behind)


@pytest.mark.behaviour("SH-04")
async def test_in_order_a_queue_is_with_one_member_and_goes_forward(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 400)
    seen: dict[int, list[int]] = {}
    busy: set[int] = set()
    failed: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        assert message.queue_id not in busy
        busy.add(message.queue_id)
        await world.sleep(0.005)
        busy.discard(message.queue_id)
        if message.queue_offset == 7 and message.queue_id not in failed:
            failed.add(message.queue_id)
            raise RuntimeError("once")
        seen.setdefault(message.queue_id, []).append(message.queue_offset)

    members = [member(world, ordered=True, failure_pause=0.1) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for one in members:
            await stack.enter_async_context(running(one, handle))
        await world.until(lambda: sum(map(len, seen.values())) == 400, 60)
        await world.sleep(90)
    assert seen == {queue_id: list(range(100)) for queue_id in range(4)}
    assert failed == set(range(4))


@pytest.mark.behaviour("SH-04")
async def test_in_order_after_a_message_whose_time_is_over_all_behind_it_come_again(
    orbitmq_world: World,
) -> None:
    """A broker that is away redelivers messages although a member still works on the first of them."""
    world = orbitmq_world
    await prepare(world, 40)
    seen: dict[int, list[int]] = {}

    async def handle(message: ReceivedMessage) -> None:
        seen.setdefault(message.queue_id, []).append(message.queue_offset)
        if message.queue_offset == 2 and seen[message.queue_id].count(2) == 1:
            await world.sleep(30)

    async with running(member(world, ordered=True, pop_invisible_for=5), handle):
        await world.until(lambda: sum(map(len, seen.values())) == 12)
        await world.stop_broker("broker-a")
        await world.sleep(20)
        await world.start_broker("broker-a")
        await world.until(lambda: all(queue[-1] == 9 for queue in seen.values()), 60)
        await world.sleep(30)
    for offsets in seen.values():
        again = offsets.index(2, 3) if offsets.count(2) == 2 else 3
        assert offsets[again:] == list(range(offsets[again], 10)), offsets


@pytest.mark.behaviour("SH-04")
async def test_in_order_a_queue_whose_time_is_over_before_a_handler_is_free_goes_on(
    orbitmq_world: World,
) -> None:
    """The only handler works on another queue; the broker returns after it has taken back all messages."""
    world = orbitmq_world
    await prepare(world, 40)
    seen: dict[int, list[int]] = {}

    async def handle(message: ReceivedMessage) -> None:
        first = not seen
        seen.setdefault(message.queue_id, []).append(message.queue_offset)
        if first:
            await world.sleep(12)

    async with running(member(world, ordered=True, pop_invisible_for=5, concurrency=1), handle):
        await world.until(lambda: seen)
        await world.sleep(1)
        await world.stop_broker("broker-a")
        await world.sleep(15)
        await world.start_broker("broker-a")
        await world.until(lambda: len(seen) == 4 and all(queue[-1] == 9 for queue in seen.values()), 90)


@pytest.mark.behaviour("SH-04")
async def test_in_order_what_is_rejected_is_dead_and_its_queue_goes_on(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world, 8)
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"1":
            message.reject("broken")
        elif message.body == b"2":
            raise RuntimeError("never")
        else:
            got.append(message.body)

    async with running(member(world, ordered=True, failure_pause=0.1, max_reconsume_times=2), handle):
        await world.until(lambda: len(got) == 6, 30)
        await world.sleep(10)
    assert await dead(world) == [b"1", b"2"]


@pytest.mark.behaviour("SH-03")
async def test_a_member_pops_the_queues_of_its_share(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    await switch(world, MessageRequestMode.POP, share=1)
    got: dict[str, set[int]] = {}
    handled: Counter[bytes] = Counter()

    def keeper(name: str) -> Callable[[ReceivedMessage], Any]:
        async def keep(message: ReceivedMessage) -> None:
            got.setdefault(name, set()).add(message.queue_id)
            handled[message.body] += 1

        return keep

    members = [member(world) for _ in range(4)]
    async with AsyncExitStack() as stack:
        for number, one in enumerate(members):
            await stack.enter_async_context(running(one, keeper(str(number))))
        await world.until(lambda: all(len(of_topic(one)) == 2 for one in members))
        await send(world, 200)
        await world.until(lambda: len(handled) == 200, 30)
        for number, one in enumerate(members):
            assert got[str(number)] <= {queue.queue_id for queue in of_topic(one)}
    assert set(handled.values()) == {1}


@pytest.mark.behaviour("SH-03")
async def test_inside_a_namespace(orbitmq_world: World) -> None:
    world = orbitmq_world
    got: Counter[bytes] = Counter()

    async def handle(message: ReceivedMessage) -> None:
        assert message.topic == "T"
        got[message.body] += 1
        if message.body == b"fails" and not message.reconsume_times:
            raise RuntimeError("once")

    async with world.admin() as admin:
        await admin.topics.create("ns%T", queues=4)
    await switch(world, MessageRequestMode.POP, inside="ns%")
    consumer = member(world, namespace="ns")
    async with running(consumer, handle), world.producer() as producer:
        await world.until(lambda: MessageQueue("ns%T", "broker-a", -1) in consumer.assignment())
        for body in (b"works", b"fails"):
            await producer.send(Message("ns%T", body))
        await world.until(lambda: got[b"fails"] == 2, 30)
        await world.sleep(90)
    assert got == Counter({b"works": 1, b"fails": 2})
