"""AckMessage with one handle: the same response as for one among others, sent once it is on disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.grpc_rpc import RpcClient, all_of, resource

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.acks import AckMessage
from orbitmq.gateway.call import Call, Reply
from orbitmq.gateway.calls import Calls
from orbitmq.gateway.connection import GrpcConnection
from orbitmq.gateway.messages import new
from orbitmq.gateway.status import Code
from orbitmq.gateway.streams import StreamCall
from orbitmq.gateway.unary import ok
from orbitmq.testing.machine import memory_network
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The requests that took the ordinary way, over a network that delivers each write as a whole."""
    found: list[bytes] = []
    begin = AckMessage.begin

    def noted(self: AckMessage, call: Call, data: bytes, reply: Reply) -> bool:
        found.append(data)
        return begin(self, call, data, reply)

    monkeypatch.setattr(AckMessage, "begin", noted)
    monkeypatch.setattr(memory_network._Pipe, "_piece", lambda _pipe, length: length)
    return found


def handles_of(messages: list[schema.Message]) -> list[str]:
    return [each.system_properties.receipt_handle for each in messages]


@pytest.mark.behaviour("GW-25")
async def test_a_handle_alone_is_answered_as_one_among_others(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(*(b"%d" % number for number in range(4)))
    got = await all_of(rpc, 4)
    handles = handles_of(got)
    foreign = handles[2].replace(" broker-a ", " elsewhere ") + " "
    alone = [await rpc.ack(handle) for handle in (handles[0], handles[0], "cut", foreign)]
    several = await rpc.ack(handles[1], handles[1], "cut", foreign)
    for number, (one, entry) in enumerate(zip(alone, several.entries, strict=True)):
        (found,) = one.entries
        assert one.status == found.status
        assert found.status.code == entry.status.code
        assert found.receipt_handle == (handles[0], handles[0], "cut", foreign)[number]
        assert found.message_id == "m-0"
    codes = [Code(one.status.code).name for one in alone]
    assert codes == ["OK", *["INVALID_RECEIPT_HANDLE"] * 3]
    assert alone[1].status.message.startswith("INVALID_RECEIPT_HANDLE: extraInfo: offset ")
    again = await all_of(rpc, 2)
    assert sorted(each.body for each in again) == sorted(each.body for each in got[2:])


@pytest.mark.behaviour("GW-27")
async def test_a_wrong_name_is_refused_by_its_code(grpc_broker: Broker, rpc: RpcClient) -> None:
    for topic, group, code in (("a b", "cg", Code.ILLEGAL_TOPIC), ("T", "a b", Code.ILLEGAL_CONSUMER_GROUP)):
        entry = new(schema.AckMessageEntry, message_id="m", receipt_handle="h")
        request = new(schema.AckMessageRequest, group=resource(group), topic=resource(topic), entries=[entry])
        answer = await rpc.ask("AckMessage", request, schema.AckMessageResponse)
        assert (answer.status.code, len(answer.entries)) == (code, 0)


@pytest.mark.behaviour("GW-25")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH")
async def test_acknowledgements_of_one_time_wait_for_the_disk_together(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rpc.sent(*(b"%d" % number for number in range(9)))
    handles = handles_of(await all_of(rpc, 9))
    metadata = grpc_broker.services.metadata
    save, saves, disk = metadata.save, 0, asyncio.Event()

    async def slow(*tables: str) -> None:
        nonlocal saves
        saves += 1
        await disk.wait()
        await save(*tables)

    monkeypatch.setattr(metadata, "save", slow)
    asking = [asyncio.ensure_future(rpc.ack(handle)) for handle in handles]
    await asyncio.sleep(1)
    assert saves == 1
    assert not any(each.done() for each in asking)
    disk.set()
    answers = await asyncio.gather(*asking)
    assert [answer.status.code for answer in answers] == [Code.OK] * 9


@pytest.mark.behaviour("GW-25")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH")
async def test_a_disk_that_refuses_an_acknowledgement_refuses_no_later_one(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rpc.sent(b"one", b"two")
    first, second = handles_of(await all_of(rpc, 2))

    async def refuses(*_tables: Any) -> None:
        raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(grpc_broker.services.metadata, "save", refuses)
        answer = await rpc.ack(first)
    assert answer.status.code != Code.OK
    assert "the disk is full" in answer.status.message
    assert (await rpc.ack(second)).status.code == Code.OK


@pytest.mark.behaviour("GW-54")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH")
async def test_an_acknowledgement_that_comes_with_the_last_answer_is_answered(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The request is read in the turn of the event loop after the only waiting response.
    await rpc.sent(b"one", b"two", b"three")
    handles = handles_of(await all_of(rpc, 3))
    save, disk = grpc_broker.services.metadata.save, asyncio.Event()
    answer, received = Calls.answer, GrpcConnection.received
    held: list[tuple[GrpcConnection, bytes]] = []
    holding = False

    async def slow(*tables: str) -> None:
        await disk.wait()
        await save(*tables)

    def hold(connection: GrpcConnection, data: bytes) -> None:
        if holding:
            held.append((connection, data))
        else:
            received(connection, data)

    def release(calls: Calls, call: StreamCall, data: bytes) -> None:
        nonlocal holding
        holding = False
        answer(calls, call, data)
        for each in held:
            asyncio.get_running_loop().call_soon(received, *each)
        held.clear()

    monkeypatch.setattr(grpc_broker.services.metadata, "save", slow)
    monkeypatch.setattr(GrpcConnection, "received", hold)
    monkeypatch.setattr(Calls, "answer", release)
    async with RpcClient(grpc_broker.runtime, client_id="client-2") as other, asyncio.timeout(30):
        await other.heartbeat()
        first = asyncio.ensure_future(rpc.ack(handles[0]))
        await asyncio.sleep(1)
        holding = True
        second = asyncio.ensure_future(other.ack(handles[1]))
        await asyncio.sleep(1)
        assert held
        disk.set()
        answers = [await first, await second, await rpc.ack(handles[2])]
    assert [answer.status.code for answer in answers] == [Code.OK] * 3


async def check_both_ways(rpc: RpcClient, ordinary: list[bytes]) -> None:
    """Acknowledge good and bad handles both ways."""
    await rpc.sent(*(b"%d" % number for number in range(6)))
    handles = handles_of(await all_of(rpc, 6))
    foreign = handles[5].replace(" broker-a ", " elsewhere ")
    for together in (True, False):
        rpc.grpc.together = together
        mine = handles[:2] if together else handles[2:4]
        for handle in mine:
            answer = await rpc.ack(handle)
            done = new(schema.AckMessageResultEntry, message_id="m-0", receipt_handle=handle, status=ok())
            assert answer == new(schema.AckMessageResponse, status=ok(), entries=[done])
        assert len(ordinary) == (0 if together else 2)
        for handle in (mine[0], "cut", foreign):
            answer = await rpc.ack(handle)
            assert answer.status.code == answer.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
        assert len(ordinary) == (3 if together else 5)
        ordinary.clear()
    assert len(await all_of(rpc, 2)) == 2


@pytest.mark.behaviour("GW-55")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH")
async def test_both_ways_give_the_same_answers(
    grpc_broker: Broker, rpc: RpcClient, ordinary: list[bytes]
) -> None:
    await check_both_ways(rpc, ordinary)


@pytest.mark.behaviour("GW-55")
@pytest.mark.broker(flush_disk_type="ASYNC_FLUSH")
async def test_both_ways_give_the_same_answers_without_waiting_for_the_disk(
    grpc_broker: Broker, rpc: RpcClient, ordinary: list[bytes]
) -> None:
    await check_both_ways(rpc, ordinary)


@pytest.mark.behaviour("GW-55")
async def test_a_redelivered_message_takes_the_ordinary_way(
    grpc_broker: Broker, rpc: RpcClient, ordinary: list[bytes]
) -> None:
    rpc.grpc.together = True
    await rpc.sent(b"again")
    (first,) = handles_of(await all_of(rpc, 1, invisible_ms=10_000))
    await asyncio.sleep(12)
    (second,) = handles_of(await all_of(rpc, 1))
    assert (await rpc.ack(first)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await rpc.ack(second)).status.code == Code.OK
    assert len(ordinary) == 2


@pytest.mark.behaviour("GW-55")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH")
async def test_plain_acknowledgements_are_answered_when_they_are_on_disk(
    grpc_broker: Broker, rpc: RpcClient, ordinary: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    rpc.grpc.together = True
    await rpc.sent(*(b"%d" % number for number in range(4)))
    handles = handles_of(await all_of(rpc, 4))
    metadata = grpc_broker.services.metadata
    save, disk, refusing = metadata.save, asyncio.Event(), False

    async def slow(*tables: str) -> None:
        await disk.wait()
        if refusing:
            raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
        await save(*tables)

    monkeypatch.setattr(metadata, "save", slow)
    asking = [asyncio.ensure_future(rpc.ack(handle)) for handle in handles[:2]]
    await asyncio.sleep(1)
    assert not any(each.done() for each in asking)
    disk.set()
    assert [(await each).status.code for each in asking] == [Code.OK] * 2
    refusing = True
    answer = await rpc.ack(handles[2])
    assert answer.status.code != Code.OK
    assert answer.entries[0].status == answer.status
    assert "the disk is full" in answer.status.message
    assert answer.entries[0].receipt_handle == handles[2]
    refusing = False
    assert (await rpc.ack(handles[3])).status.code == Code.OK
    assert ordinary == []
