"""A producer talks to scripted brokers over the in-memory network."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from typing import Any

import pytest
from tests.conversation.scripted import producer_of

from orbitmq import (
    Message,
    MessageQueue,
    Producer,
    SendError,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
    ValidationError,
)
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.producer.batching import AutoBatch
from orbitmq.client.producer.options import ProducerOptions
from orbitmq.client.producer.queue_choice import by_random
from orbitmq.errors import ClientStateError, SendErrorKind
from orbitmq.message.batch import iter_batch
from orbitmq.message.properties import decode_properties, parse_properties
from orbitmq.message.record import decode_record
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_ONEWAY, Command

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.mark.behaviour("SK-14")
@pytest.mark.behaviour("SK-19")
@pytest.mark.behaviour("MV-08")
@pytest.mark.behaviour("MV-09")
async def test_a_send_carries_everything_and_gives_the_place(world: Any) -> None:
    world.topics["t"] = {"a": 2}
    async with producer_of(world) as producer:
        message = Message("t", "hello", tags="x", keys=["k1", "k2"], flag=7, properties={"p": "ü"})
        result = await producer.send(message)
        await producer.send(Message("t", b"x", delay_level=3, properties={"WAIT": "false"}))
    command, later = world.brokers["a"].requests(SEND)
    waits = parse_properties(later.ext["i"])
    assert (waits["DELAY"], waits["WAIT"]) == ("3", "false")
    ext = dict(command.ext)
    properties = parse_properties(ext.pop("i"))
    assert properties == {"TAGS": "x", "KEYS": "k1 k2", "p": "ü", "UNIQ_KEY": result.message_id}
    assert int(ext.pop("g")) > 0
    assert ext == {
        "a": "pg",
        "b": "t",
        "c": "TBW102",
        "d": "4",
        "e": str(result.queue.queue_id),
        "f": "0",
        "h": "7",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "a",
    }
    assert command.body == b"hello"
    assert result.status is SendStatus.SEND_OK
    assert (result.queue.topic, result.queue.broker_name, result.queue_offset) == ("t", "a", 0)
    assert message.message_id is None


@pytest.mark.behaviour("SK-09")
async def test_an_existing_unique_id_is_kept(world: Any) -> None:
    async with producer_of(world) as producer:
        result = await producer.send(Message("t", b"x", properties={"UNIQ_KEY": "MINE"}))
        assert result.message_id == "MINE"
        one, two = [await producer.send(Message("t", b"x")) for _ in range(2)]
        assert len({one.message_id, two.message_id}) == 2


@pytest.mark.behaviour("SK-10")
@pytest.mark.behaviour("SK-11")
@pytest.mark.parametrize("size", [4095, 4096, 100_000])
async def test_bodies_from_4096_bytes_on_are_compressed(world: Any, size: int) -> None:
    async with producer_of(world) as producer:
        message = Message("t", bytes(size))
        await producer.send(message)
        (command,) = world.brokers["a"].requests(SEND)
        if size < 4096:
            assert (command.ext["f"], command.body) == ("0", bytes(size))
        else:
            assert command.ext["f"] == str(0x301)
            assert zlib.decompress(command.body) == bytes(size)
        assert message.body == bytes(size)


@pytest.mark.behaviour("SK-12")
async def test_a_prepared_message_has_its_flag_and_only_a_transaction_makes_one(world: Any) -> None:
    marked = Message("t", b"x", properties={"TRAN_MSG": "true", "PGROUP": "other"})
    async with producer_of(world) as producer:
        await producer.send(marked)
    options = {"name_servers": world.name_servers, "runtime": world.runtime}
    state = TransactionState.COMMIT
    async with TransactionProducer("pg", check=lambda _: state, **options) as transactions:
        await transactions.send_in_transaction(marked, lambda _: state)
    plain, half = (command.ext for command in world.brokers["a"].requests(SEND))
    assert (plain["f"], half["f"]) == ("0", "4")
    assert not {"TRAN_MSG", "PGROUP"} & parse_properties(plain["i"]).keys()
    assert parse_properties(half["i"]).items() >= {"TRAN_MSG": "true", "PGROUP": "pg"}.items()


@pytest.mark.behaviour("SK-15")
async def test_retry_counters_move_to_the_header(world: Any) -> None:
    async with producer_of(world) as producer:
        counters = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"}
        await producer.send(Message("%RETRY%g", b"x", properties=counters))
        ext = world.brokers["a"].requests(SEND)[0].ext
        assert (ext["j"], ext["l"]) == ("3", "16")
        assert counters.items() <= parse_properties(ext["i"]).items()


@pytest.mark.behaviour("RT-01")
@pytest.mark.behaviour("RT-02")
@pytest.mark.behaviour("RT-03")
@pytest.mark.scripted("a", "b")
async def test_an_unknown_topic_takes_the_default_route_once(world: Any) -> None:
    async with producer_of(world) as producer:
        for _ in range(8):
            await producer.send(Message("new", b"x"))
        assert world.route_queries == ["new", "TBW102"]
        used = Counter((c.ext["n"], c.ext["e"]) for b in world.brokers.values() for c in b.requests(SEND))
        assert used == {(name, str(number)): 1 for name in "ab" for number in range(4)}
        await world.runtime.clock.sleep(30.4)
        assert world.route_queries[2:] == ["new"]


@pytest.mark.behaviour("RT-10")
@pytest.mark.scripted("a", "b")
async def test_quick_messages_spread_a_new_topic_over_the_brokers(world: Any) -> None:
    async with producer_of(world) as producer:
        for _ in range(2 * 4):
            await producer.send(Message("new", b"x"))
        assert all(broker.requests(SEND) for broker in world.brokers.values())


@pytest.mark.behaviour("AS-10")
async def test_oneway_asks_for_no_answer_and_does_not_retry(world: Any) -> None:
    async with producer_of(world) as producer:
        await producer.send_oneway(Message("t", b"x"))
        await world.runtime.clock.sleep(0.1)
        (command,) = world.brokers["a"].requests(SEND)
        assert command.flag & FLAG_ONEWAY
        await world.brokers["a"].stop()
        await world.runtime.clock.sleep(0.1)
        with pytest.raises(SendError) as caught:
            await producer.send_oneway(Message("t", b"x"))
        assert caught.value.kind is SendErrorKind.BROKER_UNREACHABLE
        assert len(caught.value.attempts) == 1


@pytest.mark.behaviour("BA-04")
@pytest.mark.behaviour("BA-05")
@pytest.mark.behaviour("BA-08")
async def test_a_batch_travels_in_one_request(world: Any) -> None:
    async with producer_of(world) as producer:
        messages = [Message("t", bytes([65 + n]) * 5000, tags=f"t{n}") for n in range(3)]
        result = await producer.send_batch(messages)
        (command,) = world.brokers["a"].requests(RequestCode.SEND_BATCH_MESSAGE)
        assert command.ext["m"] == "true"
        assert command.ext["f"] == "0"
        items = list(iter_batch(command.body))
        assert [item.body for item in items] == [message.body for message in messages]
        ids = [decode_properties(item.properties)["UNIQ_KEY"] for item in items]
        assert result.message_id == ",".join(ids)
        assert len(set(ids)) == 3
        assert messages[0].message_id is None


@pytest.mark.behaviour("BA-03")
async def test_a_batch_over_the_limit_is_refused(world: Any) -> None:
    async with producer_of(world, max_message_bytes=1000) as producer:
        with pytest.raises(ValidationError, match="over the limit of 1000"):
            await producer.send_batch([Message("t", bytes(400))] * 3)
    world.topics["t"] = {"a": 1}
    # Without the option the limit is 4 MiB, including each message's properties and lengths.
    async with producer_of(world) as producer:
        await producer.send_batch([Message("t", bytes(2 * 1024 * 1024 - 200))] * 2)
        with pytest.raises(ValidationError, match="over the limit of 4194304"):
            await producer.send_batch([Message("t", bytes(2 * 1024 * 1024))] * 2)


@pytest.mark.scripted("a", "b")
async def test_chosen_queue_ordering_key_and_selector(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    async with producer_of(world) as producer:
        queue = MessageQueue("t", "b", 2)
        assert (await producer.send(Message("t", b"x"), queue=queue)).queue == queue
        places = {(await producer.send(Message("t", b"x"), ordering_key="o1")).queue for _ in range(5)}
        assert len(places) == 1
        command = next(
            c for b in world.brokers.values() for c in b.requests(SEND) if "__SHARDINGKEY" in c.ext["i"]
        )
        assert parse_properties(command.ext["i"])["__SHARDINGKEY"] == "o1"
        last = await producer.send(Message("t", b"x"), selector=lambda queues, message, key: queues[-1])
        assert last.queue == MessageQueue("t", "b", 3)
        await producer.send(Message("t", b"x"), selector=by_random(world.runtime.random))
        assert len(await producer.queues("t")) == 8
        # The batch and the one-way message go to the queue with that number of their own topic.
        foreign = MessageQueue("other", "a", 0)
        for sending in (
            producer.send(Message("t", b"x"), queue=foreign),
            producer.send_batch([Message("t", b"x")], queue=foreign),
            producer.send_oneway(Message("t", b"x"), queue=foreign),
        ):
            with pytest.raises(ValidationError, match="is not a queue of topic"):
                await sending
        with pytest.raises(SendError, match="no master of broker 'z'"):
            await producer.send(Message("t", b"x"), queue=MessageQueue("t", "z", 0))


@pytest.mark.parametrize("properties", [{"": "x"}, {"a": ""}, {"a": "b\x02"}, {"a\x01": "b"}, {"a": "\0b"}])
async def test_properties_that_would_not_read_back_are_refused(world: Any, properties: Any) -> None:
    async with producer_of(world) as producer:
        with pytest.raises(ValidationError, match="property"):
            await producer.send(Message("t", b"x", properties=properties))
        with pytest.raises(ValidationError, match="over the limit"):
            await producer.send(Message("t", b"x", properties={"a": "ü" * 17000}))


@pytest.mark.behaviour("MV-01")
async def test_a_producer_must_run(world: Any) -> None:
    producer = producer_of(world)
    with pytest.raises(ClientStateError, match="not running"):
        await producer.send(Message("t", b"x"))
    async with producer:
        with pytest.raises(ClientStateError, match="started already"):
            await producer.start()
    with pytest.raises(ClientStateError, match="not running"):
        await producer.send(Message("t", b"x"))
    await producer.close()


@pytest.mark.behaviour("MO-18")
async def test_a_broker_whose_connection_ended_is_greeted_again_at_once(world: Any) -> None:
    """A broker forgets a client that is not connected, and would check no transaction for up to 30 s."""
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await world.runtime.clock.sleep(0.1)
        broker = world.brokers["a"]
        beats = len(broker.requests(RequestCode.HEART_BEAT))
        world.runtime.network.cut()
        await world.runtime.clock.sleep(1)
        assert len(broker.requests(RequestCode.HEART_BEAT)) == beats + 1
        await broker.stop()
        await world.runtime.clock.sleep(20)
        await broker.start()
        await world.runtime.clock.sleep(16)
        assert len(broker.requests(RequestCode.HEART_BEAT)) == beats + 2, "less and less often"


@pytest.mark.behaviour("MO-18")
@pytest.mark.scripted("a", "b")
async def test_a_broker_that_was_out_of_the_routes_is_greeted_when_it_is_back(world: Any) -> None:
    """The client drops the connection of such a broker, and would not greet it for up to 30 s."""
    world.topics["t"] = {"a": 1, "b": 1}
    broker = world.brokers["a"]
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await world.runtime.clock.sleep(3)
        world.down.add("a")
        producer._client.suspect("t")
        await world.runtime.clock.sleep(3)
        beats = len(broker.requests(RequestCode.HEART_BEAT))
        world.down.clear()
        await world.runtime.clock.sleep(2)
        assert len(broker.requests(RequestCode.HEART_BEAT)) == beats + 1


async def test_brokers_hear_of_the_group_and_of_its_end(world: Any) -> None:
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await world.runtime.clock.sleep(0.1)
        broker = world.brokers["a"]
        (data,) = broker.heartbeats.values()
        assert [group.group_name for group in data.producer_data_set] == ["pg"]
        beats = len(broker.requests(RequestCode.HEART_BEAT))
        await world.runtime.clock.sleep(60.5)
        assert len(broker.requests(RequestCode.HEART_BEAT)) == beats + 2
    assert broker.heartbeats == {}


async def test_two_producers_share_one_client(world: Any) -> None:
    client = ClientInstance(world.runtime, world.name_servers)
    async with Producer("p1", client=client) as one, Producer("p2", client=client) as two:
        await one.send(Message("t", b"x"))
        await two.send(Message("t", b"x"))
        assert world.route_queries == ["t", "TBW102"]


@pytest.mark.behaviour("BA-05")
@pytest.mark.behaviour("BA-06")
@pytest.mark.scripted("a", "b")
async def test_auto_batch_collects_and_gives_each_its_own_result(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    async with producer_of(world, auto_batch=AutoBatch(linger=0.005, max_messages=64)) as producer:
        sends = [producer.send(Message("t", b"%d" % number, tags="x")) for number in range(200)]
        alone = [
            Message("t", b"delayed", delay_level=3),
            Message("t", bytes(40_000)),
            Message("t", b"", tags="bad"),
        ]
        results = await asyncio.gather(*sends, *map(producer.send, alone), return_exceptions=True)
        assert isinstance(results.pop(), ValidationError)
    batches = [c for b in world.brokers.values() for c in b.requests(RequestCode.SEND_BATCH_MESSAGE)]
    assert len(batches) == 4
    assert sum(len(b.requests(SEND)) for b in world.brokers.values()) == 2
    assert len({r.message_id for r in results}) == 202
    for number, result in enumerate(results[:200]):
        stored = world.brokers[result.queue.broker_name].queues["t", result.queue.queue_id]
        record = decode_record(stored[result.queue_offset])
        assert record.body == b"%d" % number
        found = decode_properties(record.properties)
        assert found == {"TAGS": "x", "UNIQ_KEY": result.message_id, "WAIT": "true"}


async def test_auto_batch_failures_reach_every_sender(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with producer_of(world, auto_batch=AutoBatch(linger=0)) as producer:
        await producer.send(Message("t", b"x"))
        await world.brokers["a"].stop()
        sends = [producer.send(Message("t", b"x")) for _ in range(5)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(result, SendError) for result in results)


async def test_closing_sends_what_waits(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with producer_of(world, auto_batch=AutoBatch(linger=1)) as producer:
        waiting = asyncio.create_task(producer.send(Message("t", b"x")))
        await asyncio.sleep(0)
    assert (await waiting).queue_offset == 0


@pytest.mark.behaviour("SK-13")
@pytest.mark.behaviour("SK-16")
@pytest.mark.scripted("a", "b")
async def test_hooks_see_every_try_and_may_forbid_it(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    world.brokers["a"].script = lambda command: (
        command.reply(2, "busy") if command.code == SEND else "default"
    )
    log: list[tuple[str, str, Any]] = []

    class Watch(SendHook):
        def check_forbidden(self, context: SendContext) -> None:
            log.append(("check", context.queue.broker_name, context.body_bytes))
            if context.body_bytes == 3:
                raise PermissionError("not three")

        def before(self, context: SendContext) -> None:
            log.append(("before", context.queue.broker_name, context.message_id))
            raise RuntimeError("only logged")

        def after(self, context: SendContext) -> None:
            outcome = context.result.status if context.result else type(context.error)
            log.append(("after", context.queue.broker_name, outcome))
            raise RuntimeError("only logged")

    async with producer_of(world, hooks=[Watch()]) as producer:
        while not any(name == "a" for _, name, _ in log):
            log.clear()
            result = await producer.send(Message("t", b"xx"))
        assert log == [
            ("check", "a", 2),
            ("before", "a", result.message_id),
            ("after", "a", SendError),
            ("check", "b", 2),
            ("before", "b", result.message_id),
            ("after", "b", SendStatus.SEND_OK),
        ]
        sends = len(world.brokers["a"].requests(SEND))
        with pytest.raises(PermissionError, match="not three"):
            await producer.send(Message("t", b"xxx"))
        assert len(world.brokers["a"].requests(SEND)) == sends
        log.clear()
        await producer.send(Message("t", bytes(100_000)))
        # The hook sees the compressed message.
        sent = [len(command.body) for broker in world.brokers.values() for command in broker.requests(SEND)]
        assert 0 < log[0][2] < 1000
        assert log[0][0] == "check"
        assert log[0][2] in sent


@pytest.mark.behaviour("AS-09")
async def test_back_pressure_limits_what_is_under_way(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    under_way = most = 0

    async def slow(command: Command) -> Command:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await world.runtime.clock.sleep(0.1)
        under_way -= 1
        return command.reply(ext={"msgId": "m", "queueId": "0", "queueOffset": "0"})

    world.brokers["a"].script = lambda c: slow(c) if c.code == SEND else "default"
    async with producer_of(world, max_in_flight=10) as producer:
        sends = [asyncio.create_task(producer.send(Message("t", b"x"))) for _ in range(50)]
        await world.runtime.clock.sleep(0.05)
        for task in sends[20:30]:
            task.cancel()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert sum(isinstance(r, SendResult) for r in results) == 40
        assert most == 10
    assert ProducerOptions("g").max_in_flight is None
    assert ProducerOptions("g").max_in_flight_bytes == 100 * 1024 * 1024
    # The limits count unchanged; RocketMQ raises them to at least 10 and 1 MiB.
    limits = ((1, 1 << 30, 1), (100, 1, 1), (100, 1_190_000, 1), (100, 1_250_000, 2))
    for messages, size_bytes, together in limits:
        most = 0
        async with producer_of(world, max_in_flight=messages, max_in_flight_bytes=size_bytes) as producer:
            bodies = [world.runtime.random.randbytes(600_000) for _ in range(3)]
            await asyncio.gather(*(producer.send(Message("t", body)) for body in bodies))
            assert most == together


@pytest.mark.parametrize("make", [bytearray, memoryview])
@pytest.mark.parametrize("size", [10, 5000])
async def test_bodies_may_be_any_bytes_and_flags_must_fit(world: Any, make: Any, size: int) -> None:
    world.topics["t"] = {"a": 1}
    body = bytes(range(10)) * (size // 10)
    for options in ({}, {"auto_batch": AutoBatch()}):
        async with producer_of(world, **options) as producer:
            await producer.send(Message("t", make(body)))
            await producer.send_batch([Message("t", make(body))])
            for flag in (2**31, -(2**31) - 1):
                with pytest.raises(ValidationError, match="flag"):
                    await producer.send(Message("t", body, flag=flag))
    stored = [decode_record(record) for record in world.brokers["a"].queues["t", 0]]
    bodies = [zlib.decompress(r.body) if r.sys_flag & 1 else r.body for r in stored]
    assert bodies == [body] * 4
