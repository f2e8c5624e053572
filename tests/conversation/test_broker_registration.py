"""The contents and the times of a broker's registrations at its name servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import Role
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime, World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
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


# -- responses wait for the name servers -------------------------------------------------------------------

LATE_S = 0.4


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay registrations on their way to the name server."""
    plain = Registration._register

    async def late(self: Registration, *args: Any) -> None:
        await asyncio.sleep(LATE_S)
        await plain(self, *args)

    monkeypatch.setattr(Registration, "_register", late)


def heartbeat(group: str = "cg") -> Command:
    data = ConsumerData(group, subscription_data_set=[SubscriptionData("T", sub_version=1)])
    return Command(RequestCode.HEART_BEAT, body=HeartbeatData("c", [], [data]).encode())


async def make(peer: BrokerPeer, answer: str) -> str:
    """Send a request for which the broker creates a topic; returns the topic."""
    if answer == "a send":
        await peer.sent(topic="New")
        return "New"
    if answer == "a heartbeat":
        assert (await peer.ask(heartbeat())).code == ResponseCode.SUCCESS
        return "%RETRY%cg"
    if answer == "a second member's heartbeat":
        first = asyncio.ensure_future(peer.ask(heartbeat()))
        await asyncio.sleep(LATE_S / 4)
        assert (await peer.ask(heartbeat())).code == ResponseCode.SUCCESS
        await first
        return "%RETRY%cg"
    if answer == "an operator":
        await peer.create("Made")
        return "Made"
    level = -1 if answer == "a dead letter" else 1
    await peer.ok(RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="cg", delayLevel=level, originTopic="T")
    return "%DLQ%cg" if level < 0 else "%RETRY%cg"


@pytest.mark.behaviour("RT-19")
@pytest.mark.parametrize(
    "answer",
    [
        "a send",
        "a heartbeat",
        "a second member's heartbeat",
        "an operator",
        "a message sent back",
        "a dead letter",
    ],
)
async def test_an_answer_leaves_when_name_servers_know_the_topic_that_it_made(
    runtime: SimulatedRuntime, slow: None, answer: str
) -> None:
    """A consumer of a new group fetches the route only every 30 s, so a late registration delays its
    retries.
    """
    name_server = NameServer(runtime, NameServerConfig())
    await name_server.start()
    client = RemotingClient(runtime)
    async with Broker(runtime, broker_config(namesrv_addr="127.0.0.1:9876")) as broker:
        peer = BrokerPeer(broker.runtime)
        await peer.sent(b"one")
        await asyncio.sleep(5)
        began = runtime.clock.monotonic()
        topic = await make(peer, answer)
        assert await route(client, topic) is not None
        assert LATE_S <= runtime.clock.monotonic() - began < 3 * LATE_S
        began = runtime.clock.monotonic()
        await make(peer, "a heartbeat") if topic == "%RETRY%cg" else await peer.sent(topic=topic)
        assert runtime.clock.monotonic() - began < 0.1, "what is known is not waited for"
        await peer.client.close()
    await client.close()
    await name_server.stop()


@pytest.mark.behaviour("RT-19")
@pytest.mark.parametrize("name_server", ["none", "down", "hangs"])
async def test_an_answer_waits_a_second_for_name_servers_at_most(
    runtime: SimulatedRuntime, name_server: str
) -> None:
    hanging = RemotingServer(runtime, lambda _connection, _command: None)
    if name_server == "hangs":
        await hanging.start("0.0.0.0", 9876)
    address = "" if name_server == "none" else "127.0.0.1:9876"
    async with Broker(runtime, broker_config(namesrv_addr=address)) as broker:
        peer = BrokerPeer(broker.runtime)
        await asyncio.sleep(3)
        for answer in ("a send", "a heartbeat"):
            began = runtime.clock.monotonic()
            await make(peer, answer)
            took_s = runtime.clock.monotonic() - began
            assert took_s <= (1.1 if name_server == "hangs" else 0.1)
        await peer.client.close()
    if name_server == "hangs":
        await hanging.stop()


@pytest.mark.behaviour("RT-19")
@pytest.mark.orbitmq(brokers=3)
async def test_a_new_group_finds_its_retry_topic_on_each_broker_after_its_heartbeats(
    orbitmq_world: World, slow: None
) -> None:
    world = orbitmq_world
    client = RemotingClient(world.runtime)
    for broker in world.brokers.values():
        assert (await client.request(broker.address, heartbeat(), 3000)).code == ResponseCode.SUCCESS
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%cg"})
    answer = await client.request(world.name_server, request, 3000)
    found = TopicRouteData.decode(answer.body)
    assert {data.broker_name for data in found.queue_datas} == set(world.brokers)
    await client.close()


@pytest.mark.behaviour("RT-19")
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"})
async def test_a_new_group_finds_its_retry_topic_at_a_slave_that_acts(
    orbitmq_world: World, slow: None
) -> None:
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    world.crash("broker-a")
    slave = world.brokers["broker-a-1"]
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
    client = RemotingClient(world.runtime)
    assert (await client.request(slave.address, heartbeat(), 3000)).code == ResponseCode.SUCCESS
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%cg"})
    assert (await client.request(world.name_server, request, 3000)).code == ResponseCode.SUCCESS
    await client.close()
