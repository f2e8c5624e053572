"""Consumers with SQL92 expressions at a real broker: the messages they get, and where a refusal appears."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import BrokerError, ConsumeFrom, Consumer, Message
from orbitmq.testing import World


async def received(consumer: Consumer, count: int) -> list[bytes]:
    got = []
    async for message in consumer:
        got.append(message.body)
        if len(got) == count:
            break
    return got


async def sent(world: World) -> None:
    async with world.producer() as producer:
        for number in range(10):
            await producer.send(Message("t", b"%d" % number, properties={"a": str(number)}))


@pytest.mark.behaviour("FI-01")
async def test_a_consumer_gets_what_its_expression_matches(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.consumer("cg", consume_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("t", sql="a >= 3 AND a < 6")
        assert sorted(await received(consumer, 3)) == [b"3", b"4", b"5"]


async def test_a_broken_expression_is_heard_where_subscribe_is_awaited(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.consumer("cg") as consumer:
        with pytest.raises(BrokerError, match="column 4") as refused:
            await consumer.subscribe("t", sql="a >")
        assert refused.value.code == 23
        await consumer.subscribe("t", sql="a > 1")


async def test_a_broken_expression_ends_run_and_iteration_before_the_first_message(
    orbitmq_world: World,
) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.consumer("cg") as consumer:
        consumer.subscribe("t", sql="a >")
        with pytest.raises(BrokerError, match="column 4"):
            await consumer.run(lambda message: None)
        with pytest.raises(BrokerError, match="column 4"):
            await received(consumer, 1)
        consumer.unsubscribe("t")
        consumer.subscribe("t")
        task = asyncio.create_task(consumer.run(lambda message: None))
        await asyncio.sleep(1)
    await task


async def test_a_broken_expression_ends_the_start(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    consumer = orbitmq_world.consumer("cg")
    consumer.subscribe("t", sql="a >")
    with pytest.raises(BrokerError, match="column 4"):
        await consumer.start()


@pytest.mark.behaviour("FI-07")
@pytest.mark.orbitmq(settings={"enablePropertyFilter": "false"})
async def test_a_broker_that_must_not_filter_refuses_at_subscribe(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.consumer("cg") as consumer:
        with pytest.raises(BrokerError, match="does not support") as refused:
            await consumer.subscribe("t", sql="a > 1")
        assert refused.value.code == 1


async def test_what_cannot_be_asked_is_not_waited_for(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.consumer("cg", consume_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("unknown", sql="a > 1")
        orbitmq_world.partition("broker-a")
        await consumer.subscribe("t", sql="a = 9")
        orbitmq_world.heal()
        assert await received(consumer, 1) == [b"9"]


@pytest.mark.behaviour("SH-01")
@pytest.mark.orbitmq(settings={"strictSubscription": "true"})
async def test_a_member_that_contradicts_another_hears_of_it(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await sent(orbitmq_world)
    async with (
        orbitmq_world.consumer("cg", consume_from=ConsumeFrom.FIRST) as one,
        orbitmq_world.consumer("cg") as two,
    ):
        one.subscribe("t", sql="a >= 5")
        await orbitmq_world.sleep(2)
        two.subscribe("t", sql="a < 5")
        await orbitmq_world.sleep(30)
        assert sorted(await received(one, 5)) == [b"5", b"6", b"7", b"8", b"9"]
        assert [queue for queue in two.assignment() if queue.topic == "t"] == []
    told = [
        r.message for r in caplog.records if r.levelname == "WARNING" and "strictSubscription" in r.message
    ]
    assert len(told) == 1
    assert "wants 'a < 5'" in told[0]
    assert "wants 'a >= 5'" in told[0]


async def test_a_simple_consumer_filters_and_hears_a_refusal(orbitmq_world: World) -> None:
    await sent(orbitmq_world)
    async with orbitmq_world.simple_consumer("cg", consume_from=ConsumeFrom.FIRST) as consumer:
        with pytest.raises(BrokerError, match="column 4"):
            await consumer.subscribe("t", sql="a >")
        with pytest.raises(BrokerError, match="column 4"):
            await consumer.receive()
        await consumer.subscribe("t", sql="a >= 8")
        got: list[bytes] = []
        while len(got) < 2:
            got += [message.body for message in await consumer.receive(32)]
        assert sorted(got) == [b"8", b"9"]
