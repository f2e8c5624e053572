"""gRPC clients: routes, assignments, settings, heartbeats, and the end of clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_client import prefixed
from tests.conversation.grpc_rpc import RpcClient, kinds, message, resource

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.messages import milliseconds, new
from orbitmq.gateway.outbox import MAX_ANSWERS
from orbitmq.gateway.schema import AddressScheme, ClientType, MessageType, Permission
from orbitmq.gateway.status import Code
from orbitmq.runtime.tasks import Background
from orbitmq.wire.bodies.client import ConsumerConnection, ProducerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode

FOUR = [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]


# -- routes --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-11")
async def test_a_route_gives_back_the_address_that_the_client_used(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    answer = await rpc.route("T", ("mq.example.com", 30_081))
    assert answer.status.code == Code.OK
    endpoints = answer.message_queues[0].broker.endpoints
    assert endpoints.scheme == AddressScheme.DOMAIN_NAME
    assert [(each.host, each.port) for each in endpoints.addresses] == [("mq.example.com", 30_081)]
    several: list[tuple[str, int]] = [("10.0.0.1", 1), ("10.0.0.2", 2)]
    for addresses in ([], several):
        answer = await rpc.route("T", *addresses)
        endpoints = answer.message_queues[0].broker.endpoints
        assert endpoints.scheme == AddressScheme.IPV4
        assert [(each.host, each.port) for each in endpoints.addresses] == [("127.0.0.1", 10911)]


@pytest.mark.behaviour("GW-11")
async def test_an_assignment_gives_the_used_address_only_if_it_leads_to_this_broker(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async def place(*used: tuple[str, int]) -> tuple[str, int]:
        answer = await rpc.assignment("T", *used)
        (address,) = answer.assignments[0].message_queue.broker.endpoints.addresses
        return address.host, address.port

    # A client of another broker sends that broker's address in its calls to this one.
    elsewhere = ("mq-b.example.com", 30_081)
    assert await place(elsewhere) == ("127.0.0.1", 10911)
    here = ("mq-a.example.com", 30_081)
    await rpc.route("T", here)
    assert await place(here) == here
    assert await place(elsewhere) == ("127.0.0.1", 10911)


@pytest.mark.behaviour("GW-12")
async def test_an_unknown_topic_is_made_for_messages_of_all_types(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    answer = await rpc.route("fresh")
    assert answer.status.code == Code.OK, answer
    assert [queue.id for queue in answer.message_queues] == list(range(8))
    assert {queue.permission for queue in answer.message_queues} == {Permission.READ_WRITE}
    assert kinds(answer.message_queues[0]) == FOUR
    assert answer.message_queues[0].topic.name == "fresh"
    assert (answer.message_queues[0].broker.name, answer.message_queues[0].broker.id) == ("broker-a", 0)
    made = grpc_broker.services.topics.get("fresh")
    assert made is not None
    assert made.attributes == {"message.type": "MIXED"}
    assert grpc_broker.services.metadata.saved("fresh")


@pytest.mark.behaviour("GW-12")
@pytest.mark.broker(auto_create_topic_enable=False)
async def test_without_auto_create_an_unknown_topic_is_not_found(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.route("fresh")
    assert answer.status.code == Code.TOPIC_NOT_FOUND
    assert "orbitmq topic create fresh" in answer.status.message
    sent = await rpc.send(message(topic="fresh"))
    assert sent.status.code == Code.TOPIC_NOT_FOUND
    assert grpc_broker.services.topics.get("fresh") is None


@pytest.mark.behaviour("GW-51")
@pytest.mark.parametrize("kind", [ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER])
async def test_a_running_consumer_does_not_make_a_deleted_topic_again(
    grpc_broker: Broker, rpc: RpcClient, kind: ClientType
) -> None:
    assert (await rpc.route("T")).status.code == Code.OK
    await rpc.start(kind)
    assert grpc_broker.services.topics.delete("T")
    for answer in (await rpc.route("T"), await rpc.assignment("T")):
        assert answer.status.code == Code.TOPIC_NOT_FOUND
        assert "orbitmq topic create T" in answer.status.message
    assert "T" not in grpc_broker.services.topics
    assert (await rpc.route("another")).status.code == Code.OK  # the client subscribes to another topic
    async with RpcClient(grpc_broker.runtime, client_id="producer-1") as producer:
        assert (await producer.send(message())).status.code == Code.OK
    assert (await rpc.route("T")).status.code == Code.OK


@pytest.mark.behaviour("GW-51")
async def test_a_consumer_that_starts_makes_a_deleted_topic_again(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    assert (await rpc.route("T")).status.code == Code.OK
    assert grpc_broker.services.topics.delete("T")
    assert (await rpc.route("T")).status.code == Code.OK


@pytest.mark.behaviour("GW-12")
async def test_topics_of_groups_are_not_made(grpc_broker: Broker, rpc: RpcClient) -> None:
    for topic in ("%DLQ%cg", "%RETRY%cg"):
        assert (await rpc.route(topic)).status.code == Code.TOPIC_NOT_FOUND


@pytest.mark.behaviour("GW-12")
async def test_a_route_shows_each_queue_with_what_may_be_done(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("more", readQueueNums=3, writeQueueNums=1)
        await peer.create("readable", perm=4)
        await peer.create("writable", perm=2)
        await peer.create("shut", perm=0)
        await peer.create("fifo", attributes="+message.type=FIFO")
        await peer.create("strange", attributes="+message.type=UNSPECIFIED")
    of = {
        topic: [Permission(queue.permission).name for queue in (await rpc.route(topic)).message_queues]
        for topic in ("more", "readable", "writable", "shut")
    }
    assert of == {
        "more": ["READ_WRITE", "READ", "READ"],
        "readable": ["READ", "READ"],
        "writable": ["WRITE", "WRITE"],
        "shut": ["NONE", "NONE"],
    }
    assert kinds((await rpc.route("fifo")).message_queues[0]) == [MessageType.FIFO]
    assert kinds((await rpc.route("strange")).message_queues[0]) == [MessageType.NORMAL]
    assert kinds((await rpc.route("more")).message_queues[0]) == [MessageType.NORMAL]


@pytest.mark.behaviour("GW-12")
async def test_an_assignment_is_all_queues_at_once_or_each_in_order(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T")
        await peer.create("shut", perm=2)
        group = b'{"groupName":"ordered","consumeMessageOrderly":true}'
        await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
    answer = await rpc.assignment()
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    assert answer.assignments[0].message_queue.broker.name == "broker-a"
    rpc.group = "ordered"
    answer = await rpc.assignment()
    assert [each.message_queue.id for each in answer.assignments] == [0, 1]
    assert (await rpc.assignment("shut")).status.code == Code.FORBIDDEN


@pytest.mark.behaviour("GW-27")
@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
async def test_a_topic_that_no_client_may_use_is_refused(
    grpc_broker: Broker, rpc: RpcClient, topic: str
) -> None:
    assert (await rpc.route(topic)).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.assignment(topic)).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.send(message(topic=topic))).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.receive(topic)).code == Code.ILLEGAL_TOPIC


@pytest.mark.behaviour("GW-27")
@pytest.mark.parametrize("group", ["", "a b", "x" * 121, "CID_RMQ_SYS_TRANS"])
async def test_a_group_that_no_client_may_use_is_refused(
    grpc_broker: Broker, rpc: RpcClient, group: str
) -> None:
    rpc.group = group
    assert (await rpc.heartbeat()).status.code == Code.ILLEGAL_CONSUMER_GROUP
    assert (await rpc.assignment()).status.code == Code.ILLEGAL_CONSUMER_GROUP
    assert (await rpc.receive()).code == Code.ILLEGAL_CONSUMER_GROUP
    assert (await rpc.ack("x")).status.code == Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.behaviour("GW-27")
async def test_a_client_says_who_it_is(grpc_broker: Broker, rpc: RpcClient) -> None:
    rpc.client_id = ""
    assert (await rpc.route()).status.code == Code.CLIENT_ID_REQUIRED
    assert (await rpc.receive()).code == Code.CLIENT_ID_REQUIRED
    stream = rpc.telemetry()
    command = await stream.next()
    assert command.status.code == Code.CLIENT_ID_REQUIRED
    await stream.answer.done.wait()
    assert stream.answer.status == 3
    rpc.client_id = "x" * 300
    answer = await rpc.route()
    assert answer.status.code == Code.CLIENT_ID_REQUIRED
    assert "300 characters, limit 255" in answer.status.message


# -- settings ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-13")
async def test_settings_are_answered_at_once_whatever_is_wrong_with_them(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    stream = rpc.telemetry()
    for topics in (["T"], ["unknown"], ["a b", "", "x" * 500], []):
        for kind in (ClientType.PRODUCER, ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER):
            await stream.send(rpc.settings(kind, topics))
            command = await stream.next()
            assert command.status.code == Code.OK
            assert command.settings.metric.on is False
    rpc.group = "not a name"
    await stream.send(rpc.settings())
    assert (await stream.next()).status.code == Code.OK
    await stream.send(new(schema.Settings))
    assert (await stream.next()).status.code == Code.OK


@pytest.mark.behaviour("GW-13")
@pytest.mark.broker(auto_create_subscription_group=False)
async def test_settings_of_an_unknown_group_are_the_defaults(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = rpc.telemetry()
    await stream.send(rpc.settings())
    settings = (await stream.next()).settings
    assert milliseconds(settings.subscription.long_polling_timeout) == 20_000
    assert settings.backoff_policy.max_attempts == 17


@pytest.mark.behaviour("GW-13")
@pytest.mark.behaviour("GW-36")
async def test_a_kind_of_client_that_is_not_served_is_told_so(
    grpc_broker: Broker, rpc: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    stream = rpc.telemetry()
    await stream.send(rpc.settings(ClientType.LITE_PUSH_CONSUMER))
    assert (await stream.next()).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    await asyncio.wait_for(stream.answer.done.wait(), 5)
    text = "client_type 5 (LITE_PUSH_CONSUMER) is not served"
    assert (stream.answer.status, text in stream.answer.message) == (3, True)
    assert [record.levelname for record in caplog.records if text in record.getMessage()] == ["WARNING"]
    answer = await rpc.heartbeat(ClientType.PULL_CONSUMER)
    assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def group_with(broker: Broker, **changes: object) -> None:
    """Change group cg as an administrator does."""
    body = json.dumps({"groupName": "cg", **changes}).encode()
    async with BrokerPeer(broker.runtime, client_id="admin") as peer:
        await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


@pytest.mark.behaviour("GW-35")
async def test_settings_go_out_again_when_their_group_has_changed(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    stream = await rpc.start()
    async with (
        RpcClient(grpc_broker.runtime, client_id="other", group="other") as other,
        RpcClient(grpc_broker.runtime, client_id="producer") as producer,
    ):
        quiet = [await other.start(), await producer.start(ClientType.PRODUCER)]
        policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1500, "max": 9000}}
        await group_with(grpc_broker, retryMaxTimes=4, groupRetryPolicy=policy)
        command = await stream.next(1.5)
        assert command.status.code == Code.OK
        assert command.settings.backoff_policy.max_attempts == 5
        growing = command.settings.backoff_policy.exponential_backoff
        assert (milliseconds(growing.initial), milliseconds(growing.max)) == (1500, 9000)
        assert command.settings.subscription.subscriptions[0].topic.name == "T"
        await group_with(grpc_broker, retryMaxTimes=4, groupRetryPolicy=policy, consumeMessageOrderly=True)
        assert (await stream.next(1.5)).settings.subscription.fifo is True
        # Settings are not sent if they are unchanged, or if the change concerns only the broker.
        await group_with(
            grpc_broker,
            retryMaxTimes=4,
            groupRetryPolicy=policy,
            consumeMessageOrderly=True,
            consumeTimeoutMinute=7,
        )
        for each in (stream, *quiet):
            with pytest.raises(TimeoutError):
                await each.next(3)


@pytest.mark.behaviour("GW-35")
async def test_a_stream_that_has_ended_gets_no_settings(grpc_broker: Broker, rpc: RpcClient) -> None:
    old = await rpc.start()
    old.reset()
    await asyncio.sleep(0.1)
    stream = await rpc.start()
    await group_with(grpc_broker, retryMaxTimes=4)
    assert (await stream.next(1.5)).settings.backoff_policy.max_attempts == 5


# -- authorization -------------------------------------------------------------------------------------

SIGNED = "MQv2-HMAC-SHA1 Credential=%s, SignedHeaders=x-mq-date-time, Signature=" + "0f" * 20
DATE_TIME = {"x-mq-date-time": "20261129T061500Z"}


@pytest.mark.behaviour("GW-34")
@pytest.mark.parametrize("key", ["", "alice", "alice//RocketMQ"])
async def test_all_are_let_in_whatever_their_key(grpc_broker: Broker, rpc: RpcClient, key: str) -> None:
    rpc.more_headers = {"authorization": SIGNED % key, **DATE_TIME}
    assert (await rpc.route()).status.code == Code.OK
    assert (await rpc.receive()).code == Code.MESSAGE_NOT_FOUND
    await rpc.start()


@pytest.mark.behaviour("GW-34")
async def test_a_broken_authorization_is_refused_by_every_kind_of_call(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    rpc.more_headers = {"authorization": "Basic YTpi", **DATE_TIME}
    answer = await rpc.route()
    assert answer.status.code == Code.UNAUTHORIZED
    assert "header authorization" in answer.status.message
    assert (await rpc.receive()).code == Code.UNAUTHORIZED
    stream = rpc.telemetry()
    assert (await stream.next()).status.code == Code.UNAUTHORIZED
    await asyncio.wait_for(stream.answer.done.wait(), 5)
    assert stream.answer.status == 16


@pytest.mark.behaviour("GW-14")
async def test_a_client_that_never_reads_its_stream_holds_up_nothing(
    grpc_broker: Broker, orbitmq_loop: object
) -> None:
    async with RpcClient(grpc_broker.runtime, reads=False) as deaf:
        stream = deaf.telemetry()
        for _ in range(20 * MAX_ANSWERS):
            # The message is large enough to fill each window.
            await stream.send(deaf.settings(topics=[f"topic-{number}" for number in range(200)]))
        await asyncio.sleep(1)
        async with RpcClient(grpc_broker.runtime, client_id="other") as other:
            await other.start()
            await other.sent(b"one")
            assert (await other.receive()).bodies == [b"one"]
        assert grpc_broker.services.clients.consumers("cg") is not None


async def test_calls_that_wait_for_nothing_have_no_task(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rpc.route()
    spawned: list[str] = []
    spawn = Background.spawn

    def noted(self: Background, work: Coroutine[Any, Any, Any], name: str = "task") -> asyncio.Task[Any]:
        spawned.append(name)
        return spawn(self, work, name)

    monkeypatch.setattr(Background, "spawn", noted)
    assert (await rpc.heartbeat()).status.code == Code.OK
    assert (await rpc.assignment()).status.code == Code.OK
    assert (await rpc.assignment("a b")).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.assignment("unknown")).status.code == Code.OK
    assert [name for name in spawned if name in ("Heartbeat", "QueryAssignment")] == ["QueryAssignment"] * 2


async def test_a_stream_that_the_client_ends_ends_with_ok(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = await rpc.start()
    await rpc.grpc.send(stream.stream, b"", end=True)
    await asyncio.wait_for(stream.answer.done.wait(), 5)
    assert stream.answer.status == 0


@pytest.mark.behaviour("GW-27")
async def test_a_command_that_is_none_ends_its_stream_only(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = await rpc.start()
    await rpc.grpc.send(stream.stream, prefixed(b"\xff" * 20))
    await asyncio.wait_for(stream.answer.done.wait(), 5)
    assert stream.answer.status == 3
    assert (await rpc.route()).status.code == Code.OK


# -- clients online ------------------------------------------------------------------------------------


async def online(broker: Broker, group: str = "cg") -> list[str]:
    async with BrokerPeer(broker.runtime, client_id="admin") as peer:
        answer = await peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return []
        found = ConsumerConnection.decode(answer.body)
        return [f"{each.client_id} {each.language}" for each in found.connection_set]


@pytest.mark.behaviour("GW-15")
async def test_a_heartbeat_needs_no_settings_before(grpc_broker: Broker, rpc: RpcClient) -> None:
    for kind in (ClientType.SIMPLE_CONSUMER, ClientType.PUSH_CONSUMER, ClientType.PRODUCER):
        assert (await rpc.heartbeat(kind)).status.code == Code.OK
    assert await online(grpc_broker) == ["client-1 PYTHON"]


@pytest.mark.behaviour("GW-16")
async def test_grpc_clients_are_clients_of_the_broker(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.start(ClientType.PUSH_CONSUMER)
    state = grpc_broker.services.clients.consumers("cg")
    assert state is not None
    assert {topic: data.sub_string for topic, data in state.subscriptions.items()} == {"T": "*"}
    async with RpcClient(grpc_broker.runtime, client_id="producer-1") as producer:
        await producer.start(ClientType.PRODUCER)
        async with BrokerPeer(grpc_broker.runtime) as peer:
            answer = await peer.ok(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="T")
            shown = ProducerConnection.decode(answer.body).connection_set
        assert [(each.client_id, each.language) for each in shown] == [("producer-1", "PYTHON")]
        assert shown[0].client_addr.startswith("127.0.0.1:")


@pytest.mark.behaviour("GW-16")
async def test_a_client_that_says_goodbye_is_gone_at_once(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = await rpc.start()
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    assert (await rpc.goodbye()).status.code == Code.OK
    assert await online(grpc_broker) == []
    await asyncio.wait_for(stream.answer.done.wait(), 5)
    assert stream.answer.status == 0
    assert (await rpc.goodbye()).status.code == Code.OK


@pytest.mark.behaviour("GW-16")
async def test_a_client_without_its_stream_is_gone_after_10_seconds(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    stream = await rpc.start()
    stream.reset()
    await asyncio.sleep(8)
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    await rpc.start()
    await asyncio.sleep(8)
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    await rpc.grpc.__aexit__()
    await asyncio.sleep(8)
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    await asyncio.sleep(4)
    assert await online(grpc_broker) == []


@pytest.mark.behaviour("GW-16")
async def test_a_silent_client_is_gone_after_40_seconds(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.start()
    for _ in range(6):
        await asyncio.sleep(15)
        await rpc.heartbeat(ClientType.PUSH_CONSUMER)
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    await asyncio.sleep(37)
    assert await online(grpc_broker) == ["client-1 PYTHON"]
    await asyncio.sleep(6)
    assert await online(grpc_broker) == []
    assert (await rpc.heartbeat(ClientType.PUSH_CONSUMER)).status.code == Code.OK
    assert await online(grpc_broker) == ["client-1 PYTHON"]


async def test_a_client_that_changes_its_group_leaves_the_old_one(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    await rpc.heartbeat()
    rpc.group = "other"
    await rpc.heartbeat()
    assert (await online(grpc_broker), await online(grpc_broker, "other")) == ([], ["client-1 PYTHON"])


NOT_SERVED = [
    "PullMessage",
    "UpdateOffset",
    "GetOffset",
    "QueryOffset",
    "SyncLiteSubscription",
]


@pytest.mark.behaviour("GW-02")
@pytest.mark.parametrize("method", NOT_SERVED)
async def test_other_calls_are_unimplemented_by_name(
    grpc_broker: Broker, rpc: RpcClient, method: str
) -> None:
    answer = await rpc.grpc.call(method, resource("x").SerializeToString(), headers=rpc.headers)
    assert answer.status == 12
    assert method in answer.message
