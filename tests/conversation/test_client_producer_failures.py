"""A producer's behaviour when name servers, routes or brokers fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.scripted import never, producer_of, until

from orbitmq import Message, MessageQueue, Producer, SendError, SendStatus
from orbitmq.errors import SendErrorKind
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import decode_record
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.mark.behaviour("RT-04")
@pytest.mark.scripted("a", auto_create=False)
async def test_an_unknown_topic_and_no_default_topic(world: Any) -> None:
    async with producer_of(world) as producer:
        with pytest.raises(SendError, match="unknown to the name servers") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.kind is SendErrorKind.TOPIC_UNKNOWN
        assert caught.value.code == 10005


@pytest.mark.behaviour("RT-04")
async def test_no_name_server_is_an_error_of_its_own(world: Any) -> None:
    async with Producer("pg", name_servers="", runtime=world.runtime) as producer:
        with pytest.raises(SendError, match="no name server is configured") as caught:
            await producer.send(Message("t", b"x"))
        assert (caught.value.kind, caught.value.code) == (SendErrorKind.NO_NAME_SERVER, 10004)
    async with Producer("pg", name_servers="127.0.0.1:1", runtime=world.runtime) as producer:
        with pytest.raises(SendError, match=r"127\.0\.0\.1:1") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.kind is SendErrorKind.NO_NAME_SERVER


async def test_a_dead_name_server_is_passed_over(world: Any) -> None:
    for _ in range(4):
        servers = f"127.0.0.1:1;{world.name_servers};127.0.0.1:2"
        async with Producer("pg", name_servers=servers, runtime=world.runtime) as producer:
            await producer.send(Message("t", b"x"))


async def test_a_topic_whose_brokers_have_no_master_is_not_unknown(world: Any) -> None:
    world.topics["t"] = {"a": 0}
    async with producer_of(world) as producer:
        with pytest.raises(SendError, match="no writable queue") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.kind is SendErrorKind.NO_WRITABLE_QUEUE


@pytest.mark.behaviour("SK-04")
@pytest.mark.behaviour("TI-04")
@pytest.mark.scripted("a", "b")
async def test_a_dead_broker_costs_nothing_but_a_retry(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    async with producer_of(world) as producer:
        await world.brokers["a"].stop()
        for _ in range(20):
            result = await producer.send(Message("t", b"x"))
            assert result.queue.broker_name == "b"


@pytest.mark.scripted("a", "b")
async def test_a_dead_address_refreshes_the_route_at_once_and_once_for_all(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    async with producer_of(world, retries=0) as producer:
        for _ in range(8):
            await producer.send(Message("t", b"x"))
        queries = len(world.route_queries)
        await world.brokers["a"].stop()
        world.down.add("a")
        sends = [producer.send(Message("t", b"x")) for _ in range(100)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert any(isinstance(result, SendError) for result in results)
        await world.runtime.clock.sleep(0.5)
        assert len(world.route_queries) == queries + 1
        for _ in range(10):
            await producer.send(Message("t", b"x"))
        # A master that returns is found within about a second.
        await world.brokers["a"].start()
        world.down.clear()
        await world.runtime.clock.sleep(1.3)
        names = {(await producer.send(Message("t", b"x"))).queue.broker_name for _ in range(8)}
        assert names == {"a", "b"}


@pytest.mark.behaviour("TI-05")
@pytest.mark.scripted("a", "b")
async def test_a_new_message_may_go_to_the_broker_that_failed_the_one_before(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    broker = world.brokers["a"]
    async with producer_of(world) as producer:
        broker.script = lambda command: command.reply(14, "later") if command.code == SEND else "default"
        results = [await producer.send(Message("t", b"x")) for _ in range(2)]
        assert {result.queue.broker_name for result in results} == {"b"}
        refused = len(broker.requests(SEND))
        assert refused >= 1
        broker.script = None
        results = [await producer.send(Message("t", b"x")) for _ in range(4)]
        assert [result.queue.broker_name for result in results].count("a") == 2
        assert len(broker.requests(SEND)) == refused + 2


@pytest.mark.behaviour("SK-02")
@pytest.mark.scripted("a", "b")
async def test_a_frozen_broker_leaves_time_for_another(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    world.brokers["a"].script = never
    async with producer_of(world) as producer:
        for _ in range(6):
            begun = world.runtime.clock.monotonic()
            result = await producer.send(Message("t", b"x"))
            assert result.queue.broker_name == "b"
            assert world.runtime.clock.monotonic() - begun < 1.5


@pytest.mark.behaviour("SK-02")
@pytest.mark.behaviour("SK-07")
@pytest.mark.scripted("a", "b")
async def test_the_final_error_tells_everything(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    for broker in world.brokers.values():
        broker.script = never
    async with producer_of(world) as producer:
        begun = world.runtime.clock.monotonic()
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        assert world.runtime.clock.monotonic() - begun < 3.1
    error = caught.value
    assert error.kind is SendErrorKind.TIMEOUT
    assert error.code == 10002
    assert len(error.attempts) == 3
    assert set(error.brokers_tried) == {"a", "b"}
    assert error.brokers_tried[0] != error.brokers_tried[1]
    assert sum(attempt.took for attempt in error.attempts) == pytest.approx(3, abs=0.1)
    assert "3 of at most 3 tries" in str(error)


@pytest.mark.behaviour("SK-07")
async def test_all_brokers_dead_is_unreachable_not_unknown(world: Any) -> None:
    world.topics["t"] = {"a": 4}
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await world.brokers["a"].stop()
        world.down.add("a")
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.kind is SendErrorKind.BROKER_UNREACHABLE
        assert caught.value.code == 10001


@pytest.mark.behaviour("SK-05")
@pytest.mark.scripted("a", "b")
async def test_a_refusal_on_the_list_is_retried_elsewhere(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    world.brokers["a"].script = lambda command: (
        command.reply(2, "broker busy") if command.code == SEND else "default"
    )
    async with producer_of(world) as producer:
        for _ in range(6):
            assert (await producer.send(Message("t", b"x"))).queue.broker_name == "b"


@pytest.mark.behaviour("SK-04")
@pytest.mark.scripted("a", "b")
async def test_a_send_that_is_cancelled_is_not_tried_again(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    for broker in world.brokers.values():
        broker.script = lambda command: never(command) if command.code == SEND else "default"

    def sends() -> int:
        return sum(len(broker.requests(SEND)) for broker in world.brokers.values())

    async with producer_of(world) as producer:
        sending = asyncio.ensure_future(producer.send(Message("t", b"x")))
        await until(world, lambda: sends() == 1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await world.runtime.clock.sleep(30)
        assert sends() == 1


@pytest.mark.behaviour("SK-05")
@pytest.mark.behaviour("SK-18")
@pytest.mark.scripted("a", "b")
async def test_any_other_refusal_is_final_and_carries_code_and_remark(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    for broker in world.brokers.values():
        broker.script = lambda command: command.reply(13, "too large") if command.code == SEND else "default"
    async with producer_of(world) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        error = caught.value
        assert (error.kind, error.code, error.remark) == (SendErrorKind.REFUSED, 13, "too large")
        assert len(error.attempts) == 1
    async with producer_of(world, retry_codes={13}) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        assert len(caught.value.attempts) == 3


@pytest.mark.behaviour("SK-06")
@pytest.mark.behaviour("SK-18")
@pytest.mark.parametrize(("retry", "sends"), [(False, 1), (True, 3)])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
@pytest.mark.scripted("a", "b")
async def test_stored_but_not_safe_is_returned_unless_told_otherwise(
    world: Any, code: int, status: SendStatus, retry: bool, sends: int
) -> None:
    for broker in world.brokers.values():
        broker.script = lambda command: (
            command.reply(code, ext={"msgId": "m", "queueId": command.ext["e"], "queueOffset": "5"})
            if command.code == SEND
            else "default"
        )
    async with producer_of(world, retry_not_stored_ok=retry) as producer:
        result = await producer.send(Message("t", b"x"))
        assert result.status is status
        assert result.queue_offset == 5
        assert sum(len(broker.requests(SEND)) for broker in world.brokers.values()) == sends


@pytest.mark.behaviour("SK-06")
@pytest.mark.parametrize("then", [1, 13, None], ids=["refused", "refused-for-good", "no-answer"])
@pytest.mark.scripted("a", "b")
async def test_what_was_stored_is_the_result_however_the_tries_after_it_end(
    world: Any, then: int | None
) -> None:
    """A message that was stored must not be reported as not sent."""
    sends: list[Command] = []

    def script(command: Command) -> Any:
        if command.code != SEND:
            return "default"
        sends.append(command)
        if len(sends) == 1:
            return command.reply(10, ext={"msgId": "m", "queueId": command.ext["e"], "queueOffset": "5"})
        return never(command) if then is None else command.reply(then, "no")

    for broker in world.brokers.values():
        broker.script = script
    async with producer_of(world, retry_not_stored_ok=True) as producer:
        result = await producer.send(Message("t", b"x"))
    assert (result.status, result.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 5)
    assert len(sends) > 1


async def shrink(world: World) -> None:
    """Reduce the number of queues as mqadmin does; OrbitMQ's tools refuse that."""
    for broker in world.brokers.values():
        async with BrokerPeer(world.runtime, broker.address) as peer:
            answer = await peer.create("T", readQueueNums=2, writeQueueNums=2)
            assert answer.code == 0


