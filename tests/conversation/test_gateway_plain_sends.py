"""Plain sends: a message gives the same record and the same response by the plain and by the ordinary way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, hang, records
from tests.conversation.grpc_client import prefixed
from tests.conversation.grpc_rpc import RpcClient, message

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, GrpcStatus, Reply
from orbitmq.gateway.messages import new, parse, timestamp
from orbitmq.gateway.sends import SendMessage
from orbitmq.gateway.status import Code
from orbitmq.message.record import Record
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine import memory_network

BORN = timestamp(1_700_000_000_123)


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The requests that took the ordinary way, over a network that delivers each write as a whole."""
    found: list[bytes] = []
    begin = SendMessage.begin

    def noted(self: SendMessage, call: Call, data: bytes, reply: Reply) -> bool:
        found.append(data)
        return begin(self, call, data, reply)

    monkeypatch.setattr(SendMessage, "begin", noted)
    monkeypatch.setattr(memory_network._Pipe, "_piece", lambda _pipe, length: length)
    return found


async def both(rpc: RpcClient, each: schema.Message) -> list[schema.SendMessageResponse]:
    """The responses to a message sent the plain way and the ordinary way."""
    answers = []
    for together in (True, False):
        rpc.grpc.together = together
        answers.append(await rpc.send(each))
    return answers


async def one_queue(peer: BrokerPeer, **more: Any) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1, **more)


async def stored(peer: BrokerPeer) -> list[Record]:
    answer = await peer.pull(topic="T", queue_id=0)
    return records(answer)


def without_place(record: Record) -> Record:
    return replace(record, queue_offset=0, physical_offset=0, store_timestamp=0)


@pytest.mark.behaviour("GW-18")
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"tag": "T1", "keys": ["k1", "k2"], "born_host": "host", "trace_context": "trace"},
        {"properties": {"color": "red"}, "queue_id": 3, "body_encoding": 1},
    ],
    ids=["plain", "full", "property"],
)
async def test_both_ways_store_and_answer_the_same(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient, values: dict[str, Any]
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await one_queue(peer)
        each = message(b"body", born_timestamp=BORN, message_type=1, **values)
        first, second = await both(rpc, each)
        assert len(ordinary) == 1
        assert (first.entries[0].offset, second.entries[0].offset) == (0, 1)
        second.entries[0].offset = 0
        assert first.SerializeToString() == second.SerializeToString()
        plain, other = await stored(peer)
        assert without_place(plain) == without_place(other)
        counters = grpc_broker.services.counters
        assert counters.messages_in == 2
    received = await rpc.receive(count=2, expression=values.get("tag", "*"))
    assert received.bodies == [b"body", b"body"]


@pytest.mark.behaviour("GW-18")
async def test_a_topic_that_changes_decides_anew(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient
) -> None:
    rpc.grpc.together = True
    each = message(b"body", born_timestamp=BORN)
    async with BrokerPeer(grpc_broker.runtime) as peer:
        assert (await rpc.send(each)).status.code == Code.OK, "makes the topic"
        assert len(ordinary) == 1
        assert (await rpc.send(each)).status.code == Code.OK
        assert len(ordinary) == 1
        await one_queue(peer, attributes="+message.type=FIFO")
        answer = await rpc.send(each)
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        await one_queue(peer, attributes="+message.type=NORMAL")
        assert (await rpc.send(each)).status.code == Code.OK
        assert len(ordinary) == 2
        await one_queue(peer, perm=4)
        assert (await rpc.send(each)).status.code == Code.FORBIDDEN


@pytest.mark.behaviour("GW-20")
async def test_an_answer_waits_for_the_disk_and_says_when_that_is_late(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient, orbitmq_runtime: SimulatedRuntime
) -> None:
    await rpc.sent(b"makes the topic")
    rpc.grpc.together = True
    ordinary.clear()
    hang(orbitmq_runtime)
    sending = asyncio.ensure_future(rpc.send(message(b"second", born_timestamp=BORN)))
    await asyncio.sleep(2)
    assert not sending.done()
    answer = await sending
    assert answer.status.code == Code.MASTER_PERSISTENCE_TIMEOUT, "syncFlushTimeout is 5 s"
    assert answer.entries[0].message_id == ""
    assert not ordinary


@pytest.mark.behaviour("GW-20")
async def test_the_deadline_of_a_call_holds_while_the_disk_hangs(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient, orbitmq_runtime: SimulatedRuntime
) -> None:
    await rpc.sent(b"makes the topic")
    rpc.grpc.together = True
    ordinary.clear()
    hang(orbitmq_runtime)
    request = new(schema.SendMessageRequest, messages=[message(b"late", born_timestamp=BORN)])
    data = request.SerializeToString()
    started = asyncio.get_running_loop().time()
    ends: dict[str, tuple[int | None, float]] = {}

    async def call(timeout: str) -> None:
        headers = [*rpc.headers, ("grpc-timeout", timeout)]
        answer = await rpc.grpc.call("SendMessage", data, headers=headers)
        ends[timeout] = answer.status, asyncio.get_running_loop().time() - started

    await asyncio.gather(*map(call, ("2S", "1S", "60S")))
    assert not ordinary
    assert ends["1S"] == (GrpcStatus.DEADLINE_EXCEEDED, pytest.approx(1, abs=0.1))
    assert ends["2S"] == (GrpcStatus.DEADLINE_EXCEEDED, pytest.approx(2, abs=0.1))
    assert ends["60S"][0] == GrpcStatus.OK


@pytest.mark.behaviour("GW-05")
async def test_many_calls_of_one_chunk_are_answered_though_windows_are_small(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.sent(b"makes the topic")
    ordinary.clear()
    rpc.grpc.settings(INITIAL_WINDOW_SIZE=20)
    rpc.grpc.together = True
    request = new(schema.SendMessageRequest, messages=[message(b"body", born_timestamp=BORN)])
    data = prefixed(request.SerializeToString())
    streams = [rpc.grpc.open("SendMessage", headers=rpc.headers) for _ in range(20)]
    for stream in streams:
        rpc.grpc.h2.send_data(stream, data, end_stream=True)
    rpc.grpc.flush()
    for stream in streams:
        answer = rpc.grpc.answers[stream]
        await asyncio.wait_for(answer.done.wait(), 60)
        assert answer.status == 0
        (content,) = answer.messages()
        assert parse(schema.SendMessageResponse, content).status.code == Code.OK
    assert not ordinary
    assert grpc_broker.services.counters.messages_in == 21


@pytest.mark.behaviour("GW-20")
async def test_a_client_that_is_gone_gets_no_answer_and_its_message_is_stored(
    ordinary: list[bytes], grpc_broker: Broker, rpc: RpcClient, orbitmq_runtime: SimulatedRuntime
) -> None:
    await rpc.sent(b"makes the topic")
    ordinary.clear()
    async with RpcClient(orbitmq_runtime) as other:
        other.grpc.together = True
        sending = asyncio.ensure_future(other.send(message(b"gone", born_timestamp=BORN)))
        await asyncio.sleep(0)
        other.grpc.close()
        with pytest.raises(AssertionError):
            await sending
    await asyncio.sleep(1)
    assert not ordinary
    assert sorted((await rpc.receive(count=2)).bodies) == [b"gone", b"makes the topic"]
