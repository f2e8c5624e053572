"""gRPC clients at the name server's port."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.grpc_client import GrpcClient

from orbitmq.broker.broker import Broker
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime

PORT = 9876


def trusting(*protocols: str) -> ssl.SSLContext:
    """TLS that accepts any certificate, as in Java's client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context


@asynccontextmanager
async def name_server(runtime: SimulatedRuntime) -> AsyncIterator[NameServer]:
    async with NameServer(runtime, NameServerConfig(listen_port=PORT)) as server:
        yield server


async def told(runtime: SimulatedRuntime, tls: ssl.SSLContext | None = None) -> bytes:
    """The text of the GOAWAY that a client reads."""
    client = GrpcClient(runtime, "127.0.0.1", PORT, tls=tls)
    async with client:
        await client.gone.wait()
    ((_, _, sentence),) = client.goaways
    return sentence


@pytest.mark.behaviour("GW-42")
@pytest.mark.parametrize("tls", [None, trusting("h2")], ids=["plain", "TLS"])
async def test_a_grpc_client_reads_a_brokers_address(
    orbitmq_runtime: SimulatedRuntime, tls: ssl.SSLContext | None
) -> None:
    runtime = orbitmq_runtime
    async with name_server(runtime):
        assert b"no broker is registered here yet" in await told(runtime, tls)
        async with Broker(runtime, broker_config(namesrv_addr=f"127.0.0.1:{PORT}")):
            await runtime.clock.sleep(1)
            sentence = await told(runtime, tls)
    assert b"this is the name server's port" in sentence
    assert b"give it a broker's address: 127.0.0.1:10911" in sentence


@pytest.mark.behaviour("GW-42")
@pytest.mark.parametrize("installed", [True, False])
async def test_a_client_with_tls_that_is_no_grpc_client_is_refused(
    orbitmq_runtime: SimulatedRuntime,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    installed: bool,
) -> None:
    if not installed:
        # The import fails.
        monkeypatch.setitem(sys.modules, "orbitmq.runtime.certificates", None)
    async with name_server(orbitmq_runtime):
        client = GrpcClient(orbitmq_runtime, "127.0.0.1", PORT, tls=trusting())
        connecting = asyncio.ensure_future(client.connect())
        await client.gone.wait()
        connecting.cancel()
    assert not client.goaways
    assert "it starts a TLS handshake: TLS is not enabled here" in caplog.text
    assert "Exception" not in caplog.text


@pytest.mark.behaviour("GW-42")
async def test_half_a_handshake_is_not_waited_for(orbitmq_runtime: SimulatedRuntime) -> None:
    async with name_server(orbitmq_runtime):
        client = GrpcClient(orbitmq_runtime, "127.0.0.1", PORT)
        await client.connect()
        client.raw(b"\x16\x03\x01\x02\0")
        await asyncio.wait_for(client.gone.wait(), 11)