@pytest.mark.behaviour("RT-16")
async def test_a_topic_that_has_fewer_queues_now_costs_no_plain_send(orbitmq_world: World) -> None:
    """Otherwise three of four sends fail until the route is fetched again, up to 30 s later."""
    world = orbitmq_world
    async with world.admin() as admin, world.producer() as producer:
        await admin.topics.create("T", queues=8)
        await producer.send(Message("T", b"x"))
        await world.sleep(45)
        await shrink(world)
        for _ in range(8):
            result = await producer.send(Message("T", b"x"))
            assert result.queue.queue_id < 2
        await admin.topics.create("T", queues=8)
        await world.sleep(45)
        assert len(await producer.queues("T")) == 8
        await shrink(world)
        with pytest.raises(SendError, match="queueId 7 is illegal"):
            await producer.send(Message("T", b"x"), ordering_key=7)
        await world.sleep(0.5)
        await producer.send(Message("T", b"x"), ordering_key=7)


@pytest.mark.behaviour("RT-16")
@pytest.mark.scripted("a", "b", "c", "d")
async def test_fewer_queues_on_many_brokers_use_up_no_tries(world: Any) -> None:
    world.topics["t"] = dict.fromkeys("abcd", 8)
    for broker in world.brokers.values():
        broker.script = lambda command: (
            command.reply(29, "queueId is illegal")
            if command.code == SEND and int(command.ext["e"]) >= 1
            else "default"
        )
    async with producer_of(world) as producer:
        await producer.queues("t")
        await world.runtime.clock.sleep(45)
        world.topics["t"] = dict.fromkeys("abcd", 1)
        for _ in range(20):
            await producer.send(Message("t", b"x"))


