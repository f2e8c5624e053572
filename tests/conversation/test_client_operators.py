"""Requests and notices of brokers to clients, and the detector of failed brokers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.scripted import producer_of

from orbitmq import ConsumeFrom, Consumer, Message, MessageQueue, Producer, ReceivedMessage
from orbitmq.message.record import Record, encode_record
from orbitmq.wire.bodies.client import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from orbitmq.wire.bodies.stats import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

QUEUE = MessageQueue("t", "a", 0)


async def settle(world: Any, seconds: float = 0.5) -> None:
    await world.runtime.clock.sleep(seconds)


@pytest.mark.behaviour("DQ-06")
async def test_an_operator_asks_about_progress_and_resets_it(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(10):
        broker.store("t", b"%d" % number)
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"broken":
            raise ValueError("broken")
        if message.body == b"later":
            message.retry(reason="closed on Sundays")
        got.append(message.body)

    consumer = Consumer(
        "cg", name_servers=world.name_servers, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe("t")
    async with consumer:
        task = asyncio.create_task(consumer.run(listener))
        await settle(world)
        (connection,) = broker.connections.values()

        async def ask(code: int, body: bytes = b"", **ext: str) -> Command:
            answer = await connection.request(Command(code=code, ext=ext, body=body), 3000)
            assert isinstance(answer, Command)
            return answer

        info = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="cg", clientId="x")
        decoded = ConsumerRunningInfo.decode(info.body)
        assert decoded.mq_table[QUEUE].commit_offset == 10
        assert decoded.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {s.topic for s in decoded.subscription_set} == {"t", "%RETRY%cg"}
        status = await ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, group="cg", topic="t")
        assert GetConsumerStatusBody.decode(status.body).message_queue_table == {QUEUE: 10}
        unknown = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="other", clientId="x")
        assert (unknown.code, unknown.remark) == (
            1,
            "The Consumer Group <other> not exist in this consumer",
        )
        assert (await ask(999)).code == 3

        for body, expected in (
            (b"now", CMResult.CR_SUCCESS),
            (b"later", CMResult.CR_LATER),
            (b"broken", CMResult.CR_THROW_EXCEPTION),
        ):
            record = encode_record(Record("t", body, store_host=("127.0.0.1", 1)))
            direct = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, record, consumerGroup="cg", clientId="x")
            assert ConsumeMessageDirectlyResult.decode(direct.body).consume_result is expected
        assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        broken = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, b"junk", consumerGroup="cg", clientId="x")
        assert broken.code == 1

        got.clear()
        connection.oneway(
            Command(
                code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ext={"group": "cg", "topic": "t", "timestamp": "0", "isForce": "true"},
                body=ResetOffsetBody({QUEUE: 7, MessageQueue("other", "a", 0): 1}).encode(java_keys=True),
            )
        )
        await settle(world)
        assert got == [b"7", b"8", b"9"]
    await task
    assert broker.offsets["cg", "t", 0] == 10


@pytest.mark.behaviour("FT-11")
@pytest.mark.behaviour("FT-28")
@pytest.mark.scripted("a", "b")
async def test_the_detector_finds_a_broker_that_can_be_reached_again(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    producer = Producer(
        "pg",
        name_servers=world.name_servers,
        runtime=world.runtime,
        send_latency_fault_enable=True,
        fault_profile="5.x",
        start_detector_enable=True,
    )
    async with producer:
        await world.brokers["a"].stop()
        for _ in range(4):
            assert (await producer.send(Message("t", b"x"))).queue.broker_name == "b"

        def reachable() -> bool:
            return next(i.reachable for i in producer.fault_table() if i.broker_name == "a")

        assert not reachable()
        await settle(world, 4)
        assert not reachable()
        await world.brokers["a"].start()
        await settle(world, 4)
        assert reachable()


@pytest.mark.behaviour("FT-28")
@pytest.mark.scripted("a", "b")
async def test_the_detector_probes_every_3_s_and_waits_200_ms(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    broker, clock = world.brokers["a"], world.runtime.clock
    producer = producer_of(
        world, send_latency_fault_enable=True, fault_profile="5.x", start_detector_enable=True
    )

    async def slow(command: Command) -> Command:
        await clock.sleep(answer_after_s)
        return command.reply(1, "any answer will do")

    async with producer:
        answer_after_s = 0.25
        broker.script = slow
        for _ in range(2):
            assert (await producer.send(Message("t", b"x"))).queue.broker_name == "b"
        await broker.stop()
        assert (await producer.send(Message("t", b"x"))).queue.broker_name == "b"
        await broker.start()
        await settle(world, 13)
        probes = broker.times(RequestCode.GET_MAX_OFFSET)
        # A round begins 3 s after the end of the one before, which waited 200 ms.
        assert [two - one for one, two in pairwise(probes)] == pytest.approx([3.2, 3.2, 3.2], abs=0.02)

        def reachable() -> bool:
            return next(i.reachable for i in producer.fault_table() if i.broker_name == "a")

        assert not reachable()
        answer_after_s = 0.15
        await settle(world, 4)
        assert reachable()


@pytest.mark.behaviour("FT-11")
@pytest.mark.scripted("a", "b")
async def test_5x_without_a_detector_a_lost_connection_still_counts_as_reachable(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    producer = Producer(
        "pg",
        name_servers=world.name_servers,
        runtime=world.runtime,
        send_latency_fault_enable=True,
        fault_profile="5.x",
    )
    async with producer:
        await world.brokers["a"].stop()
        for _ in range(4):
            await producer.send(Message("t", b"x"))
        (item,) = [i for i in producer.fault_table() if i.broker_name == "a"]
        assert item.reachable
        assert item.available_in > 9
