"""ReceiveMessage: its waits, its messages, and the fate of messages that cannot be written."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_client import prefixed
from tests.conversation.grpc_rpc import RpcClient, answer_of, in_flight, ordered_group, received, receiving

from orbitmq.broker.broker import Broker
from orbitmq.broker.messaging.waiting import Held
from orbitmq.broker.pop.held_pops import HeldPops, Place, PopWaiter
from orbitmq.gateway.schema import DigestType, FilterType
from orbitmq.gateway.status import Code
from orbitmq.message.tags import java_hash
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.codes import RequestCode

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
        timers += when > loop.time() + 5  # the network in memory delivers sooner than that
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


# -- messages that could not be written ----------------------------------------------------------------


@pytest.mark.behaviour("GW-23")
async def test_a_waiting_receive_ends_with_its_client(grpc_broker: Broker, rpc: RpcClient) -> None:
    """The next message goes to a client that is online."""
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
