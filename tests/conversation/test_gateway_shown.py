"""gRPC clients as administrators see them."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_rpc import RpcClient
from tests.conversation.test_gateway_cluster import NAME_SERVER, Cluster, cluster  # noqa: F401

from orbitmq.admin import Admin
from orbitmq.gateway.schema import ClientType
from orbitmq.wire.codes import RequestCode, ResponseCode


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
