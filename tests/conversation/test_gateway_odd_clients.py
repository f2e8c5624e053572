"""gRPC clients that change their kind, share an id, or send floods and garbage."""

from __future__ import annotations

import asyncio
import logging
import os
import time

import pytest
from tests.conversation.grpc_fuzz import Raw, conversation, requests
from tests.conversation.grpc_rpc import RpcClient

from orbitmq.broker.broker import Broker
from orbitmq.gateway import calls as gateway_calls
from orbitmq.gateway.http2 import MAX_STREAMS
from orbitmq.gateway.peer import GrpcPeer
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code
from orbitmq.testing.machine.simulated import seeded


def members(broker: Broker, group: str) -> list[str]:
    """The ids of a group's members that are online."""
    state = broker.services.clients.consumers(group)
    return [] if state is None else state.client_ids


def producers(broker: Broker, topic: str) -> list[str]:
    return [client.client_id for client in broker.services.clients.producers(topic)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    return [text.split(" was ")[1] for text in found if "two clients have one id" in text]


# -- a client that changes its group or kind -----------------------------------------------------------


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
        # Messages that the first client has received for the new group stay with it.
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
        for each, found in zip((twin, rpc), got, strict=True):  # each acknowledges the other's messages
            handles = [found.handle(index) for index in range(len(found.messages))]
            assert (await each.ack(*handles)).status.code == Code.OK
        # When one stream ends, the other still shows that the client lives.
        second.reset()
        await asyncio.sleep(12)
        await rpc.heartbeat(ClientType.PUSH_CONSUMER)
        assert members(grpc_broker, "cg") == ["client-1"]
        # The goodbye of one counts for both; the other is a member again with its next stream.
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


# -- floods and damage ---------------------------------------------------------------------------------


async def is_served(broker: Broker, client_id: str) -> None:
    async with RpcClient(broker.runtime, client_id=client_id, group=client_id) as other:
        await other.start()
        await other.sent(b"one", topic=client_id)
        got = await other.receive(client_id)
        assert b"one" in got.bodies
        assert (await other.ack(got.handle(), topic=client_id)).status.code == Code.OK


@pytest.mark.behaviour("GW-53")
async def test_10000_telemetry_streams_that_never_read_hold_up_nobody(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[object] = []
    monkeypatch.setattr(GrpcPeer, "oneway", lambda _, command: notices.append(command))
    flood = [await Raw().connect(grpc_broker) for _ in range(10)]
    for number, each in enumerate(flood):
        await each.opens(MAX_STREAMS, f"deaf-{number}", rpc.settings())
    await flood[0].opens(1, "one more", rpc.settings(), first=MAX_STREAMS)
    assert b"calls of this connection are under way" in flood[0].received
    assert len(members(grpc_broker, "cg")) == 10 * MAX_STREAMS
    await is_served(grpc_broker, "other")
    for each in flood:
        each.transport.close()
    await asyncio.sleep(12)
    assert members(grpc_broker, "cg") == []
    await is_served(grpc_broker, "after")
    # Notices of each member to each other would be fifty million, which no gRPC client uses.
    assert notices == []
    assert len(warnings_of(caplog)) < 10


@pytest.mark.behaviour("GW-53")
async def test_settings_beyond_what_a_connection_may_hold_end_their_stream(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_calls, "MAX_HELD_BYTES", 1 << 20)
    settings = rpc.settings(topics=[f"topic-{number:0100}" for number in range(100)])
    assert (1 << 20) // settings.ByteSize() in range(80, 100)
    deaf = await Raw().connect(grpc_broker)
    await deaf.opens(200, "deaf", settings)
    refused = deaf.received.count(b"more than can be held")
    assert 200 > refused >= 100
    await is_served(grpc_broker, "other")
    # Streams that have ended do not count.
    deaf.end(0, 200)
    await asyncio.sleep(1)
    await deaf.opens(20, "deaf", settings, first=200)
    assert deaf.received.count(b"more than can be held") == refused


# How many seconds clients send damaged conversations; 0 for a fixed number of them, which takes a second or
# two.
FUZZ_SECONDS = float(os.environ.get("ORBITMQ_FUZZ_SECONDS", "0"))
FUZZ_SEED, FUZZ_ROUNDS = 53, 600


@pytest.mark.behaviour("GW-53")
async def test_damaged_conversations_cost_no_traceback_and_few_log_lines(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await rpc.start()
    await rpc.sent(b"one")
    good = requests(rpc, (await rpc.receive()).handle())
    dice, rounds, begin = seeded(FUZZ_SEED), 0, time.monotonic()
    while rounds < FUZZ_ROUNDS or time.monotonic() - begin < FUZZ_SECONDS:
        rounds += 1
        data = conversation(dice, good)
        visitor = await Raw().connect(grpc_broker, data[: (cut := dice.randrange(len(data) + 1))])
        await asyncio.sleep(0)
        visitor.transport.write(data[cut:])
        await asyncio.sleep(0.001)
        visitor.transport.close()
        if rounds % 200 == 0:
            await is_served(grpc_broker, f"witness-{rounds % 1000}")
    await asyncio.sleep(60)
    await is_served(grpc_broker, "after")
    assert len(grpc_broker.services.clients.producer_groups()) == 0
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert len(caplog.records) < 200
