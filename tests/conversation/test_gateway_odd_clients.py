"""gRPC clients that change what they are, share an id, or send floods and garbage."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.grpc_rpc import RpcClient

from orbitmq.broker.broker import Broker
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code


def members(broker: Broker, group: str) -> list[str]:
    """The ids of a group's members that are online."""
    state = broker.services.clients.consumers(group)
    return [] if state is None else state.client_ids


def producers(broker: Broker, topic: str) -> list[str]:
    return [client.client_id for client in broker.services.clients.producers(topic)]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    return [text.split(" was ")[1] for text in found if "two clients have one id" in text]


# -- a client that becomes another ---------------------------------------------------------------------


@pytest.mark.behaviour("GW-52")
async def test_a_client_that_changes_its_group_leaves_the_old_one_and_its_messages(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await rpc.start(ClientType.PUSH_CONSUMER)
    await rpc.sent(b"one")
    assert (await rpc.receive(renew=True)).bodies == [b"one"]
    rpc.group = "other"
    assert (await rpc.receive(renew=True)).bodies == [b"one"]
    await stream.send(rpc.settings())
    assert (await stream.next()).status.code == Code.OK
    assert (members(grpc_broker, "cg"), members(grpc_broker, "other")) == ([], ["client-1"])
    assert warned(caplog) == [
        "a consumer of group cg and is now a consumer of group other: "
        "if it has not changed, two clients have one id"
    ]
    async with RpcClient(grpc_broker.runtime, client_id="client-2") as second:
        await second.start()
        assert (await second.receive(wait_ms=2_000)).bodies == [b"one"]
        second.group = "other"
        # What it has of its new group stays with it.
        assert (await second.receive(wait_ms=2_000)).bodies == []


@pytest.mark.behaviour("GW-52")
async def test_a_producer_that_becomes_a_consumer_and_back(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await rpc.start(ClientType.PRODUCER)
    assert (producers(grpc_broker, "T"), members(grpc_broker, "cg")) == (["client-1"], [])
    await stream.send(rpc.settings(ClientType.SIMPLE_CONSUMER))
    await stream.next()
    assert (producers(grpc_broker, "T"), members(grpc_broker, "cg")) == ([], ["client-1"])
    await stream.send(rpc.settings(ClientType.PRODUCER, ["T2"]))
    await stream.next()
    assert (producers(grpc_broker, "T"), members(grpc_broker, "cg")) == ([], [])
    assert producers(grpc_broker, "T2") == ["client-1"]
    (first, *_) = warned(caplog)
    assert first.startswith("a producer and is now a consumer of group cg:")


@pytest.mark.behaviour("GW-52")
async def test_a_push_consumer_that_becomes_a_simple_one_stays_in_its_group(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await rpc.start(ClientType.PUSH_CONSUMER)
    await rpc.sent(b"one")
    got = await rpc.receive(renew=True)
    await stream.send(rpc.settings(ClientType.SIMPLE_CONSUMER))
    await stream.next()
    assert members(grpc_broker, "cg") == ["client-1"]
    assert (await rpc.receive(wait_ms=2_000)).bodies == []
    assert (await rpc.ack(got.handle())).status.code == Code.OK
    assert warned(caplog) == []


# -- two clients with one id ---------------------------------------------------------------------------


@pytest.mark.behaviour("GW-52")
async def test_two_clients_with_one_id_are_both_served(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with RpcClient(grpc_broker.runtime) as twin:
        first, second = await rpc.start(), await twin.start()
        await rpc.sent(*(b"%d" % number for number in range(6)))
        got = [await each.receive(count=3, renew=True) for each in (rpc, twin)]
        assert sorted(body for each in got for body in each.bodies) == [b"%d" % n for n in range(6)]
        assert members(grpc_broker, "cg") == ["client-1"]
        for each, found in zip((twin, rpc), got, strict=True):  # each acknowledges what the other got
            handles = [found.handle(index) for index in range(len(found.messages))]
            assert (await each.ack(*handles)).status.code == Code.OK
        # A stream of one ends, the other's is there: the client is.
        second.reset()
        await asyncio.sleep(12)
        await rpc.heartbeat(ClientType.PUSH_CONSUMER)
        assert members(grpc_broker, "cg") == ["client-1"]
        # The goodbye of one is that of both; the other comes back with its next stream.
        await twin.goodbye()
        await asyncio.wait_for(first.answer.done.wait(), 5)
        assert members(grpc_broker, "cg") == []
        await rpc.start()
        assert members(grpc_broker, "cg") == ["client-1"]
        assert (await rpc.receive(wait_ms=35_000)).bodies == (await rpc.receive(wait_ms=35_000)).bodies == []


@pytest.mark.behaviour("GW-52")
async def test_two_clients_with_one_id_and_two_groups_do_not_fill_the_log(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with RpcClient(grpc_broker.runtime, group="other") as twin:
        await rpc.start()
        await twin.start()
        for _ in range(300):
            await rpc.heartbeat(ClientType.PUSH_CONSUMER)
            await twin.heartbeat(ClientType.PUSH_CONSUMER)
            await asyncio.sleep(0.01)
        assert members(grpc_broker, "other") == ["client-1"]
        assert (await rpc.route()).status.code == Code.OK
    assert 1 <= len(warned(caplog)) <= 6
