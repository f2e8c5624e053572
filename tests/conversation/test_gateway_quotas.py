"""The broker pauses reading from a gRPC client over its quota; it reads from others, and no call fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_rpc import RpcClient, message
from tests.conversation.test_gateway_access import APP, OTHER, RULES, world
from tests.conversation.test_gateway_plain_sends import BORN

from orbitmq.broker.broker import Broker
from orbitmq.broker.quotas.table import QuotaTable
from orbitmq.gateway.status import Code
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.quota import Quota
from orbitmq.wire.codes import RequestCode

TOPICS = ("slow", "quick")


async def limit(peer: BrokerPeer, kind: str, name: str, **limits: int) -> None:
    await peer.ok(RequestCode.SET_QUOTA, Quota(kind, name, **limits).encode())


async def quota_of(peer: BrokerPeer) -> Quota:
    [quota] = Quota.decode_list((await peer.ok(RequestCode.LIST_QUOTAS)).body)
    return quota


async def took(broker: Broker, work: Awaitable[object]) -> float:
    clock = broker.runtime.clock
    begin = clock.monotonic()
    await work
    return clock.monotonic() - begin


async def send(rpc: RpcClient, count: int, topic: str = "T", size: int = 1) -> None:
    """Send messages the plain way: they name the time at which they were created."""
    for _ in range(count):
        answer = await rpc.send(message(bytes(size), topic=topic, born_timestamp=BORN))
        assert answer.status.code == Code.OK


async def receive(rpc: RpcClient, count: int) -> None:
    """Receive messages, five at a time."""
    while count > 0:
        count -= len((await rpc.receive(count=5, wait_ms=20_000)).messages)


@pytest.mark.behaviour("LM-10")
async def test_messages_of_a_topic_are_taken_at_its_rate(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer, RpcClient(grpc_broker.runtime) as other:
        for topic in TOPICS:
            await peer.create(topic, readQueueNums=1, writeQueueNums=1)
            # Both topics are known to the plain way before the quota is set.
            await send(rpc, 1, topic)
        await limit(peer, "topic", "slow", messages_in=10)
        assert await took(grpc_broker, send(other, 50, "quick")) < 1
        # The quota allows ten messages at once, then ten a second.
        assert 4 <= await took(grpc_broker, send(rpc, 51, "slow")) < 6
        quota = await quota_of(peer)
        assert quota.pauses_in >= 40
        await limit(peer, "topic", "slow")
        assert await took(grpc_broker, send(rpc, 51, "slow")) < 1


@pytest.mark.behaviour("LM-10")
async def test_a_request_with_messages_of_two_topics_counts_each_for_its_own(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        for topic in TOPICS:
            await peer.create(topic, readQueueNums=1, writeQueueNums=1)
        await limit(peer, "topic", "slow", messages_in=2)

        async def both() -> None:
            for _ in range(5):
                answer = await rpc.send(message(topic="slow"), message(topic="quick"), message(topic="quick"))
                assert answer.status.code == Code.OK

        # Two of five messages are free; the fifth request waits for the debt of the fourth.
        assert 0.9 <= await took(grpc_broker, both()) < 1.5


@pytest.mark.behaviour("LM-10")
async def test_an_address_brings_its_bytes_a_second_also_on_a_new_connection(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T", readQueueNums=1, writeQueueNums=1)
        await send(rpc, 1)
        await limit(peer, "address", "127.0.0.1", bytes_in=1000)
        assert 4 <= await took(grpc_broker, send(rpc, 6, size=1000)) < 6
        await send(rpc, 1, size=12_000)

        async def again() -> None:
            async with RpcClient(grpc_broker.runtime, client_id="client-2") as client:
                await send(client, 1)

        # A client that reconnects waits for the rest of its pause, which is longer than a preface may take.
        assert 11 < await took(grpc_broker, again()) < 14


@pytest.mark.behaviour("LM-10")
async def test_what_a_topic_gives_is_limited(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T", readQueueNums=1, writeQueueNums=1)
        await send(rpc, 30)
        await limit(peer, "topic", "T", messages_out=10)
        assert 1.5 <= await took(grpc_broker, receive(rpc, 30)) < 4
        assert (await quota_of(peer)).pauses_out >= 3


@pytest.mark.behaviour("LM-10")
@pytest.mark.parametrize(("mode", "limited"), [("enforce", True), ("observe", False)])
async def test_a_user_is_limited_where_keys_are_checked(
    runtime: SimulatedRuntime, mode: str, limited: bool
) -> None:
    async with world(runtime, auth_mode=mode) as found:
        await found.broker.part(QuotaTable).set(Quota("user", "app", messages_in=10, messages_out=10))
        found.allow("other", *RULES)
        async with found.client(OTHER, "client-2") as other, found.client(APP) as app:
            assert await took(found.broker, send(other, 51)) < 1
            assert (4 <= await took(found.broker, send(app, 51)) < 6) is limited
            await asyncio.sleep(10)
            assert (2 <= await took(found.broker, receive(app, 50)) < 6) is limited
