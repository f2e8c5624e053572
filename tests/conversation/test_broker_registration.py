"""What a broker tells its name servers, and when."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


async def route(peer: RemotingClient, topic: str) -> TopicRouteData | None:
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await peer.request("127.0.0.1:9876", request, 3000)
    return TopicRouteData.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None


@pytest.mark.behaviour("RT-06")
@pytest.mark.behaviour("RT-08")
async def test_a_new_topic_is_registered_at_once_and_a_stopped_broker_is_not_listed(
    runtime: SimulatedRuntime,
) -> None:
    config = broker_config(namesrv_addr="127.0.0.1:9876;127.0.0.1:9999")
    client = RemotingClient(runtime)
    async with Broker(runtime, config) as broker:
        name_server = NameServer(runtime, NameServerConfig())
        await name_server.start()
        await asyncio.sleep(3)
        template = await route(client, "TBW102")
        assert template is not None
        assert template.queue_datas[0].perm == 7
        peer = BrokerPeer(broker.runtime)
        await peer.send(topic="Sent")
        await asyncio.sleep(0.5)
        assert await route(client, "Sent") is not None
        await peer.create("Made")
        made = await route(client, "Made")
        assert made is not None
        assert made.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
        await asyncio.sleep(0.5)
        read_only = await route(client, "Made")
        assert read_only is not None
        assert read_only.queue_datas[0].perm == 4
        await peer.client.close()
    assert await route(client, "Made") is None
    await client.close()
    await name_server.stop()


async def test_a_name_server_that_hangs_does_not_delay_the_other(runtime: SimulatedRuntime) -> None:
    hanging = RemotingServer(runtime, lambda _connection, _command: None)
    await hanging.start("0.0.0.0", 9999)
    name_server = NameServer(runtime, NameServerConfig())
    await name_server.start()
    client = RemotingClient(runtime)
    loop = asyncio.get_running_loop()
    broker = Broker(runtime, broker_config(namesrv_addr="127.0.0.1:9999;127.0.0.1:9876"))
    async with broker:
        peer = BrokerPeer(broker.runtime)
        began = loop.time()
        for number in range(3):
            await peer.create(f"T{number}")
            assert await route(client, f"T{number}") is not None
        assert loop.time() - began < 4
        await peer.client.close()
        began = loop.time()
    assert loop.time() - began < 5
    await client.close()
    await name_server.stop()
    await hanging.stop()
