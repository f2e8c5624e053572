"""gRPC clients as administrators see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_rpc import RpcClient, Stream, all_of
from tests.conversation.test_gateway_cluster import NAME_SERVER, Cluster, cluster  # noqa: F401

from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.messages import new
from orbitmq.gateway.peer import MAX_QUESTIONS
from orbitmq.gateway.questions import MAX_DUMP
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code
from orbitmq.message.record import decode_record
from orbitmq.wire.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.versions import name_of


@pytest.mark.behaviour("GW-47")
@pytest.mark.parametrize("kind", [ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER])
async def test_a_group_shows_its_grpc_members_also_when_their_first_call_made_it(
    cluster: Cluster,  # noqa: F811
    kind: ClientType,
) -> None:
    async with RpcClient(cluster.runtime, client_id="python-1", group="fresh") as rpc:
        await rpc.route()
        await rpc.start(kind)
        await rpc.receive()
        await asyncio.sleep(2)
        async with Admin(f"127.0.0.1:{NAME_SERVER}", runtime=cluster.runtime) as admin:
            details = (await admin.groups.show("fresh")).found
    (member,) = details.members
    assert (member.client_id, member.language) == ("python-1", "PYTHON")
    assert member.address.startswith("127.0.0.1:")
    assert {topic: each.expression for topic, each in details.subscriptions.items()} == {"T": "*"}
    passively = kind == ClientType.PUSH_CONSUMER
    assert details.consume_type == ("CONSUME_PASSIVELY" if passively else "CONSUME_ACTIVELY")


@pytest.mark.behaviour("GW-56")
async def test_name_servers_know_the_retry_topic_of_a_group_of_grpc_clients(
    cluster: Cluster,  # noqa: F811
) -> None:
    async with RpcClient(cluster.runtime, client_id="python-1", group="fresh") as rpc:
        await rpc.route()
        await rpc.start()
        await asyncio.sleep(2)
        async with Admin(f"127.0.0.1:{NAME_SERVER}", runtime=cluster.runtime) as admin:
            (entry,) = await admin.topics.route("%RETRY%fresh")
    assert entry.broker_name == "broker-a"


@pytest.mark.behaviour("GW-47")
async def test_a_question_that_grpc_clients_do_not_answer_is_refused_at_once(
    cluster: Cluster,  # noqa: F811
) -> None:
    async with RpcClient(cluster.runtime, client_id="python-1") as rpc:
        await rpc.route()
        await rpc.start()
        async with BrokerPeer(cluster.runtime) as peer:
            began = cluster.runtime.clock.now_ms()
            answer = await peer.call(
                RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="cg", clientId="python-1"
            )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "python-1" in (answer.remark or "")
    assert "gRPC client" in (answer.remark or "")
    assert cluster.runtime.clock.now_ms() - began < 1000


@asynccontextmanager
async def java(
    broker: Broker, kind: int = ClientType.PUSH_CONSUMER, *, language: str = "JAVA", version: str = "5.2.0"
) -> AsyncIterator[tuple[RpcClient, Stream]]:
    """A consumer of the topic T, which holds one message, and its Telemetry stream."""
    async with RpcClient(broker.runtime, client_id="c-1", language=language, version=version) as rpc:
        await rpc.route()
        stream = await rpc.start(kind)
        await rpc.sent(b"order 7", keys=["k-7"], tag="blue")
        yield rpc, stream


async def consume_directly(broker: Broker, message_id: str) -> Command:
    async with BrokerPeer(broker.runtime) as peer:
        return await peer.call(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="cg", clientId="c-1", msgId=message_id
        )


async def running_info(broker: Broker, **more: Any) -> Command:
    async with BrokerPeer(broker.runtime) as peer:
        return await peer.call(
            RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="cg", clientId="c-1", **more
        )


def stored_id(broker: Broker) -> str:
    """The id of the first message of T, made from its log offset."""
    for queue in range(8):
        found = broker.services.store.get("T", queue, 0, 1)
        if found.count:
            return decode_record(found.body).message_id
    raise AssertionError("no message")


@pytest.mark.behaviour("GW-48")
@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, CMResult.CR_SUCCESS),
        (Code.FAILED_TO_CONSUME_MESSAGE, CMResult.CR_LATER),
        (Code.INTERNAL_ERROR, CMResult.CR_THROW_EXCEPTION),
    ],
)
async def test_a_push_consumer_consumes_one_message_on_request(
    grpc_broker: Broker, code: Code, result: CMResult
) -> None:
    async with java(grpc_broker) as (rpc, stream):
        asked = asyncio.create_task(consume_directly(grpc_broker, stored_id(grpc_broker)))
        command = (await stream.next()).verify_message_command
        assert command.message.body == b"order 7"
        assert command.message.system_properties.tag == "blue"
        assert list(command.message.system_properties.keys) == ["k-7"]
        await asyncio.sleep(0.5)
        # A response with another nonce does not count.
        for nonce in ("", "999", command.nonce):
            answer = new(schema.VerifyMessageResult, nonce=nonce)
            status = new(schema.Status, code=code if nonce == command.nonce else Code.OK)
            await stream.say(new(schema.TelemetryCommand, status=status, verify_message_result=answer))
        response = await asked
        assert response.code == 0, response.remark
        found = ConsumeMessageDirectlyResult.decode(response.body)
        assert found.consume_result == result
        assert found.spent_time_mills >= 500
        # The message is still delivered to the group.
        (message,) = await all_of(rpc, 1)
        assert message.body == b"order 7"


@pytest.mark.behaviour("GW-48")
async def test_a_consumer_tells_about_itself_and_its_threads(grpc_broker: Broker) -> None:
    async with java(grpc_broker) as (_, stream):
        for jstack in ("false", "true"):
            asked = asyncio.create_task(running_info(grpc_broker, jstackEnable=jstack))
            nonce = (await stream.next()).print_thread_stack_trace_command.nonce
            trace = new(schema.ThreadStackTrace, nonce=nonce, thread_stack_trace="x" * (MAX_DUMP + 5))
            status = new(schema.Status, code=Code.OK)
            await stream.say(new(schema.TelemetryCommand, status=status, thread_stack_trace=trace))
            response = await asked
            assert response.code == 0, response.remark
            info = ConsumerRunningInfo.decode(response.body)
            assert info.jstack == ("x" * MAX_DUMP if jstack == "true" else None)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CLIENT_VERSION"] == "5.2.0"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
            assert [each.topic for each in info.subscription_set] == ["T"]


@pytest.mark.behaviour("GW-48")
@pytest.mark.parametrize(
    ("language", "kind", "consumes", "tells"),
    [
        ("PYTHON", ClientType.PUSH_CONSUMER, False, False),
        ("RUST", ClientType.PUSH_CONSUMER, False, False),
        ("PHP", ClientType.PUSH_CONSUMER, False, False),
        ("NODE_JS", ClientType.PUSH_CONSUMER, False, True),
        ("GO", ClientType.PUSH_CONSUMER, False, True),
        ("JAVA", ClientType.SIMPLE_CONSUMER, False, True),
        ("DOTNET", ClientType.PUSH_CONSUMER, True, True),
        ("CPP", ClientType.PUSH_CONSUMER, True, True),
    ],
)
async def test_a_client_that_cannot_answer_is_not_asked(
    grpc_broker: Broker, language: str, kind: int, consumes: bool, tells: bool
) -> None:
    async with java(grpc_broker, kind, language=language):
        clock = grpc_broker.runtime.clock
        for can, ask in (
            (consumes, consume_directly(grpc_broker, stored_id(grpc_broker))),
            (tells, running_info(grpc_broker)),
        ):
            began = clock.now_ms()
            response = await ask
            if can:
                # The broker asked the consumer, which does not respond.
                assert response.code == ResponseCode.CONSUME_MSG_TIMEOUT
                assert "does not answer within 10000 ms" in (response.remark or "")
            else:
                assert response.code == ResponseCode.SYSTEM_ERROR
                assert f"a {language} " in (response.remark or "")
                assert "JAVA" in (response.remark or "")
                assert clock.now_ms() - began < 1000


@pytest.mark.behaviour("GW-48")
async def test_a_question_ends_when_its_client_says_no_or_is_gone(grpc_broker: Broker) -> None:
    async with java(grpc_broker) as (_, stream):
        asked = asyncio.create_task(consume_directly(grpc_broker, stored_id(grpc_broker)))
        nonce = (await stream.next()).verify_message_command.nonce
        status = new(schema.Status, code=Code.NOT_IMPLEMENTED)
        answer = new(schema.VerifyMessageCommand, nonce=nonce)
        await stream.say(new(schema.TelemetryCommand, status=status, verify_message_command=answer))
        response = await asked
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "NOT_IMPLEMENTED" in (response.remark or "")

        asked = asyncio.create_task(consume_directly(grpc_broker, stored_id(grpc_broker)))
        await stream.next()
        began = grpc_broker.runtime.clock.now_ms()
        stream.reset()
        response = await asked
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "has ended" in (response.remark or "")
        assert grpc_broker.runtime.clock.now_ms() - began < 1000


@pytest.mark.behaviour("GW-48")
async def test_a_client_has_a_limit_of_open_questions(grpc_broker: Broker) -> None:
    async with java(grpc_broker):
        asked = [asyncio.create_task(running_info(grpc_broker)) for _ in range(MAX_QUESTIONS + 1)]
        remarks = [(await each).remark or "" for each in asked]
    assert len([remark for remark in remarks if f"{MAX_QUESTIONS} questions" in remark]) == 1


@pytest.mark.behaviour("GW-47")
@pytest.mark.parametrize(
    ("version", "shown"), [("5.2.0", "v5_2_0"), ("5.1.12", "v5_0_0"), ("1.0.8", "v5_0_0"), ("", "v5_0_0")]
)
async def test_members_are_shown_with_their_version(grpc_broker: Broker, version: str, shown: str) -> None:
    async with java(grpc_broker, version=version), BrokerPeer(grpc_broker.runtime) as peer:
        answer = await peer.ok(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="cg")
    (member,) = ConsumerConnection.decode(answer.body).connection_set
    assert (member.language, name_of(member.version)) == ("JAVA", shown)


@pytest.mark.behaviour("PP-18")
async def test_what_grpc_clients_have_in_flight_is_lag(cluster: Cluster) -> None:  # noqa: F811
    async with RpcClient(cluster.runtime, client_id="python-1") as rpc:
        await rpc.route()
        await rpc.start(ClientType.SIMPLE_CONSUMER)
        await rpc.sent(*[b"%d" % number for number in range(20)])
        messages = await all_of(rpc, 20, invisible_ms=60_000)
        async with Admin(f"127.0.0.1:{NAME_SERVER}", runtime=cluster.runtime) as admin:
            lags = (await admin.groups.lag("cg")).whole()
            report = (await admin.groups.why("cg")).whole()
            assert sum(one.in_flight for one in lags) == sum(one.lag for one in lags) == 20
            assert "20 of them are popped and not acknowledged." in report.text
            assert "which no member reads" not in report.text
            await rpc.ack(*(each.system_properties.receipt_handle for each in messages))
            assert sum(one.lag for one in (await admin.groups.lag("cg")).whole()) == 0
