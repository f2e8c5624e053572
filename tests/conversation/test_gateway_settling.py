"""The end of a message over gRPC: acknowledged, in order, postponed, tried too often, given up."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.grpc_rpc import RpcClient, all_of, in_flight, ordered_group

from orbitmq.broker.broker import Broker
from orbitmq.gateway.status import Code

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


# -- dead letters ------------------------------------------------------------------------------------


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
