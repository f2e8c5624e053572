"""A group that reads over gRPC and over remoting: deliveries of a message count once for both."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_rpc import RpcClient
from tests.conversation.test_broker_pop import pop

from orbitmq.broker.broker import Broker
from orbitmq.gateway.status import Code
from orbitmq.wire.codes import RequestCode


async def group_of(broker: Broker, *, in_order: bool, retries: int) -> None:
    async with BrokerPeer(broker.runtime) as peer:
        orderly = b"true" if in_order else b"false"
        body = b'{"groupName":"cg","consumeMessageOrderly":%s,"retryMaxTimes":%d}' % (orderly, retries)
        await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def tried_by_grpc(rpc: RpcClient) -> int:
    """Receive the message and let its time run out; returns the number of the delivery, 0 without a
    message.
    """
    found = (await rpc.receive()).messages
    await asyncio.sleep(12)
    return found[0].system_properties.delivery_attempt if found else 0


async def tried_by_remoting(peer: BrokerPeer, *, in_order: bool) -> int:
    """Do the same by a pop of the remoting protocol."""
    popped = await pop(peer, order=in_order)
    await asyncio.sleep(12)
    if not popped.records:
        return 0
    if not in_order:
        return popped.records[0].reconsume_times + 1
    assert popped.header is not None
    counts = [line.split()[-1] for line in (popped.header.order_count_info or "").split(";") if line]
    return max(map(int, counts), default=0) + 1


@pytest.mark.behaviour("GW-46")
@pytest.mark.parametrize("in_order", [False, True])
async def test_deliveries_of_both_protocols_count_together(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    await group_of(grpc_broker, in_order=in_order, retries=3)
    await rpc.route()
    await rpc.sent(b"poison", message_group="g")
    async with BrokerPeer(grpc_broker.runtime) as peer:
        tries = [
            await tried_by_grpc(rpc),
            await tried_by_remoting(peer, in_order=in_order),
            await tried_by_grpc(rpc),
            await tried_by_remoting(peer, in_order=in_order),
        ]
    assert tries == [1, 2, 3, 4]
    assert (await rpc.receive()).code == Code.MESSAGE_NOT_FOUND
    await asyncio.sleep(2)
    assert grpc_broker.services.store.max_offset("%DLQ%cg", 0) == 1
    assert (await rpc.receive(wait_ms=20_000)).messages == []


@pytest.mark.behaviour("GW-46")
@pytest.mark.parametrize("in_order", [False, True])
async def test_another_invisible_time_of_either_protocol_counts_one_delivery(
    grpc_broker: Broker, rpc: RpcClient, in_order: bool
) -> None:
    await group_of(grpc_broker, in_order=in_order, retries=3)
    await rpc.route()
    await rpc.sent(b"slow", message_group="g")
    first = await rpc.receive()
    changed = await rpc.change(first.handle(), 30_000)
    again = await rpc.change(changed.receipt_handle, 20_000)
    assert again.status.code == Code.OK
    await asyncio.sleep(22)
    async with BrokerPeer(grpc_broker.runtime) as peer:
        assert await tried_by_remoting(peer, in_order=in_order) == 2
    assert await tried_by_grpc(rpc) == 3
