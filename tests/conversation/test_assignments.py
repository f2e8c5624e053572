"""Queues that the broker assigns, queried over the protocol and by OrbitMQ's consumers; pull, pop and
back.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer

from orbitmq import Consumer, Message, ReceivedMessage
from orbitmq.broker.clients.assignment import share_for_pop
from orbitmq.client.consumer.allocation import ByBroker, average
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from orbitmq.wire.bodies.pop import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from orbitmq.wire.codes import RequestCode, ResponseCode

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


async def join(peer: BrokerPeer, client_id: str) -> None:
    data = ConsumerData("cg", subscription_data_set=[SubscriptionData("T")])
    await peer.ok(RequestCode.HEART_BEAT, HeartbeatData(client_id, consumer_data_set=[data]).encode())


async def assigned(peer: BrokerPeer, client_id: str, **values: str) -> list[tuple[int, str]] | None:
    asked = QueryAssignmentRequestBody("T", "cg", client_id, **{"strategy_name": "AVG", **values})
    answer = await peer.ok(RequestCode.QUERY_ASSIGNMENT, asked.encode())
    found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    if found is None:
        return None
    return [(one.message_queue.queue_id, str(one.mode)) for one in found if one.message_queue is not None]


async def set_mode(peer: BrokerPeer, mode: MessageRequestMode, share: int = 0) -> None:
    body = SetMessageRequestModeRequestBody("T", "cg", mode, share)
    await peer.ok(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())


@pytest.mark.behaviour("SH-02")
async def test_members_get_their_shares(peer: BrokerPeer) -> None:
    await peer.sent()
    await join(peer, "one")
    assert await assigned(peer, "one") == [(n, "PULL") for n in range(4)]
    async with BrokerPeer(peer.runtime) as other:
        await join(other, "two")
        assert await assigned(peer, "one") == [(0, "PULL"), (1, "PULL")]
        assert await assigned(peer, "two") == [(2, "PULL"), (3, "PULL")]
        assert await assigned(peer, "two", strategy_name="AVG_BY_CIRCLE") == [(1, "PULL"), (3, "PULL")]
        assert await assigned(peer, "two", strategy_name="none") is None
        assert await assigned(peer, "stranger") == []
        assert await assigned(peer, "one", message_model="BROADCASTING") == [(n, "PULL") for n in range(4)]
    asked = QueryAssignmentRequestBody("unknown", "cg", "one", "AVG")
    answer = await peer.ok(RequestCode.QUERY_ASSIGNMENT, asked.encode())
    assert QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments is None


@pytest.mark.behaviour("SH-02")
async def test_a_group_is_switched_to_pop_and_back(peer: BrokerPeer) -> None:
    await peer.sent()
    await join(peer, "one")
    await set_mode(peer, MessageRequestMode.POP)
    assert await assigned(peer, "one") == [(-1, "POP")]
    await set_mode(peer, MessageRequestMode.PULL)
    assert await assigned(peer, "one") == [(n, "PULL") for n in range(4)]
    for topic, group, code in [
        ("%RETRY%cg", "cg", ResponseCode.NO_PERMISSION),
        ("none", "cg", ResponseCode.TOPIC_NOT_EXIST),
        ("T", "no/group", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ]:
        body = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode.POP)
        assert (await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())).code == code


@pytest.mark.parametrize(
    ("members", "share", "queues"),
    [
        (["a"], 1, [-1]),
        (["a", "b", "c", "d"], 0, [-1]),
        (["a", "b", "c", "d"], 1, [1, 2]),
        (["a", "b", "c", "d"], 2, [1, 2, 3]),
        (["a", "b", "c", "d"], 3, [-1]),
        (["a", "b", "c", "d", "e", "f"], 2, [1]),
        (["a", "c", "d", "e", "f"], 2, []),
    ],
)
def test_the_pop_share(members: list[str], share: int, queues: list[int]) -> None:
    assert [queue.queue_id for queue in share_for_pop(average, "b", QUEUES, members, share)] == (
        queues if members != ["a"] else [-1]
    )


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("SH-02")
async def test_consumers_take_what_the_broker_gives_also_after_a_restart(orbitmq_world: World) -> None:
    world = orbitmq_world
    got: list[bytes] = []

    async def keep(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with world.admin() as admin:
        await admin.topics.create("T", queues=4)
    members = [world.consumer("cg", allocate=ByBroker()) for _ in range(2)]
    async with members[0], members[1], world.producer() as producer:
        for member in members:
            member.subscribe("T")
        tasks = [asyncio.create_task(member.run(keep)) for member in members]
        await world.until(lambda: all(len(own(member)) == 4 for member in members))
        assert len({queue for member in members for queue in own(member)}) == 8
        for name in ("broker-a", "broker-b"):
            async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
                await set_mode(peer, MessageRequestMode.POP)
        popped = [MessageQueue("T", name, -1) for name in ("broker-a", "broker-b")]
        await world.until(lambda: all(own(member) == popped for member in members))
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
        for name in list(world.brokers):
            await world.stop_broker(name)
            await world.start_broker(name)
        await world.until(lambda: len(got) == 20, 60)
        await world.until(lambda: all(own(member) == popped for member in members))
        for name in ("broker-a", "broker-b"):
            async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
                await set_mode(peer, MessageRequestMode.PULL)
        await world.until(lambda: all(len(own(member)) == 4 for member in members))
    for task in tasks:
        await task
    assert sorted(got) == sorted(b"%d" % number for number in range(20))


def own(member: Consumer) -> list[MessageQueue]:
    return [queue for queue in member.assignment() if queue.topic == "T"]
