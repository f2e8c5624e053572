"""A consumer talks to scripted brokers over the in-memory network."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, start, until

from orbitmq import ConsumeFrom, Consumer, Message, MessageQueue, Producer, ReceivedMessage
from orbitmq.client.consumer.offsets import OffsetStore
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.durations import instant
from orbitmq.errors import ClientStateError
from orbitmq.message.properties import encode_properties, parse_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class Collector:
    """A listener that keeps its messages, and fails for those for which ``fail`` is true."""

    def __init__(self, fail: Any = lambda message: False) -> None:
        self.got: list[ReceivedMessage] = []
        self.fail = fail

    async def __call__(self, message: ReceivedMessage) -> None:
        self.got.append(message)
        if self.fail(message):
            raise RuntimeError("not today")

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]


@pytest.mark.scripted("a", "b")
async def test_the_first_message_comes_at_once_and_the_offset_is_committed_at_close(world: Any) -> None:
    world.topics["t"] = {"a": 2, "b": 2}
    for broker in world.brokers.values():
        for queue_id in range(2):
            for number in range(50):
                broker.store("t", b"%d" % number, queue_id)
    seen = Collector()
    async with running(consumer_of(world), seen) as consumer:
        assert await until(world, lambda: seen.got) < 0.5
        await until(world, lambda: len(seen.got) == 200)
        assert len(consumer.assignment()) == 4
    assert len({(m.broker_name, m.queue_id, m.queue_offset) for m in seen.got}) == 200
    for broker in world.brokers.values():
        assert broker.offsets["cg", "t", 0] == broker.offsets["cg", "t", 1] == 50
        assert broker.heartbeats == {}


@pytest.mark.behaviour("MO-05")
async def test_offsets_are_committed_every_five_seconds_and_taken_up_again(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(10):
        broker.store("t", b"%d" % number)
    seen = Collector()
    async with running(consumer_of(world), seen):
        await until(world, lambda: len(seen.got) == 10)
        await world.runtime.clock.sleep(4)
        assert broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        await world.runtime.clock.sleep(1.2)
        assert broker.offsets["cg", "t", 0] == 10
        commits = broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert any(command.is_oneway for command in commits)
    broker.store("t", b"next")
    again = Collector()
    async with running(consumer_of(world), again):
        await until(world, lambda: again.got)
        await world.runtime.clock.sleep(1)
    assert again.bodies == [b"next"]


@pytest.mark.parametrize(
    ("consume_from", "first"),
    [(ConsumeFrom.FIRST, b"0"), (ConsumeFrom.LAST, b"new"), (ConsumeFrom.TIMESTAMP, b"1")],
)
async def test_where_a_new_group_begins(world: Any, consume_from: ConsumeFrom, first: bytes) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(3):
        world.brokers["a"].store("t", b"%d" % number)
    seen = Collector()
    async with running(consumer_of(world, consume_from=consume_from, consume_timestamp=instant(5)), seen):
        await until(world, lambda: world.brokers["a"].requests(RequestCode.PULL_MESSAGE))
        await world.runtime.clock.sleep(0.2)
        world.brokers["a"].store("t", b"new")
        await until(world, lambda: b"new" in seen.bodies)
    assert seen.bodies[0] == first


@pytest.mark.behaviour("CR-27")
async def test_what_comes_into_an_empty_queue_while_a_group_begins_at_its_end_is_not_skipped(
    world: Any,
) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]

    def script(command: Command) -> Command | str:
        if command.ext.get("topic") != "t" or broker.offsets:
            return "default"
        if command.code == RequestCode.GET_MAX_OFFSET:
            broker.store("t", b"between")
        young = command.code == RequestCode.QUERY_CONSUMER_OFFSET and broker.queues["t", 0]
        return command.reply(ext={"offset": "0"}) if young else "default"

    broker.script = script
    seen = Collector()
    async with running(consumer_of(world, consume_from=ConsumeFrom.LAST), seen):
        await until(world, lambda: seen.bodies)
    assert seen.bodies == [b"between"]


@pytest.mark.scripted("a", "b")
async def test_members_share_the_queues_at_once(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    async with consumer_of(world) as one:
        one.subscribe("t")
        await until(world, lambda: len(one.assignment()) == 8)
        async with consumer_of(world) as two:
            two.subscribe("t")
            took = await until(world, lambda: len(two.assignment()) == len(one.assignment()) == 4)
            assert took < 1.5
            assert not set(one.assignment()) & set(two.assignment())
        assert await until(world, lambda: len(one.assignment()) == 8) < 0.5


async def test_no_message_is_lost_or_doubled_when_nothing_is_in_hand_at_a_rebalance(world: Any) -> None:
    world.topics["t"] = {"a": 4}
    broker = world.brokers["a"]
    one_seen, two_seen = Collector(), Collector()
    async with consumer_of(world) as one:
        one.subscribe("t")
        first = start(one, one_seen)
        await until(world, lambda: len(one.assignment()) == 4)
        for number in range(40):
            broker.store("t", b"%d" % number, number % 4)
        await until(world, lambda: len(one_seen.got) == 40)
        async with consumer_of(world) as two:
            two.subscribe("t")
            second = start(two, two_seen)
            await until(world, lambda: len(two.assignment()) == 2)
            for number in range(40, 80):
                broker.store("t", b"%d" % number, number % 4)
            await until(world, lambda: len(one_seen.got) + len(two_seen.got) == 80)
            await world.runtime.clock.sleep(2)
        await second
    await first
    assert sorted(int(b) for b in one_seen.bodies + two_seen.bodies) == list(range(80))
    assert two_seen.got


@pytest.mark.parametrize("orbitmq_seed", range(4))
async def test_members_that_come_and_go_hand_over_what_they_have_in_hand(world: Any) -> None:
    world.topics["t"] = {"a": 4}
    broker = world.brokers["a"]
    for number in range(2000):
        broker.store("t", b"%d" % number, number % 4)
    got: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        await world.runtime.clock.sleep(world.runtime.random.uniform(0.0, 0.1))
        got.append(int(message.body))

    async def member(after: float, stay: float) -> None:
        await world.runtime.clock.sleep(after)
        async with running(consumer_of(world), listener):
            await world.runtime.clock.sleep(stay)

    await asyncio.gather(member(0, 40), member(1, 2), member(2, 40), member(2.5, 1))
    assert sorted(got) == list(range(2000))


@pytest.mark.behaviour("CR-11")
async def test_a_message_that_takes_too_long_belongs_to_the_next_owner(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"x")
    seen = Collector()

    async def slow(message: ReceivedMessage) -> None:
        await seen(message)
        await world.runtime.clock.sleep(2)

    async with running(consumer_of(world), slow) as consumer:
        await until(world, lambda: seen.got)
        await consumer._queues.drop(MessageQueue("t", "a", 0))
        await world.runtime.clock.sleep(3)
    assert world.brokers["a"].offsets.get(("cg", "t", 0), 0) == 0


@pytest.mark.behaviour("CR-02")
@pytest.mark.behaviour("CR-04")
@pytest.mark.behaviour("CR-07")
async def test_a_failed_message_is_sent_back_and_the_offset_goes_on(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(5):
        broker.store("t", b"%d" % number, properties=encode_properties({"UNIQ_KEY": f"ID{number}"}))
    seen = Collector(lambda message: message.body == b"2")
    async with running(consumer_of(world, max_reconsume_times=4), seen):
        await until(world, lambda: broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK))
        await until(world, lambda: len(seen.got) == 5)
    (command,) = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    own = {name: command.ext.pop(name) for name in ("reason", "clientId")}
    assert own["reason"] == "RuntimeError('not today')"
    assert command.ext == {
        "offset": str(next(m.commit_log_offset for m in seen.got if m.body == b"2")),
        "group": "cg",
        "delayLevel": "0",
        "originMsgId": "ID2",
        "originTopic": "t",
        "unitMode": "false",
        "maxReconsumeTimes": "4",
    }
    assert broker.offsets["cg", "t", 0] == 5


@pytest.mark.behaviour("CR-08")
async def test_a_message_that_cannot_be_sent_back_goes_to_the_retry_topic(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    broker.script = lambda command: (
        command.reply(1, "no") if command.code == RequestCode.CONSUMER_SEND_MSG_BACK else "default"
    )
    broker.store("t", b"x", properties=encode_properties({"UNIQ_KEY": "ID", "k": "v"}), reconsume_times=2)
    async with running(consumer_of(world), Collector(lambda message: message.reconsume_times == 2)):
        await until(world, lambda: broker.requests(RequestCode.SEND_MESSAGE_V2))
    (command,) = broker.requests(RequestCode.SEND_MESSAGE_V2)
    properties = parse_properties(command.ext["i"])
    assert len(properties.pop("ORIGIN_MESSAGE_ID")) == 32
    assert properties == {
        "UNIQ_KEY": "ID",
        "k": "v",
        "RETRY_TOPIC": "t",
        "RECONSUME_TIME": "3",
        "DELAY": "5",
    }
    assert command.ext["b"] == "%RETRY%cg"
    assert command.ext["j"] == "3"
    assert broker.offsets["cg", "t", 0] == 1


@pytest.mark.behaviour("CR-20")
async def test_what_is_sent_anew_waits_until_it_is_stored(world: Any) -> None:
    """The message has WAIT=false from the first time that a broker took it back; this time the broker
    refuses.
    """
    world.topics["%RETRY%cg"] = {"a": 1}
    broker = world.brokers["a"]
    broker.script = lambda command: (
        command.reply(1, "no") if command.code == RequestCode.CONSUMER_SEND_MSG_BACK else "default"
    )
    stored = {"UNIQ_KEY": "ID", "WAIT": "false", "RETRY_TOPIC": "t", "DELAY": "3"}
    broker.store("%RETRY%cg", b"x", properties=encode_properties(stored), reconsume_times=1)
    async with running(consumer_of(world), Collector(lambda message: message.reconsume_times == 1)):
        await until(world, lambda: broker.requests(RequestCode.SEND_MESSAGE_V2))
    (command,) = broker.requests(RequestCode.SEND_MESSAGE_V2)
    properties = parse_properties(command.ext["i"])
    assert "WAIT" not in properties, "a message without it waits (MV-11)"
    assert properties["DELAY"] == "4"


@pytest.mark.behaviour("CR-09")
@pytest.mark.behaviour("CR-10")
async def test_a_message_that_no_broker_takes_back_stays_and_holds_the_offset(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    refuse = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2}
    broker.script = lambda command: command.reply(13, "no") if command.code in refuse else "default"
    for number in range(3):
        broker.store("t", b"%d" % number)
    tries: list[int] = []
    when: list[float] = []

    def fail(message: ReceivedMessage) -> bool:
        if message.body == b"1":
            tries.append(message.reconsume_times)
            when.append(world.runtime.clock.monotonic())
        return message.body == b"1" and len(tries) < 3

    async with running(consumer_of(world), Collector(fail)) as consumer:
        await until(world, lambda: len(tries) == 2, 7)
        await consumer.commit()
        assert broker.offsets["cg", "t", 0] == 1
        await until(world, lambda: len(tries) == 3, 7)
        await consumer.commit()
        assert broker.offsets["cg", "t", 0] == 3
        assert tries == [0, 1, 2]
        assert all(4.999 < two - one < 5.1 for one, two in pairwise(when)), when


@pytest.mark.behaviour("CR-16")
@pytest.mark.behaviour("CR-17")
async def test_messages_come_back_through_the_retry_topic_under_their_own_name(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    seen = Collector()
    async with running(consumer_of(world, consume_from=ConsumeFrom.LAST), seen) as consumer:
        await until(world, lambda: consumer.assignment())
        (data,) = world.brokers["a"].heartbeats.values()
        wanted = {s.topic: s.sub_string for s in data.consumer_data_set[0].subscription_data_set}
        assert wanted == {"t": "*", "%RETRY%cg": "*"}
        # The retry topic appears later, when a broker creates it, and is found within about a second.
        world.topics["%RETRY%cg"] = {"a": 1}
        world.brokers["a"].store("%RETRY%cg", b"x", properties=encode_properties({"RETRY_TOPIC": "t"}))
        assert await until(world, lambda: seen.got) < 1.5
        assert seen.got[0].topic == "t"
    assert world.brokers["a"].offsets["cg", "%RETRY%cg", 0] == 1


async def test_tags_are_announced_and_checked_again_here(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for tag in ("a", "b", "c", "b"):
        broker.store("t", tag.encode(), properties=encode_properties({"TAGS": tag}))
    seen = Collector()
    async with consumer_of(world) as consumer:
        consumer.subscribe("t", "a || c")
        task = start(consumer, seen)
        await until(world, lambda: len(seen.got) == 2)
        (data,) = broker.heartbeats.values()
        subscription = data.consumer_data_set[0].subscription_data_set[1]
        assert (subscription.sub_string, subscription.tags_set) == ("a || c", {"a", "c"})
        assert subscription.code_set == {97, 99}
        await until(world, lambda: consumer._offsets.get(MessageQueue("t", "a", 0)) == 4)
    await task
    assert seen.bodies == [b"a", b"c"]
    assert broker.offsets["cg", "t", 0] == 4


async def test_a_queue_whose_listener_is_behind_is_not_pulled(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(300):
        world.brokers["a"].store("t", b"%d" % number)
    gate = asyncio.Event()
    seen = 0

    async def listener(message: ReceivedMessage) -> None:
        nonlocal seen
        await gate.wait()
        seen += 1

    async with running(consumer_of(world, limits=FlowLimits(messages=64)), listener):
        await world.runtime.clock.sleep(3)
        assert len(world.brokers["a"].requests(RequestCode.PULL_MESSAGE)) == 2
        gate.set()
        await until(world, lambda: seen == 300)


async def test_a_full_queue_is_pulled_again_as_soon_as_there_is_room(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(100):
        world.brokers["a"].store("t", b"%d" % number)
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    limits = FlowLimits(messages=1)
    async with running(consumer_of(world, limits=limits, pull_batch_size=1), listener):
        await until(world, lambda: seen)
        assert await until(world, lambda: len(seen) == 100) < 1


@pytest.mark.behaviour("CR-13")
async def test_iterating_acks_the_message_before(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(4):
        broker.store("t", b"%d" % number)
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            if message.body == b"1":
                message.retry(delay_level=3)
            if message.body == b"2":
                async with message.process():
                    raise RuntimeError("again, please")
            if len(bodies) == 4:
                break
        assert bodies == [b"0", b"1", b"2", b"3"]
    levels = [c.ext["delayLevel"] for c in broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)]
    assert levels == ["3", "0"]
    assert broker.offsets["cg", "t", 0] == 3


async def test_process_and_ack_settle_at_once(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(3):
        world.brokers["a"].store("t", b"%d" % number)
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        async for message in consumer.messages(auto_ack=False):
            if message.body == b"2":
                break
            async with message.process():
                pass
            message.ack()
    assert world.brokers["a"].offsets["cg", "t", 0] == 2


async def test_a_plain_function_is_a_listener_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"x")
    got: list[bytes] = []
    async with running(consumer_of(world), lambda message: got.append(message.body)):
        await until(world, lambda: got == [b"x"])


async def test_close_waits_for_running_listeners(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"x")
    begun: list[bytes] = []

    async def slow(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await world.runtime.clock.sleep(2)

    async with running(consumer_of(world), slow):
        await until(world, lambda: begun)
    assert world.brokers["a"].offsets["cg", "t", 0] == 1


async def test_a_broker_that_forgot_us_is_told_again(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    forgot = False

    def script(command: Command) -> Any:
        nonlocal forgot
        if command.code == RequestCode.HEART_BEAT:
            forgot = False
        if command.code == RequestCode.PULL_MESSAGE and forgot:
            return command.reply(24, "the consumer's subscription not exist")
        return "default"

    broker.script = script
    seen = Collector()
    async with running(consumer_of(world), seen) as consumer:
        await until(world, lambda: consumer.assignment())
        forgot = True
        broker.store("t", b"x")
        await until(world, lambda: seen.got)
        broker.store("t", b"y")
        assert await until(world, lambda: len(seen.got) == 2) < 1


async def test_a_broker_that_comes_back_goes_on_being_read(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    seen = Collector()
    async with running(consumer_of(world), seen) as consumer:
        await until(world, lambda: consumer.assignment())
        await broker.stop()
        await world.runtime.clock.sleep(10)
        broker.store("t", b"x")
        await broker.start()
        assert await until(world, lambda: seen.got) < 3.5


@pytest.mark.parametrize("failure", ["link", "code", "unforeseen"])
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
async def test_a_failed_pull_gives_nothing_again_that_is_held_or_in_hand(
    world: Any, ordered: bool, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only later requests fail: messages that were pulled before are kept, once each."""
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(40):
        broker.store("t", b"%d" % number)
    gate, pull = asyncio.Event(), BrokerCalls.pull
    got: list[bytes] = []
    failing = failed = 0

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)
        await gate.wait()

    def script(command: Command) -> Any:
        nonlocal failed
        if command.code == RequestCode.PULL_MESSAGE and failing > failed and failure == "code":
            failed += 1
            return command.reply(1, "a disk error")
        return "default"

    async def breaks(calls: BrokerCalls, *arguments: Any, **options: Any) -> Any:
        nonlocal failed
        if failing > failed and failure == "unforeseen":
            failed += 1
            raise RuntimeError("a bug of the client")
        return await pull(calls, *arguments, **options)

    broker.script = script
    monkeypatch.setattr(BrokerCalls, "pull", breaks)
    async with running(consumer_of(world, ordered=ordered, concurrency=4), handler) as consumer:
        held = 1 if ordered else 4
        await until(world, lambda: len(got) == held)
        if failure == "link":
            await broker.stop()
            await world.runtime.clock.sleep(3)
            await broker.start()
        else:
            failing = 3
            # This message ends the waiting pull; the next pulls fail.
            broker.store("t", b"40")
            await until(world, lambda: failed == failing, seconds=60)
            await world.runtime.clock.sleep(3)
        broker.store("t", b"last")
        assert len(got) == held
        gate.set()
        await until(world, lambda: b"last" in got)
        queue = MessageQueue("t", "a", 0)
        stored = 42 - (failure == "link")
        await until(world, lambda: consumer._offsets.get(queue) == stored)
    assert len(got) == len(set(got)) == stored