@pytest.mark.behaviour("FT-10")
@pytest.mark.behaviour("FT-01")
@pytest.mark.scripted("a", "b")
async def test_with_fault_tolerance_a_failed_broker_is_left_alone(world: Any) -> None:
    world.topics["t"] = {"a": 4, "b": 4}
    world.brokers["a"].script = lambda command: (
        command.reply(2, "busy") if command.code == SEND else "default"
    )
    async with producer_of(world, send_latency_fault_enable=True) as producer:
        for _ in range(40):
            await producer.send(Message("t", b"x"))
        assert len(world.brokers["a"].requests(SEND)) <= 1
        items = {item.broker_name: item for item in producer.fault_table()}
        assert "b" in items
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        assert producer.fault_table() == []


@pytest.mark.parametrize("profile", ["off", "4.x", "5.x"])
@pytest.mark.parametrize("orbitmq_seed", range(8))
@pytest.mark.scripted("a", "b", "c")
async def test_a_slow_and_a_dying_broker_lose_no_accepted_message(world: Any, profile: str) -> None:
    world.topics["t"] = dict.fromkeys("abc", 4)
    clock, random = world.runtime.clock, world.runtime.random

    async def slowly(command: Command) -> Any:
        await clock.sleep(0.7)
        return world.brokers["b"]._on_send_message_v2(None, command)

    world.brokers["b"].script = lambda c: slowly(c) if c.code == SEND else "default"
    options: dict[str, Any] = {}
    if profile != "off":
        options = {"send_latency_fault_enable": True, "fault_profile": profile}
    accepted: list[Any] = []

    async def sender(producer: Producer, name: int) -> None:
        for number in range(25):
            accepted.append(await producer.send(Message("t", f"{name}-{number}")))
            await clock.sleep(random.uniform(0, 0.4))

    async def dying() -> None:
        for _ in range(3):
            await clock.sleep(random.uniform(0.3, 2))
            await world.brokers["c"].stop()
            if random.random() < 0.5:
                world.down.add("c")
            await clock.sleep(random.uniform(0.3, 2))
            await world.brokers["c"].start()
            world.down.clear()

    async with producer_of(world, **options) as producer:
        await asyncio.gather(*(sender(producer, name) for name in range(8)), dying())
    for result in accepted:
        queue = world.brokers[result.queue.broker_name].queues["t", result.queue.queue_id]
        stored = decode_record(queue[result.queue_offset])
        assert decode_properties(stored.properties)["UNIQ_KEY"] == result.message_id
    assert len({result.message_id for result in accepted}) == 200
    share = sum(result.queue.broker_name == "b" for result in accepted) / 200
    assert (share > 0.2) if profile == "off" else (share < 0.2)


@pytest.mark.parametrize("answer", [(1, b"", "no"), (0, b"[]", "unreadable"), (0, b"{", "unreadable")])
async def test_a_name_server_that_talks_nonsense_is_named(world: Any, answer: Any) -> None:
    code, body, text = answer
    world.script = lambda command: command.reply(code, text, body=body)
    async with producer_of(world) as producer:
        with pytest.raises(SendError, match=text) as caught:
            await producer.send(Message("t", b"x"))
        assert "127.0.0.1:9876" in str(caught.value)
        assert caught.value.kind is SendErrorKind.NO_NAME_SERVER


@pytest.mark.behaviour("SK-07")
@pytest.mark.behaviour("SK-08")
@pytest.mark.scripted("a", "b")
async def test_a_master_that_the_route_lacks_is_asked_for_once(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    world.down.add("b")
    queue = MessageQueue("t", "b", 0)
    async with producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await world.runtime.clock.sleep(1)
        queries = len(world.route_queries)
        with pytest.raises(SendError, match="no master of broker 'b'") as caught:
            await producer.send(Message("t", b"x"), queue=queue)
        assert caught.value.code == 10003
        assert len(world.route_queries) == queries + 1
        world.down.clear()
        await world.runtime.clock.sleep(0.3)
        assert (await producer.send(Message("t", b"x"), queue=queue)).queue == queue
