"""Fixtures of the tests that talk over the memory network; tests that use one run on the virtual loop."""

from __future__ import annotations

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.grpc_rpc import RpcClient
from tests.conversation.scripted_cluster import ClientWorld

from orbitmq.broker.broker import Broker
from orbitmq.gateway.attach import attach as gateway
from orbitmq.testing import SimulatedLoop, SimulatedRuntime


@pytest.fixture
def world(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> ClientWorld:
    """A scripted name server with the brokers that ``pytest.mark.scripted`` names; without it, "a"."""
    mark = request.node.get_closest_marker("scripted")
    names, options = (mark.args, mark.kwargs) if mark else (("a",), {})
    return orbitmq_loop.enter(ClientWorld(*names, runtime=orbitmq_runtime, **options))


@pytest.fixture
def broker(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> Broker:
    """A real broker in memory, with the settings in ``pytest.mark.broker``."""
    mark = request.node.get_closest_marker("broker")
    return orbitmq_loop.enter(Broker(orbitmq_runtime, broker_config(**(mark.kwargs if mark else {}))))


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> BrokerPeer:
    """A client of ``broker``. Files whose tests need a client with more methods override this fixture."""
    return orbitmq_loop.enter(BrokerPeer(broker.runtime))


@pytest.fixture
def grpc_broker(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> Broker:
    """A real broker in memory like ``broker``, which serves gRPC clients too."""
    mark = request.node.get_closest_marker("broker")
    config = broker_config(**(mark.kwargs if mark else {}))
    return orbitmq_loop.enter(Broker(orbitmq_runtime, config, extensions=[gateway]))


@pytest.fixture
def rpc(grpc_broker: Broker, orbitmq_loop: SimulatedLoop) -> RpcClient:
    """A gRPC client of ``grpc_broker``."""
    return orbitmq_loop.enter(RpcClient(grpc_broker.runtime))
