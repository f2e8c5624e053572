"""Properties that brokers and consumers wrote into a message have no effect when it is stored again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, records, send_request

from orbitmq import (
    AutoBatch,
    ConsumeFrom,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionState,
)
from orbitmq.broker.broker import Broker
from orbitmq.message import property_names, way
from orbitmq.message.batch import encode_batch
from orbitmq.message.properties import decode_properties
from orbitmq.testing import World
from orbitmq.wire.codes import ResponseCode

Forward = Callable[[Producer, ReceivedMessage], Awaitable[Any]]


def copy(message: ReceivedMessage, topic: str = "next", **options: Any) -> Message:
    return Message(topic, message.body, properties=message.properties, **options)


async def committed(_: Message) -> TransactionState:
    return TransactionState.COMMIT


async def whole(producer: Producer, message: ReceivedMessage) -> None:
    message.topic = "next"
    await producer.send(message)


async def marked_later(producer: Producer, message: ReceivedMessage) -> None:
    made = Message("next", message.body)
    made.properties.update(message.properties)
    await producer.send(made)


async def submitted(producer: Producer, message: ReceivedMessage) -> None:
    await producer.submit(copy(message))


DOORS: dict[str, Forward] = {
    "send": lambda producer, message: producer.send(copy(message)),
    "whole": whole,
    "later": marked_later,
    "submit": submitted,
    "batch": lambda producer, message: producer.send_batch([copy(message)]),
    "oneway": lambda producer, message: producer.send_oneway(copy(message)),
}


async def received(world: World, topic: str, group: str = "g", **options: Any) -> ReceivedMessage:
    """The first message that the group receives from the topic; it is acknowledged."""
    consumer = SimpleConsumer(
        group, name_servers=world.name_server, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe(topic)
    async with consumer:
        async with asyncio.timeout(60):
            while not (found := await consumer.receive(1, wait=10, **options)):
                pass
        await consumer.ack(found[0])
    return found[0]


async def prepare(world: World) -> None:
    async with world.admin() as admin:
        for topic in ("first", "next"):
            await admin.topics.create(topic, queues=1)


@pytest.mark.behaviour("MV-16")
@pytest.mark.parametrize("auto_batch", [None, AutoBatch()], ids=["alone", "collected"])
@pytest.mark.parametrize("door", DOORS)
async def test_a_received_transaction_is_sent_on_as_a_plain_message(
    orbitmq_world: World, door: str, auto_batch: AutoBatch | None
) -> None:
    world = orbitmq_world
    await prepare(world)
    async with world.transaction_producer("shop", check=committed) as transactions:
        first = Message("first", b"paid", tags="a", properties={"own": "1"})
        await transactions.send_in_transaction(first, committed)
    message = await received(world, "first")
    assert message.properties["TRAN_MSG"] == "true"
    async with world.producer(auto_batch=auto_batch) as producer:
        await DOORS[door](producer, message)
    again = await received(world, "next")
    assert (again.body, again.tags, again.transaction_id) == (b"paid", "a", None)
    assert again.properties["own"] == "1"
    assert again.message_id == message.message_id


@pytest.mark.behaviour("MV-16")
async def test_a_received_transaction_begins_another_one(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    async with world.transaction_producer("shop", check=committed) as transactions:
        await transactions.send_in_transaction(Message("first", b"paid"), committed)
        message = await received(world, "first")
        message.properties["TRAN_PREPARED_QUEUE_OFFSET"] = "0"
        message.properties["TRANSACTION_CHECK_TIMES"] = "15"
        async with transactions.transaction(copy(message)) as open_:
            assert open_.state is TransactionState.COMMIT
            (half,) = await stored(world, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
            assert half["PGROUP"] == "shop"
            assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & half.keys()
    assert (await received(world, "next")).body == b"paid"


async def stored(world: World, topic: str, offset: int) -> list[dict[str, str]]:
    """The properties of the messages of a topic's first queue, from an offset on."""
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        answer = await peer.pull(offset, topic=topic, consumer_group="TOOLS_CONSUMER")
        return [decode_properties(record.properties) for record in records(answer)]


@pytest.mark.behaviour("MV-16")
@pytest.mark.parametrize("first", [{"delay_level": 3}, {"delay": 10}], ids=["level", "timer"])
async def test_a_delay_that_is_over_does_not_begin_again_and_a_new_one_counts(
    orbitmq_world: World, first: dict[str, Any]
) -> None:
    world = orbitmq_world
    await prepare(world)
    async with world.producer() as producer:
        await producer.send(Message("first", b"late", **first))
        message = await received(world, "first")
        sent_on = world.clock.now_ms()
        await producer.send(copy(message))
        again = await received(world, "next")
        assert again.store_timestamp_ms - sent_on < 1000
        for second in ({"delay_level": 3}, {"delay": 10}):
            sent_on = world.clock.now_ms()
            await producer.send(copy(message, **second))
            again = await received(world, "next")
            assert 10_000 <= again.store_timestamp_ms - sent_on < 11_000