async def test_an_offset_outside_the_queue_is_corrected(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    broker.offsets["cg", "t", 0] = 500
    seen = Collector()
    async with running(consumer_of(world), seen):
        await until(world, lambda: len(broker.requests(RequestCode.PULL_MESSAGE)) == 2)
        broker.store("t", b"x")
        await until(world, lambda: seen.got)
    assert broker.offsets["cg", "t", 0] == 1


async def test_subscriptions_may_change_while_running(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.topics["u"] = {"a": 1}
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        await until(world, lambda: consumer.assignment() == [MessageQueue("t", "a", 0)])
        consumer.subscribe("u", sql="a > 1")
        consumer.unsubscribe("t")
        await until(world, lambda: consumer.assignment() == [MessageQueue("u", "a", 0)])
        (data,) = world.brokers["a"].heartbeats.values()
        kinds = {s.topic: s.expression_type for s in data.consumer_data_set[0].subscription_data_set}
        assert kinds == {"u": "SQL92", "%RETRY%cg": "TAG"}


async def test_a_consumer_runs_once(world: Any) -> None:
    consumer = consumer_of(world)
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.run(lambda message: None)
    async with consumer:
        pass
    with pytest.raises(ClientStateError, match="was closed"):
        await consumer.start()


async def test_a_consumer_on_a_client_that_has_been_in_use_starts_at_once_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"x")
    client = ClientInstance(world.runtime, world.name_servers)
    async with Producer("pg", client=client) as producer:
        await producer.send(Message("t", b"y"))
        seen = Collector()
        async with Consumer("cg", client=client, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            task = start(consumer, seen)
            assert await until(world, lambda: len(seen.got) == 2) < 0.3
        await task
        with pytest.raises(ClientStateError, match="consumer of group 'cg' already"):
            async with Consumer("cg", client=client), Consumer("cg", client=client):
                pass


@pytest.mark.scripted("a", "b")
async def test_a_broker_that_died_with_our_offsets_does_not_give_messages_again(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    broker = world.brokers["a"]
    for number in range(10):
        broker.store("t", b"%d" % number)
    seen = Collector()
    async with running(consumer_of(world), seen) as consumer:
        await until(world, lambda: len(seen.got) == 10)
        await broker.stop()
        world.down.add("a")
        await until(world, lambda: len(consumer.assignment()) == 1)
        broker.offsets.clear()
        await broker.start()
        world.down.clear()
        await until(world, lambda: len(consumer.assignment()) == 2)
        broker.store("t", b"new")
        await until(world, lambda: seen.bodies[-1] == b"new")
    assert len(seen.got) == 11
    assert broker.offsets["cg", "t", 0] == 11


@pytest.mark.behaviour("CR-06")
@pytest.mark.behaviour("CR-15")
async def test_what_the_listener_has_had_for_too_long_is_sent_back_once(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(3):
        broker.store("t", b"%d" % number)
    ended: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"1":
            await world.runtime.clock.sleep(2000)
            ended.append(message.body)
            raise RuntimeError("too late to matter")

    async with running(consumer_of(world), listener):
        await world.runtime.clock.sleep(800)
        assert broker.offsets["cg", "t", 0] == 1
        await world.runtime.clock.sleep(200)
        assert broker.offsets["cg", "t", 0] == 3
        await world.runtime.clock.sleep(1100)
        assert ended
    (command,) = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert command.ext["delayLevel"] == "3"


@pytest.mark.behaviour("CR-12")
async def test_progress_never_goes_back_unless_it_is_reset(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    queue = MessageQueue("t", "a", 0)
    client = ClientInstance(world.runtime, world.name_servers)
    await client.start()
    offsets = OffsetStore(BrokerCalls(client), "cg")
    assert offsets.get(queue) == -1
    offsets.update(queue, 5)
    offsets.update(queue, 3)
    assert offsets.get(queue) == 5
    await offsets.commit()
    offsets.update(queue, 2, increase_only=False)
    await offsets.commit_periodically()
    await world.runtime.clock.sleep(0.1)
    assert world.brokers["a"].offsets["cg", "t", 0] == 2
    commits = len(world.brokers["a"].requests(RequestCode.UPDATE_CONSUMER_OFFSET))
    await offsets.commit_periodically()
    await world.runtime.clock.sleep(0.1)
    assert len(world.brokers["a"].requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == commits
    await client.close()
