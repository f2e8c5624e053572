"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, and messages that stay with their client."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_client import prefixed
from tests.conversation.grpc_rpc import Received, RpcClient, all_of, received, receiving

from orbitmq.broker.broker import Broker
from orbitmq.broker.messaging.waiting import Held
from orbitmq.broker.pop.held_pops import HeldPops, Place, PopWaiter
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.gateway.schema import ClientType, DigestType, FilterType
from orbitmq.gateway.status import Code
from orbitmq.message.tags import java_hash
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.codes import RequestCode


def in_flight(broker: Broker) -> int:
    return len(broker.part(PopRevive).state.in_flight)


async def answer_of(rpc: RpcClient, stream: int, timeout_s: float = 60.0) -> Received:
    answer = rpc.grpc.answers[stream]
    await asyncio.wait_for(answer.done.wait(), timeout_s)
    assert answer.status == 0, answer
    return received(answer.messages())


async def ordered_group(broker: Broker, group: str = "cg", retries: int = 16) -> None:
    async with BrokerPeer(broker.runtime) as peer:
        body = b'{"groupName":"%s","consumeMessageOrderly":true,"retryMaxTimes":%d}' % (
            group.encode(),
            retries,
        )
        await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


# -- receiving -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-22")
async def test_a_message_is_unpacked_and_has_its_digest(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"hello")
    answer = await rpc.receive()
    assert (answer.code, answer.bodies, answer.delivered) == (Code.OK, [b"hello"], True)
    system = answer.messages[0].system_properties
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert system.delivery_attempt == 1


@pytest.mark.behaviour("GW-21")
async def test_a_receive_waits_as_long_as_it_says(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    loop = asyncio.get_running_loop()
    for wait_ms, timeout, least, most in (
        (0, "", 0.0, 0.05),
        (500, "3S", 0.5, 0.7),
        (1500, "", 1.5, 1.7),
        (20_000, "23S", 20.0, 20.3),
        (None, "", 20.0, 20.3),
    ):
        began = loop.time()
        answer = await rpc.receive(wait_ms=wait_ms, timeout=timeout)
        assert (answer.code, answer.messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert least <= round(loop.time() - began, 3) <= most, wait_ms


@pytest.mark.behaviour("GW-21")
async def test_a_receive_is_answered_before_its_deadline(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    loop = asyncio.get_running_loop()
    for wait_ms, timeout_s in ((20_000, 5), (20_000, 1), (None, 4)):
        began = loop.time()
        answer = await rpc.receive(wait_ms=wait_ms, timeout=f"{timeout_s}S")
        assert answer.code == Code.MESSAGE_NOT_FOUND
        assert timeout_s / 2 <= loop.time() - began < timeout_s


@pytest.mark.behaviour("GW-21")
async def test_a_receive_is_answered_when_messages_come(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    waiting = asyncio.ensure_future(rpc.receive(wait_ms=20_000))
    await asyncio.sleep(3)
    await rpc.sent(b"one")
    assert (await asyncio.wait_for(waiting, 1)).bodies == [b"one"]


@pytest.mark.behaviour("GW-21")
async def test_at_most_32_messages_come_at_a_time(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(*(b"%d" % number for number in range(100)))
    sizes = []
    found: list[bytes] = []
    for count in (1, 5, 32, 1000):
        answer = await rpc.receive(count=count)
        sizes.append(len(answer.bodies))
        found += answer.bodies
    assert (sizes[0], sizes[1], max(sizes)) == (1, 5, 32)
    assert len(set(found)) == len(found)
    for count in (0, -1):
        assert (await rpc.receive(count=count)).code == Code.BAD_REQUEST


@pytest.mark.behaviour("GW-15")
async def test_a_receive_needs_no_earlier_call(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"one")
    async with RpcClient(grpc_broker.runtime, client_id="never seen before") as other:
        answer = await other.receive()
        assert answer.bodies == [b"one"]
    async with RpcClient(grpc_broker.runtime, client_id="nor this one") as third:
        assert (await third.ack(answer.handle())).status.code == Code.OK


@pytest.mark.behaviour("GW-21")
async def test_tags_choose_messages_and_a_hash_is_not_enough(grpc_broker: Broker, rpc: RpcClient) -> None:
    assert java_hash("Aa") == java_hash("BB")
    for tag in ("Aa", "BB", "c"):
        await rpc.sent(tag.encode(), tag=tag)
    answers = [await rpc.receive(expression="Aa || d") for _ in range(3)]
    assert [body for answer in answers for body in answer.bodies] == [b"Aa"]
    assert in_flight(grpc_broker) == 1, "the other one is done: it is for nobody here"
    rpc.group = "sql"
    answer = await rpc.receive(expression="TAGS = 'c'", kind=FilterType.SQL)
    assert answer.bodies == [b"c"]
    answer = await rpc.receive(expression="a >", kind=FilterType.SQL)
    assert answer.code == Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.behaviour("GW-27")
@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"invisible_ms": 0}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 9999}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 13 * 3600 * 1000}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"topic": "unknown"}, Code.TOPIC_NOT_FOUND),
    ],
)
async def test_a_receive_that_cannot_be_is_refused(
    grpc_broker: Broker, rpc: RpcClient, values: dict[str, object], code: Code
) -> None:
    await rpc.route()
    answer = await rpc.receive(**values)  # type: ignore[arg-type]
    assert (answer.code, answer.delivered) == (code, True)


