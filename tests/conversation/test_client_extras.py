"""Namespaces, message trace and middleware."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.scripted import running, until

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    Reader,
    ReceivedMessage,
    SendResult,
)
from orbitmq.client.hooks import EndTransactionContext, SendHook
from orbitmq.client.namespaces import Namespace
from orbitmq.client.producer.transactional import TransactionProducer, TransactionState
from orbitmq.cluster.local import LocalCluster
from orbitmq.errors import ValidationError
from orbitmq.message.properties import decode_properties, encode_properties, parse_properties
from orbitmq.message.record import decode_record
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2
TRACE = "RMQ_SYS_TRACE_TOPIC"


def client_options(world: Any) -> dict[str, Any]:
    return {"name_servers": world.name_servers, "runtime": world.runtime}


# -- namespaces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("t", "space%t"),
        ("%RETRY%g", "%RETRY%space%g"),
        ("%DLQ%g", "%DLQ%space%g"),
        ("TBW102", "TBW102"),
        ("rmq_sys_something", "rmq_sys_something"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ],
)
def test_names_go_in_and_out_of_a_namespace(short: str, full: str) -> None:
    space = Namespace("space")
    assert space.full(short) == full
    assert space.full(full) == full
    assert space.short(full) == short
    assert space.short("other%t") == "other%t"
    assert Namespace().full(short) == short


def test_a_namespace_is_one_word() -> None:
    with pytest.raises(ValidationError):
        Namespace("a%b")


async def test_producer_and_consumer_meet_in_a_namespace(world: Any) -> None:
    world.topics["space%t"] = {"a": 1}
    broker = world.brokers["a"]
    async with Producer("pg", namespace="space", **client_options(world)) as producer:
        message = Message("t", b"x")
        result = await producer.send(message)
        assert (message.topic, result.queue.topic) == ("t", "space%t")
        assert (await producer.queues("t"))[0] == result.queue
        await producer.send(message, queue=result.queue)
        await producer.send_oneway(message)
        await producer.send_batch([message, message])
    assert {c.ext["a"] for c in broker.requests(SEND)} == {"space%pg"}
    got: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message)
        if len(got) == 1:
            raise RuntimeError("again")

    consumer = Consumer("cg", namespace="space", consume_from=ConsumeFrom.FIRST, **client_options(world))
    async with running(consumer, listener):
        await until(world, lambda: len(got) == 5)
        await until(world, lambda: broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK))
    assert {message.topic for message in got} == {"t"}
    (back,) = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (back.ext["group"], back.ext["originTopic"]) == ("space%cg", "space%t")
    assert broker.offsets["space%cg", "space%t", 0] == 5
    async with PullConsumer(
        "reader", namespace="space", consume_from=ConsumeFrom.FIRST, **client_options(world)
    ) as reader:
        reader.assign(await reader.queues("t"))
        assert {message.topic for message in await reader.poll()} == {"t"}
        await reader.commit()
    assert broker.offsets["space%reader", "space%t", 0] == 5


async def test_a_retried_message_shows_its_topic_without_the_namespace(world: Any) -> None:
    world.topics.update({"space%t": {"a": 1}, "%RETRY%space%cg": {"a": 1}})
    properties = encode_properties({"RETRY_TOPIC": "space%t"})
    world.brokers["a"].store("%RETRY%space%cg", b"x", 0, properties)
    got: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.topic)

    async with running(Consumer("cg", namespace="space", **client_options(world)), listener):
        await until(world, lambda: got)
    assert got == ["t"]


async def test_a_namespace_of_the_second_kind_travels_with_every_request(world: Any) -> None:
    world.topics["t"] = {"a": 1}

    async def listener(message: ReceivedMessage) -> None:
        pass

    async with Producer("pg", namespace_v2="space", **client_options(world)) as producer:
        await producer.send(Message("t", b"x"))
        await producer.send_oneway(Message("t", b"x"))
    async with running(Consumer("cg", namespace_v2="space", **client_options(world)), listener):
        await world.runtime.clock.sleep(6)
    seen = world.brokers["a"].seen
    assert len({command.code for command in seen}) > 5
    assert all((c.ext.get("nsd"), c.ext.get("ns")) == ("true", "space") for c in seen)


# -- trace -----------------------------------------------------------------------------------------------


def records(broker: Any) -> list[list[str]]:
    found: list[list[str]] = []
    for (topic, _), queue in broker.queues.items():
        if topic == TRACE:
            for stored in queue:
                text = decode_record(stored).body.decode()
                assert text.endswith("\x02")
                found += [record.split("\x01") for record in text.removesuffix("\x02").split("\x02")]
    return found


async def test_sends_are_traced_as_java_does(world: Any) -> None:
    world.topics.update({"t": {"a": 1}, TRACE: {"a": 1}})
    broker = world.brokers["a"]
    async with Producer("pg", trace=True, **client_options(world)) as producer:
        result = await producer.send(Message("t", b"hello", tags="x", keys=["k1", "k2"]))
        await producer.send(Message("t", b"later", delay_level=3))
        await world.runtime.clock.sleep(1.5)
    first, second = records(broker)
    assert (first[0], first[2:9]) == (
        "Pub",
        ["DefaultRegion", "pg", "t", result.message_id, "x", "k1 k2", broker.address],
    )
    assert int(first[1]) > 0
    assert (first[9], first[11:]) == ("5", ["0", result.offset_message_id, "true"])
    assert (second[6], second[7], second[11]) == ("null", "null", "3")
    (stored,) = broker.queues[TRACE, 0]
    keys = decode_properties(decode_record(stored).properties)["KEYS"].split()
    assert set(keys) == {result.message_id, "k1", "k2", second[5]}


@pytest.mark.behaviour("CR-19")
async def test_deliveries_are_traced_from_beginning_to_end(world: Any) -> None:
    world.topics.update({"t": {"a": 1}, TRACE: {"a": 1}})
    broker = world.brokers["a"]
    broker.store("t", b"good", 0, encode_properties({"UNIQ_KEY": "id0", "KEYS": "k"}))
    broker.store("t", b"bad", 0, encode_properties({"UNIQ_KEY": "id1"}))
    broker.store("t", b"secret", 0, encode_properties({"UNIQ_KEY": "id2", "TRACE_ON": "false"}))
    broker.store("t", b"later", 0, encode_properties({"UNIQ_KEY": "id3"}))

    async def listener(message: ReceivedMessage) -> None:
        await world.runtime.clock.sleep(0.25)
        if message.body == b"bad":
            raise RuntimeError("no")
        if message.body == b"later":
            message.retry(reason="closed on Sundays")

    consumer = Consumer("cg", trace=True, consume_from=ConsumeFrom.FIRST, **client_options(world))
    async with running(consumer, listener):
        await world.runtime.clock.sleep(2)
    found = records(broker)
    begun = {record[5]: record for record in found if record[0] == "SubBefore"}
    ended = {record[2]: record for record in found if record[0] == "SubAfter"}
    assert begun.keys() == ended.keys() == {"id0", "id1", "id3"}
    assert begun["id0"][2:4] == ["DefaultRegion", "cg"]
    assert begun["id0"][6:] == ["0", "k"]
    assert begun["id1"][7] == "null"
    assert ended["id0"][1] == begun["id0"][4]
    assert (ended["id0"][3], ended["id0"][4], ended["id0"][6]) == ("250", "true", "0")
    assert (ended["id1"][4], ended["id1"][6], ended["id1"][8]) == ("false", "2", "cg")
    assert (ended["id3"][4], ended["id3"][6]) == ("false", "4")


@pytest.mark.scripted("a", auto_create=False)
async def test_trace_never_holds_up_messages(world: Any, caplog: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with Producer("pg", trace=True, **client_options(world)) as producer:
        results = [await producer.send(Message("t", b"x")) for _ in range(2100)]
    assert len(results) == 2100
    assert "52 trace records were dropped" in caplog.text
    assert "are lost" in caplog.text


async def test_the_end_of_a_transaction_is_shown_to_hooks_and_traced(runtime: SimulatedRuntime) -> None:
    seen: list[EndTransactionContext] = []

    class Remember(SendHook):
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.append(context)
            raise RuntimeError("a hook may fail")

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def work(message: Message) -> TransactionState:
        decided = {b"good": TransactionState.COMMIT, b"bad": TransactionState.ROLLBACK}
        return decided[message.body]

    async with LocalCluster(runtime, brokers=1, root="/c") as cluster:
        options: dict[str, Any] = {"name_servers": cluster.name_server, "runtime": runtime}
        async with TransactionProducer("pg", check=check, hooks=[Remember()], trace=True, **options) as p:
            ids = [
                (await p.send_in_transaction(Message("t", body), work)).sent.message_id
                for body in (b"good", b"bad")
            ]
        assert [(c.message_id, c.topic, c.state, c.from_check) for c in seen] == [
            (ids[0], "t", "COMMIT_MESSAGE", False),
            (ids[1], "t", "ROLLBACK_MESSAGE", False),
        ]
        async with Reader(TRACE, **options) as traces:
            text = "".join([message.body.decode() async for message in traces])
        found = [record.split("\x01") for record in text.split("\x02") if record]
        assert [record[11] for record in found if record[0] == "Pub"] == ["1", "1"]
        ends = [record for record in found if record[0] == "EndTransaction"]
        assert [record[3:6] for record in ends] == [["pg", "t", ids[0]], ["pg", "t", ids[1]]]
        assert [record[9] for record in ends] == ["2", "2"]
        assert [record[11:] for record in ends] == [
            ["COMMIT_MESSAGE", "false"],
            ["ROLLBACK_MESSAGE", "false"],
        ]


# -- middleware ------------------------------------------------------------------------------------------


async def test_middleware_wraps_sends_from_the_outside_in(world: Any) -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def around(message: Message, send: Any) -> SendResult:
            order.append(f"{name} before")
            message.properties[name] = "seen"
            result: SendResult = await send(message)
            order.append(f"{name} after")
            return result

        return around

    world.topics["t"] = {"a": 1}
    options = client_options(world)
    async with Producer("pg", middleware=[layer("one"), layer("two")], **options) as producer:
        await producer.send(Message("t", b"x"))
    assert order == ["one before", "two before", "two after", "one after"]
    (command,) = world.brokers["a"].requests(SEND)
    assert {"one", "two"} <= parse_properties(command.ext["i"]).keys()


async def test_middleware_around_a_listener_may_skip_and_fail(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for body in (b"skip", b"fail", b"handle"):
        broker.store("t", body)
    handled: list[bytes] = []

    async def around(message: ReceivedMessage, handle: Any) -> None:
        if message.body == b"fail":
            raise RuntimeError("no")
        if message.body != b"skip":
            await handle(message)

    async def listener(message: ReceivedMessage) -> None:
        handled.append(message.body)

    consumer = Consumer("cg", middleware=[around], consume_from=ConsumeFrom.FIRST, **client_options(world))
    async with running(consumer, listener):
        await until(world, lambda: handled)
        await until(world, lambda: broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK))
    assert handled == [b"handle"]
    assert broker.offsets["cg", "t", 0] == 3