@pytest.mark.behaviour("SB-20")
@pytest.mark.parametrize(
    "name",
    ["TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "REAL_TOPIC", "POP_CK"],
)
async def test_a_message_with_a_reserved_property_comes_again(orbitmq_world: World, name: str) -> None:
    world = orbitmq_world
    await prepare(world)
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        # Another client may send these properties; OrbitMQ's client leaves them out.
        request = send_request("first", properties={name: "1794042000000", "RETRY_TOPIC": "other"})
        answer = await peer.ask(request.command(b"x"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    got: list[tuple[str, int, int]] = []
    done = asyncio.Event()
    consumer = Consumer(
        "g", name_servers=world.name_server, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )

    async def handle(message: ReceivedMessage) -> None:
        got.append((message.topic, message.reconsume_times, world.clock.now_ms()))
        if message.reconsume_times < 2:
            message.retry(delay=1)
        else:
            done.set()

    async with consumer:
        consumer.subscribe("first")
        running = asyncio.ensure_future(consumer.run(handle))
        async with asyncio.timeout(120):
            await done.wait()
    await running
    assert [each[:2] for each in got] == [("first", 0), ("first", 1), ("first", 2)]


@pytest.mark.behaviour("MV-16")
async def test_a_received_reply_is_sent_on_as_a_plain_message(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    consumer = Consumer(
        "g", name_servers=world.name_server, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )
    async with world.producer() as producer, consumer:
        consumer.subscribe("first")

        async def answer(message: ReceivedMessage) -> None:
            await producer.reply(message, b"answer")

        running = asyncio.ensure_future(consumer.run(answer))
        reply = await producer.request(Message("first", b"question"), timeout=60)
        await producer.send(copy(reply))
        again = await received(world, "next")
        assert again.body == b"answer"
        assert not {"MSG_TYPE", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"} & again.properties.keys()
    await running


@pytest.mark.behaviour("MV-17")
@pytest.mark.parametrize("group", [{}, {"PGROUP": "other"}], ids=["without", "other"])
async def test_a_broker_refuses_the_mark_of_a_transaction_that_is_not_the_senders(
    broker: Broker, peer: BrokerPeer, group: dict[str, str]
) -> None:
    properties = {"TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "0", **group}
    answer = await peer.ask(send_request("T", 0, properties=properties, sys_flag=4).command(b"x"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "TRAN_MSG" in (answer.remark or "")
    assert "PGROUP" in (answer.remark or "")


@pytest.mark.behaviour("MV-17")
async def test_what_is_no_half_message_is_visible_whatever_its_flag_says(
    broker: Broker, peer: BrokerPeer
) -> None:
    for number, flag in enumerate((4, 12, 8)):
        answer = await peer.ask(send_request("T", 0, sys_flag=flag).command(b"x"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (record,) = records(await peer.pull(number))
        assert record.sys_flag & 0xC == (8 if flag == 8 else 0)
    batch = encode_batch([Message("T", b"x", properties={"TRAN_MSG": "true"})])
    assert (await peer.ask(send_request("T", 0, sys_flag=4, batch=True).command(batch))).code == 0
    assert len(records(await peer.pull(3))) == 1


@pytest.mark.behaviour("MV-17")
async def test_a_receipt_in_a_batch_does_not_stand_for_the_one_of_a_pop(orbitmq_world: World) -> None:
    world = orbitmq_world
    await prepare(world)
    false = {"POP_CK": "0 1 60000 0 0 broker-a 0 77", "POP_REVIVED_FROM": "12", "__DELIVERY_OF": "7 broker-a"}
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        batch = encode_batch([Message("first", b"x", properties={**false, "own": "1"})])
        answer = await peer.ask(send_request("first", 0, batch=True).command(batch))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        answer = await peer.ask(send_request("first", 0, properties=false).command(b"y"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    for properties in await stored(world, "first", 0):
        assert not false.keys() & properties.keys()
    assert (await received(world, "first")).properties["own"] == "1"


def test_every_name_with_a_meaning_is_the_senders_or_of_the_way() -> None:
    known = {
        value
        for name, value in vars(property_names).items()
        if name.isupper() and isinstance(value, str) and name not in ("KEY_SEPARATOR", "TRANSIENT_PREFIX")
    }
    senders = {
        "KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "BUYER_ID", "INSTANCE_ID",
        "__SHARDINGKEY", "TRACE_CONTEXT", "__BORNHOST", "BORN_TIMESTAMP", "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "INNER_MULTI_DISPATCH", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
    }  # fmt: skip
    assert known - senders == way.OF_THE_WAY
    assert not senders & way.OF_THE_WAY


def test_only_what_is_of_the_way_is_left_out() -> None:
    own = {"own": "1", "TAGS": "a", "WAIT": "false", "DELAY": "3", "MSG_TYPE": "reply"}
    assert way.own_properties(own, "t") is own
    assert way.own_properties({**own, "MIN_OFFSET": "1"}, "t") == own
    assert "DELAY" not in way.own_properties({**own, "REAL_TOPIC": "t"}, "t")
    assert "WAIT" not in way.own_properties({**own, "RETRY_TOPIC": "t"}, "t")
    assert "MSG_TYPE" not in way.own_properties({**own, "ARRIVE_TIME": "1"}, "t")
    counts = {"RECONSUME_TIME": "3", "RETRY_TOPIC": "t", "TRAN_MSG": "true"}
    assert way.own_properties(counts, "%RETRY%g") == {"RECONSUME_TIME": "3", "RETRY_TOPIC": "t"}


def test_a_dead_letter_that_a_program_moves_still_says_where_it_came_from() -> None:
    letter = {"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "orders", "TRAN_MSG": "true", "KEYS": "k"}
    assert way.own_properties(letter, "%DLQ%g") == {
        "DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "orders", "KEYS": "k",
    }  # fmt: skip
    assert way.own_properties(letter, "orders") == {"KEYS": "k"}