async def test_an_invisible_time_is_refused_in_the_words_of_apaches_proxy(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.route()
    limits = "limits 10000 to 43200000 ms"
    short = await rpc.receive(invisible_ms=9999)
    assert short.text == f"the invisibleTime is too small: invisible_duration 9999 ms, {limits}"
    long = await rpc.receive(invisible_ms=43_200_001)
    assert long.text == f"the invisibleTime is too large: invisible_duration 43200001 ms, {limits}"


@pytest.mark.behaviour("GW-27")
@pytest.mark.broker(pop_polling_size=1)
async def test_too_many_waiting_receives_are_told_so(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    first = receiving(rpc, wait_ms=5000)
    await asyncio.sleep(0.1)
    answer = await rpc.receive(wait_ms=5000)
    assert answer.code == Code.TOO_MANY_REQUESTS
    assert "popPollingSize" in answer.text
    assert (await answer_of(rpc, first)).code == Code.MESSAGE_NOT_FOUND


@pytest.mark.behaviour("GW-58")
async def test_more_consumers_of_a_group_wait_than_apaches_broker_takes(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.route()
    async with RpcClient(grpc_broker.runtime, client_id="another") as other:
        waiting = [(client, receiving(client, wait_ms=5000)) for client in (rpc, other) for _ in range(600)]
        answers = [await answer_of(client, stream) for client, stream in waiting]
    assert {answer.code for answer in answers} == {Code.MESSAGE_NOT_FOUND}


@pytest.mark.behaviour("GW-61")
async def test_consumers_that_wait_have_no_task_and_no_timer_each(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rpc.route()
    await rpc.receive()
    before, timers = len(asyncio.all_tasks()), 0
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += when > loop.time() + 5  # sooner comes what the network in memory carries
        return call_at(when, *args, **options)

    monkeypatch.setattr(loop, "call_at", counted)
    waiting = []
    for number in range(20):
        rpc.client_id = f"client-{number}"
        rpc.grpc.open("Telemetry", headers=rpc.headers)
        waiting.append(receiving(rpc, wait_ms=15_000, timeout="20S"))
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == before
    assert timers < 10
    await rpc.sent(b"one")
    await asyncio.sleep(0.1)
    got = [rpc.grpc.answers[stream] for stream in waiting if rpc.grpc.answers[stream].done.is_set()]
    assert [received(answer.messages()).bodies for answer in got] == [[b"one"]]


@pytest.mark.parametrize("kind", ["ends later", "packed"])
async def test_a_receive_that_comes_in_parts_waits_too(
    grpc_broker: Broker, rpc: RpcClient, kind: str
) -> None:
    await rpc.route()
    data = rpc.receive_request(wait_ms=20_000).SerializeToString()
    for end in ("message", "time", "reset", "stop"):
        more = [("grpc-encoding", "gzip")] if kind == "packed" else []
        stream = rpc.grpc.open("ReceiveMessage", headers=[*rpc.headers, *more])
        if kind == "packed":
            await rpc.grpc.send(stream, prefixed(gzip.compress(data), packed=True), end=True)
        else:
            await rpc.grpc.send(stream, prefixed(data))
            await asyncio.sleep(0.1)
            await rpc.grpc.send(stream, b"", end=True)
        await asyncio.sleep(0.1)
        if end == "message":
            await rpc.sent(b"one")
            got = await answer_of(rpc, stream)
            assert got.bodies == [b"one"]
            await rpc.ack(got.handle())
        elif end == "time":
            assert (await answer_of(rpc, stream)).code == Code.MESSAGE_NOT_FOUND
        elif end == "reset":
            rpc.grpc.h2.reset_stream(stream)
            rpc.grpc.flush()
            await asyncio.sleep(0.1)
            await rpc.sent(b"two")
            assert (await rpc.receive()).bodies == [b"two"]
        else:
            await grpc_broker.stop()
            assert (await answer_of(rpc, stream)).code == Code.MESSAGE_NOT_FOUND


@pytest.mark.behaviour("GW-27")
@pytest.mark.broker(auto_create_subscription_group=False)
async def test_an_unknown_group_is_not_found(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    assert (await rpc.receive()).code == Code.CONSUMER_GROUP_NOT_FOUND
    assert (await rpc.assignment()).status.code == Code.CONSUMER_GROUP_NOT_FOUND


@pytest.mark.behaviour("GW-37")
async def test_a_group_that_reads_a_fifo_topic_out_of_order_is_warned_of_once(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("orders", attributes="+message.type=FIFO")
    await ordered_group(grpc_broker, "in-order")
    for _ in range(3):
        for group in ("cg", "in-order", "other"):
            rpc.group = group
            await rpc.receive("orders")
            await rpc.receive("T")
    lines = [record.getMessage() for record in caplog.records if "(FIFO)" in record.getMessage()]
    assert [line.partition(",")[0] for line in lines] == [
        "group cg reads topic orders",
        "group other reads topic orders",
    ]
    assert lines[0].endswith("orbitmq group create cg --orderly")


# -- what could not be written -------------------------------------------------------------------------


@pytest.mark.behaviour("GW-23")
async def test_a_waiting_receive_ends_with_its_client(grpc_broker: Broker, rpc: RpcClient) -> None:
    """The next message is for someone who is there."""
    await rpc.route()
    for end in ("reset", "close"):
        async with RpcClient(grpc_broker.runtime, client_id="gone") as gone:
            stream = receiving(gone, wait_ms=20_000)
            await asyncio.sleep(0.1)
            async with BrokerPeer(grpc_broker.runtime) as peer:
                info = await peer.ok(RequestCode.POLLING_INFO, consumerGroup="cg", topic="T", queueId=-1)
                assert info.ext["pollingNum"] == "1"
                if end == "reset":
                    gone.grpc.h2.reset_stream(stream)
                    gone.grpc.flush()
                else:
                    gone.grpc.close()
                await asyncio.sleep(0.1)
                info = await peer.ok(RequestCode.POLLING_INFO, consumerGroup="cg", topic="T", queueId=-1)
                assert info.ext["pollingNum"] == "0"
    await rpc.sent(b"one")
    assert (await rpc.receive()).bodies == [b"one"]


async def test_clients_that_are_gone_leave_without_a_look_at_the_others(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rpc.route()
    looks = 0
    at = HeldPops.at

    def counted(self: HeldPops, key: Place) -> list[Held[Place, PopWaiter]]:
        nonlocal looks
        looks += 1
        return at(self, key)

    async with RpcClient(grpc_broker.runtime, client_id="gone") as gone:
        for _ in range(30):
            receiving(gone, wait_ms=20_000)
        await asyncio.sleep(0.1)
        monkeypatch.setattr(HeldPops, "at", counted)
        gone.grpc.close()
        await asyncio.sleep(0.1)
    assert looks == 0
    async with BrokerPeer(grpc_broker.runtime) as peer:
        info = await peer.ok(RequestCode.POLLING_INFO, consumerGroup="cg", topic="T", queueId=-1)
        assert info.ext["pollingNum"] == "0"


@pytest.mark.behaviour("GW-23")
async def test_what_could_not_be_written_comes_again_within_a_second(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.sent(*(bytes([number]) * 50_000 for number in range(4)))
    async with RpcClient(grpc_broker.runtime, client_id="deaf", reads=False) as deaf:
        stream = receiving(deaf, invisible_ms=60_000)
        await asyncio.sleep(0.5)
        taken = in_flight(grpc_broker)
        assert taken >= 2, "the first of them fills the windows"
        deaf.grpc.h2.reset_stream(stream)
        deaf.grpc.flush()
        await asyncio.sleep(1)
        again = [body for _ in range(4) for body in (await rpc.receive()).bodies]
    assert len(again) >= 3, "one may have been written"


# -- acknowledgements ----------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-25")
async def test_an_acknowledged_message_does_not_come_again(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"one", b"two")
    got = await all_of(rpc, 2)
    handles = [each.system_properties.receipt_handle for each in got]
    answer = await rpc.ack(*handles)
    assert answer.status.code == Code.OK
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.OK]
    assert [entry.receipt_handle for entry in answer.entries] == handles
    await asyncio.sleep(30)
    assert (await rpc.receive()).messages == []
    assert in_flight(grpc_broker) == 0


@pytest.mark.behaviour("GW-25")
async def test_results_of_acknowledgements_stand_one_by_one(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"one")
    handle = (await rpc.receive()).handle()
    answer = await rpc.ack(handle, "nonsense", handle)
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [Code(entry.status.code).name for entry in answer.entries]
    assert codes == ["OK", "INVALID_RECEIPT_HANDLE", "INVALID_RECEIPT_HANDLE"]
    again = await rpc.ack(handle)
    assert again.status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await rpc.ack()).status.code == Code.BAD_REQUEST


@pytest.mark.behaviour("GW-25")
async def test_a_message_not_handled_in_time_comes_again_with_its_count(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.sent(b"one")
    first = await rpc.receive()
    (again,) = await all_of(rpc, 1)
    assert again.body == b"one"
    assert again.topic.name == "T"
    assert again.system_properties.delivery_attempt == 2
    assert again.system_properties.message_id == first.messages[0].system_properties.message_id
    assert (await rpc.ack(first.handle())).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await rpc.ack(again.system_properties.receipt_handle)).status.code == Code.OK
    await asyncio.sleep(30)
    assert (await rpc.receive()).messages == []


@pytest.mark.behaviour("GW-25")
async def test_another_invisible_time_makes_another_handle(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"one")
    first = (await rpc.receive(invisible_ms=10_000)).handle()
    answer = await rpc.change(first, 60_000)
    assert answer.status.code == Code.OK
    assert answer.receipt_handle != first
    await asyncio.sleep(30)
    assert (await rpc.receive()).messages == []
    assert (await rpc.ack(first)).status.code == Code.INVALID_RECEIPT_HANDLE
    shorter = await rpc.change(answer.receipt_handle, 1000)
    (again,) = await all_of(rpc, 1, wait_ms=3000)
    assert again.system_properties.delivery_attempt == 2
    assert (await rpc.change(shorter.receipt_handle, 1000)).status.code == Code.INVALID_RECEIPT_HANDLE
    at_once = await rpc.change(again.system_properties.receipt_handle, 0)
    assert at_once.status.code == Code.OK
    (third,) = await all_of(rpc, 1, wait_ms=1000)
    assert third.system_properties.delivery_attempt == 3


@pytest.mark.behaviour("GW-27")
async def test_an_invisible_time_out_of_its_limits_is_refused(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"one")
    handle = (await rpc.receive()).handle()
    for time_ms in (-1000, 13 * 3600 * 1000):
        answer = await rpc.change(handle, time_ms)
        assert answer.status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert (await rpc.change(handle, 12 * 3600 * 1000)).status.code == Code.OK


# -- in order ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-24")
async def test_a_group_in_order_gets_the_next_when_the_last_is_done(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.sent(*(b"%d" % number for number in range(4)), message_group="g")
    first = await rpc.receive(count=2, attempt="a-1")
    assert first.bodies == [b"0", b"1"]
    assert (await rpc.receive(count=2, attempt="a-2")).messages == []
    again = await rpc.receive(count=2, attempt="a-1")
    assert again.bodies == [b"0", b"1"], "the answer to this attempt was lost"
    assert [each.system_properties.delivery_attempt for each in again.messages] == [1, 1]
    waiting = asyncio.ensure_future(rpc.receive(count=2, wait_ms=20_000))
    await asyncio.sleep(0.1)
    handles = [again.handle(0), again.handle(1)]
    assert (await rpc.ack(*handles)).status.code == Code.OK
    assert (await asyncio.wait_for(waiting, 1)).bodies == [b"2", b"3"]


@pytest.mark.behaviour("GW-24")
async def test_a_group_in_order_gets_what_it_did_not_end_again_and_counted(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.sent(b"0", b"1", message_group="g")
    first = await rpc.receive(count=1, attempt="a-1")
    changed = await rpc.change(first.handle(), 2000)
    assert changed.status.code == Code.OK
    (again,) = (await rpc.receive(count=1, wait_ms=20_000, attempt="a-2")).messages
    assert (again.body, again.system_properties.delivery_attempt) == (b"0", 2)
    assert (await rpc.ack(again.system_properties.receipt_handle)).status.code == Code.OK
    assert (await rpc.receive(count=1)).bodies == [b"1"]


@pytest.mark.behaviour("GW-24")
async def test_a_repeated_attempt_gets_the_same_messages_though_other_queues_have_some(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    for group in "abcdefgh":
        await rpc.sent(*(f"{group}{number}".encode() for number in range(3)), message_group=group)
    first = await rpc.receive(count=4, attempt="a-1")
    assert len(first.bodies) == 4
    for _ in range(4):
        again = await rpc.receive(count=4, attempt="a-1")
        assert sorted(again.bodies) == sorted(first.bodies)
        assert {each.system_properties.delivery_attempt for each in again.messages} == {1}
    handles = [again.handle(index) for index in range(4)]
    assert (await rpc.ack(*handles)).status.code == Code.OK
    left = await rpc.receive(attempt="a-1")
    assert len(left.bodies) == 20, "an attempt whose messages are done gets others"
    assert not set(left.bodies) & set(first.bodies)


@pytest.mark.behaviour("GW-24")
async def test_a_repeated_attempt_gets_no_more_than_before(grpc_broker: Broker, rpc: RpcClient) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.sent(b"0", message_group="g")
    assert (await rpc.receive(attempt="a-1")).bodies == [b"0"]
    await rpc.sent(b"1", message_group="g")
    assert (await rpc.receive(attempt="a-1")).bodies == [b"0"]


@pytest.mark.behaviour("GW-24")
async def test_a_repeated_attempt_gets_all_beside_many_that_are_done(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    for start in range(0, 60, 20):
        await rpc.sent(*(b"%d" % number for number in range(start, start + 20)), message_group="g")
    first = await rpc.receive(count=16)
    assert (await rpc.ack(*(first.handle(index) for index in range(1, 16)))).status.code == Code.OK
    await asyncio.sleep(11)
    expected = [b"0", *(b"%d" % number for number in range(16, 47))]
    assert (await rpc.receive(attempt="a-1")).bodies == expected
    assert (await rpc.receive(attempt="a-1")).bodies == expected


@pytest.mark.behaviour("GW-24")
async def test_a_repeated_attempt_takes_the_place_of_the_one_that_waits(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker)
    await rpc.route()
    silent = asyncio.ensure_future(rpc.receive(wait_ms=20_000, attempt="a-1", renew=True))
    other = asyncio.ensure_future(rpc.receive(wait_ms=5_000, attempt="b-1", renew=True))
    await asyncio.sleep(0.1)
    async with RpcClient(grpc_broker.runtime) as back:
        waiting = asyncio.ensure_future(back.receive(wait_ms=20_000, attempt="a-1", renew=True))
        answer = await asyncio.wait_for(silent, 1)
        assert (answer.code, answer.messages) == (Code.MESSAGE_NOT_FOUND, [])
        await other
        await back.sent(b"late", message_group="g")
        assert (await asyncio.wait_for(waiting, 1)).bodies == [b"late"]


# -- messages that stay --------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-26")
@pytest.mark.parametrize("in_order", [False, True])
async def test_what_a_push_consumer_works_on_stays_with_it_under_its_first_handle(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    if in_order:
        await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.start()
    await rpc.sent(b"slow", message_group="g")
    got = await rpc.receive(renew=True, invisible_ms=0)
    assert got.bodies == [b"slow"]
    async with RpcClient(grpc_broker.runtime, client_id="other") as other:
        for _ in range(100):
            await asyncio.sleep(10)
            await rpc.heartbeat(ClientType.PUSH_CONSUMER)
            assert (await other.receive()).messages == []
        assert (await rpc.ack(got.handle())).status.code == Code.OK
        await asyncio.sleep(100)
        assert (await other.receive()).messages == []


@pytest.mark.behaviour("GW-26")
@pytest.mark.parametrize("in_order", [False, True])
async def test_after_three_hours_a_message_goes_to_another(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    if in_order:
        await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.start()
    await rpc.sent(b"stuck", message_group="g")
    assert (await rpc.receive(renew=True)).bodies == [b"stuck"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with RpcClient(grpc_broker.runtime, client_id="other") as other:
        while not (again := await other.receive(wait_ms=20_000)).messages:
            await rpc.heartbeat(ClientType.PUSH_CONSUMER)
        assert 3 * 3600 - 1 <= loop.time() - began <= 3 * 3600 + 5
        assert again.messages[0].system_properties.delivery_attempt == 2


@pytest.mark.behaviour("GW-26")
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_client_that_says_goodbye_gives_its_messages_back_at_once(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    if in_order:
        await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.start()
    await rpc.sent(b"one", b"two", message_group="g")
    assert len((await rpc.receive(renew=True)).messages) == 2
    async with RpcClient(grpc_broker.runtime, client_id="other") as other:
        waiting = asyncio.ensure_future(all_of(other, 2))
        await asyncio.sleep(1)
        await rpc.goodbye()
        got = await asyncio.wait_for(waiting, 1)
        assert sorted(each.body for each in got) == [b"one", b"two"]


@pytest.mark.behaviour("GW-26")
async def test_a_client_that_is_cut_off_gives_its_messages_back_after_10_seconds(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.start()
    await rpc.sent(b"one")
    assert (await rpc.receive(renew=True)).bodies == [b"one"]
    rpc.grpc.close()
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with RpcClient(grpc_broker.runtime, client_id="other") as other:
        (again,) = await all_of(other, 1)
        assert 9 <= loop.time() - began <= 13
        assert again.system_properties.delivery_attempt == 2


@pytest.mark.behaviour("GW-26")
async def test_a_client_cut_off_for_5_seconds_keeps_its_messages(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.start()
    await rpc.sent(b"one")
    got = await rpc.receive(renew=True)
    rpc.grpc.close()
    await asyncio.sleep(5)
    async with RpcClient(grpc_broker.runtime) as back:
        await back.start()
        for _ in range(12):
            await asyncio.sleep(10)
            await back.heartbeat(ClientType.PUSH_CONSUMER)
            assert (await back.receive()).messages == []
        assert (await back.ack(got.handle())).status.code == Code.OK


@pytest.mark.behaviour("GW-26")
async def test_a_silent_client_gives_its_messages_back(
    grpc_broker: Broker, rpc: RpcClient, orbitmq_runtime: SimulatedRuntime
) -> None:
    """It never had a stream, so only its silence tells."""
    await rpc.sent(b"one")
    assert (await rpc.receive(renew=True)).bodies == [b"one"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with RpcClient(orbitmq_runtime, client_id="other") as other:
        (again,) = await all_of(other, 1)
        assert 39 <= loop.time() - began <= 43
        assert again.body == b"one"


@pytest.mark.behaviour("GW-26")
async def test_a_message_put_off_by_its_consumer_is_not_kept(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.start()
    await rpc.sent(b"one")
    got = await rpc.receive(renew=True)
    assert (await rpc.change(got.handle(), 15_000)).status.code == Code.OK
    loop = asyncio.get_running_loop()
    began = loop.time()
    (again,) = await all_of(rpc, 1)
    assert 14.9 <= loop.time() - began <= 16
    assert again.system_properties.delivery_attempt == 2


# -- dead letters --------------------------------------------------------------------------------------


async def lost_answer(rpc: RpcClient, lossy: RpcClient, **values: object) -> int:
    """A message, and a receive of its answer, which does not arrive; gives the stream."""
    stream = receiving(lossy, renew=True, wait_ms=20_000, **values)
    await asyncio.sleep(0.1)
    lossy.grpc.hears = False
    await rpc.sent(b"one")
    await asyncio.sleep(0.1)
    return stream


async def comes_again(rpc: RpcClient, within_s: float) -> Received:
    """What a second client of the group gets, which waits for so long at most."""
    async with RpcClient(rpc.grpc._runtime, client_id="other") as other:
        return await other.receive(wait_ms=int(within_s * 1000))


@pytest.mark.behaviour("GW-59")
@pytest.mark.parametrize("in_order", [False, True])
async def test_messages_whose_answer_is_lost_with_its_connection_come_again_though_their_client_lives(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    if in_order:
        await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.start()
    async with RpcClient(grpc_broker.runtime, client_id=rpc.client_id) as lossy:
        await lost_answer(rpc, lossy)
        assert (await comes_again(rpc, 1)).messages == []
    assert (await comes_again(rpc, 1)).bodies == [b"one"]


@pytest.mark.behaviour("GW-59")
async def test_messages_of_a_receive_that_its_client_gave_up_come_again(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.route()
    await rpc.start()
    async with RpcClient(grpc_broker.runtime, client_id=rpc.client_id) as lossy:
        stream = await lost_answer(rpc, lossy)
        lossy.grpc.h2.reset_stream(stream)
        lossy.grpc.flush()
        assert (await comes_again(rpc, 1)).bodies == [b"one"]


@pytest.mark.behaviour("GW-59")
async def test_messages_whose_answer_is_not_acknowledged_for_40_seconds_come_again(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.route()
    await rpc.start()
    async with RpcClient(grpc_broker.runtime, client_id=rpc.client_id) as lossy:
        await lost_answer(rpc, lossy)
        for _ in range(3):
            await asyncio.sleep(12)
            await rpc.heartbeat(ClientType.PUSH_CONSUMER)
            assert (await comes_again(rpc, 0)).messages == []
        assert (await comes_again(rpc, 6)).bodies == [b"one"]


@pytest.mark.behaviour("GW-59")
async def test_messages_that_arrived_stay_when_a_later_answer_and_the_connection_are_lost(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.route()
    await rpc.start()
    async with RpcClient(grpc_broker.runtime, client_id=rpc.client_id) as lossy:
        await rpc.sent(b"zero")
        assert (await lossy.receive(renew=True)).bodies == [b"zero"]
        await lost_answer(rpc, lossy)
    assert (await comes_again(rpc, 1)).bodies == [b"one"]
    await asyncio.sleep(8)
    await rpc.heartbeat(ClientType.PUSH_CONSUMER)
    assert (await comes_again(rpc, 0)).messages == []


@pytest.mark.behaviour("GW-28")
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_message_that_is_given_up_is_a_dead_letter(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    if in_order:
        await ordered_group(grpc_broker)
    await rpc.route()
    await rpc.sent(b"poison", b"good", message_group="g")
    got = await rpc.receive()
    assert got.bodies == [b"poison", b"good"]
    assert (await rpc.give_up(got.handle())).status.code == Code.OK
    assert (await rpc.give_up(got.handle())).status.code == Code.OK, "clients repeat it until it is OK"
    assert (await rpc.give_up("nonsense")).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await rpc.ack(got.handle())).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await rpc.ack(got.handle(1))).status.code == Code.OK
    await asyncio.sleep(30)
    assert (await rpc.receive()).messages == []
    rpc.group = "reader"
    (dead,) = await all_of(rpc, 1, topic="%DLQ%cg")
    system = dead.system_properties
    assert dead.body == b"poison"
    assert system.dead_letter_queue.topic == "T"
    assert system.dead_letter_queue.message_id
    assert in_flight(grpc_broker) == 1


@pytest.mark.behaviour("GW-28")
async def test_a_message_in_order_that_was_tried_too_often_is_a_dead_letter(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await ordered_group(grpc_broker, retries=2)
    await rpc.route()
    await rpc.sent(b"poison", b"next", message_group="g")
    tries = []
    for _ in range(3):
        (got,) = (await rpc.receive(count=1, wait_ms=20_000)).messages
        assert got.body == b"poison"
        tries.append(got.system_properties.delivery_attempt)
        await rpc.change(got.system_properties.receipt_handle, 100)
    assert tries == [1, 2, 3]
    await asyncio.sleep(1)
    assert (await rpc.receive(count=1)).code == Code.MESSAGE_NOT_FOUND
    assert (await rpc.receive(count=1, wait_ms=1000)).bodies == [b"next"]
    await asyncio.sleep(1)
    assert grpc_broker.services.store.max_offset("%DLQ%cg", 0) == 1


@pytest.mark.behaviour("GW-08")
async def test_a_broker_that_stops_answers_what_waits(orbitmq_runtime: SimulatedRuntime) -> None:
    from tests.conversation.broker_peer import broker_config

    from orbitmq.gateway.attach import attach

    async with (
        Broker(orbitmq_runtime, broker_config(), extensions=[attach]) as broker,
        RpcClient(orbitmq_runtime) as rpc,
    ):
        await rpc.route()
        stream = await rpc.start()
        waiting = receiving(rpc, wait_ms=20_000)
        await asyncio.sleep(0.1)
        stopping = asyncio.ensure_future(broker.stop())
        assert (await answer_of(rpc, waiting, 2)).code == Code.MESSAGE_NOT_FOUND
        await asyncio.wait_for(stream.answer.done.wait(), 3)
        assert stream.answer.status == 0
        await stopping
