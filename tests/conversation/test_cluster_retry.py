"""Failed and delayed messages with OrbitMQ's clients and brokers, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from orbitmq import Message, ReceivedMessage
from orbitmq.message.record import iter_records
from orbitmq.testing import World

# Delays are short, so that a test does not simulate five hours; levels 3 to 18 are those of the 16 retries.
LEVELS_S = [1, 5, 10, *(1 + number % 4 for number in range(15))]
LEVELS = " ".join(f"{delay}s" for delay in LEVELS_S)

pytestmark = pytest.mark.orbitmq(brokers=2, settings={"messageDelayLevel": LEVELS})


def dead_letters(world: World) -> list[bytes]:
    bodies: list[bytes] = []
    for broker in world.brokers.values():
        found = broker.services.store.get("%DLQ%cg", 0, 0, 32)
        bodies += [record.body for record in iter_records(found.body)]
    return sorted(bodies)


async def consume(
    world: World,
    listener: Callable[[ReceivedMessage], Awaitable[None]],
    *messages: Message,
    seconds: float,
    max_reconsume_times: int = -1,
) -> None:
    """Send messages, and let group ``cg`` consume for ``seconds``."""
    async with (
        world.producer() as producer,
        world.consumer("cg", max_reconsume_times=max_reconsume_times) as one,
    ):
        one.subscribe("T")
        task = asyncio.create_task(one.run(listener))
        for message in messages:
            await producer.send(message)
        await world.sleep(seconds)
    await task


@pytest.mark.behaviour("DQ-01")
async def test_what_always_fails_is_delivered_seventeen_times_and_then_a_dead_letter(
    orbitmq_world: World,
) -> None:
    deliveries: dict[bytes, list[int]] = defaultdict(list)

    async def listener(message: ReceivedMessage) -> None:
        assert message.topic == "T"
        assert message.reconsume_times == len(deliveries[message.body])
        deliveries[message.body].append(orbitmq_world.clock.now_ms())
        if message.body != b"fine":
            raise ValueError("not today")

    messages = [Message("T", body) for body in (b"0", b"fine", b"1", b"2")]
    await consume(orbitmq_world, listener, *messages, seconds=60)
    assert len(deliveries.pop(b"fine")) == 1
    for times in deliveries.values():
        gaps = [(after - before) / 1000 for before, after in pairwise(times)]
        assert len(times) == 17
        for gap, wanted in zip(gaps, LEVELS_S[2:], strict=True):
            assert wanted <= gap <= wanted + 0.5
    assert dead_letters(orbitmq_world) == sorted(deliveries) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("limit", "delivered", "dead"), [(-1, [0, 1, 2], []), (1, [0, 1], [b"x"])], ids=["succeeds", "own limit"]
)
async def test_a_message_comes_again_until_it_succeeds_or_the_consumers_limit_is_reached(
    orbitmq_world: World, limit: int, delivered: list[int], dead: list[bytes]
) -> None:
    deliveries: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        deliveries.append(message.reconsume_times)
        if message.reconsume_times < 2:
            raise ValueError("not today")

    await consume(orbitmq_world, listener, Message("T", b"x"), seconds=30, max_reconsume_times=limit)
    assert deliveries == delivered
    assert dead_letters(orbitmq_world) == dead


async def test_delayed_messages_come_when_they_are_due(orbitmq_world: World) -> None:
    got: dict[bytes, int] = {}

    async def listener(message: ReceivedMessage) -> None:
        got[message.body] = orbitmq_world.clock.now_ms() - message.born_timestamp_ms

    messages = [Message("T", b"0"), *(Message("T", b"%d" % level, delay_level=level) for level in (3, 2, 1))]
    await consume(orbitmq_world, listener, *messages, seconds=15)
    assert sorted(got) == [b"0", b"1", b"2", b"3"]
    for body, delay_ms in ((b"1", 1000), (b"2", 5000), (b"3", 10_000)):
        assert delay_ms <= got[body] <= delay_ms + 100
