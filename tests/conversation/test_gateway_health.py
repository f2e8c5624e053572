"""grpc.health.v1 at the broker's port."""

from __future__ import annotations

import pytest
from tests.conversation.grpc_rpc import RpcClient

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.call import GrpcStatus
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.schema import ServingStatus

HEALTH = "/grpc.health.v1.Health/"


@pytest.mark.behaviour("GW-43")
@pytest.mark.parametrize(
    ("service", "status", "serving"),
    [
        ("", GrpcStatus.OK, [ServingStatus.SERVING]),
        ("apache.rocketmq.v2.MessagingService", GrpcStatus.OK, [ServingStatus.SERVING]),
        ("another", GrpcStatus.NOT_FOUND, []),
    ],
)
async def test_a_probe_reads_whether_the_broker_serves(
    grpc_broker: Broker, rpc: RpcClient, service: str, status: GrpcStatus, serving: list[ServingStatus]
) -> None:
    question = new(schema.HealthCheckRequest, service=service).SerializeToString()
    answer = await rpc.grpc.call("", question, path=f"{HEALTH}Check")
    assert answer.status == status, answer.message
    assert [parse(schema.HealthCheckResponse, each).status for each in answer.messages()] == serving


@pytest.mark.behaviour("GW-43")
@pytest.mark.broker(broker_role="SLAVE", broker_id=1)
async def test_a_slave_is_not_serving(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.grpc.call("", b"", path=f"{HEALTH}Check")
    assert [parse(schema.HealthCheckResponse, each).status for each in answer.messages()] == [
        ServingStatus.NOT_SERVING
    ]


@pytest.mark.behaviour("GW-02")
async def test_watching_is_not_served(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.grpc.call("", b"", path=f"{HEALTH}Watch")
    assert answer.status == GrpcStatus.UNIMPLEMENTED
    assert "Health.Watch" in answer.message
