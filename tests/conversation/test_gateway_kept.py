"""Messages that stay with a push consumer, and messages whose response is lost on its way."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.grpc_rpc import Received, RpcClient, all_of, ordered_group, receiving

from orbitmq.broker.broker import Broker
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code
from orbitmq.testing import SimulatedRuntime

# -- messages that stay with their client --------------------------------------------------------------


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
    """The client never had a stream, so only its silence shows that it is gone."""
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


# -- lost responses ----------------------------------------------------------------------------------


async def lost_answer(rpc: RpcClient, lossy: RpcClient, **values: object) -> int:
    """Send a message and let a client receive it without getting the response; returns the stream."""
    stream = receiving(lossy, renew=True, wait_ms=20_000, **values)
    await asyncio.sleep(0.1)
    lossy.grpc.hears = False
    await rpc.sent(b"one")
    await asyncio.sleep(0.1)
    return stream


async def comes_again(rpc: RpcClient, within_s: float) -> Received:
    """The messages that a second client of the group receives, which waits for at most this long."""
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
