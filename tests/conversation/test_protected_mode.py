"""Protected mode: requests of other machines that are refused at servers that require no keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq import Credentials
from orbitmq.auth.protected import DANGEROUS
from orbitmq.broker.broker import Broker
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

STRANGER = "10.7.7.7"
ROOT = Credentials("root", "root-secret-1")
# The requests published for CVE-2023-33246 and CVE-2023-37582.
SHELL = b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch /tmp/pwned;\nnamesrvAddr=10.7.7.7:9876"
FILE = b"configStorePath=/etc/cron.d/pwned\nproductEnvName=* * * * * root touch /tmp/pwned"
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authMode": "observe",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret-1"}),
}


@pytest.fixture
def world(request: pytest.FixtureRequest, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    found = World(orbitmq_runtime, settings=getattr(request, "param", {}))
    orbitmq_loop.enter(found)
    return found


async def ask(
    world: World,
    server: str,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    host: str = STRANGER,
    keys: Credentials | None = None,
) -> Command:
    """The response to a machine at ``host``."""
    client = RemotingClient(world.runtime.machine(host), identity=Identity(keys))
    address = world.name_server if server == "nameserver" else world.brokers[server].address
    try:
        return await client.request(address, Command(code, fields or {}, body), 5000)
    finally:
        await client.close()


@pytest.mark.behaviour("AZ-17")
@pytest.mark.parametrize("server", ["broker-a", "nameserver"])
async def test_a_stranger_is_told_the_ways_out(world: World, server: str) -> None:
    for code in sorted(DANGEROUS):
        answer = await ask(world, server, code, {"topic": "T", "brokerName": "broker-a"})
        assert answer.code == 16
        remark = str(answer.remark)
        assert remark.startswith(f"request {int(code)} from {STRANGER} is refused (protectedMode): ")
        for way in ("own machine", "adminAddresses", "authenticationEnabled=true", "protectedMode=false"):
            assert way in remark


@pytest.mark.behaviour("AZ-17")
async def test_the_published_attacks_change_nothing(world: World) -> None:
    broker, name_server = world.brokers["broker-a"], world.name_server
    before = broker.services.config.to_properties()
    for host in (STRANGER, "10.7.7.8"):
        assert (await ask(world, "broker-a", Code.UPDATE_BROKER_CONFIG, {}, SHELL, host=host)).code == 16
        assert (await ask(world, "nameserver", Code.UPDATE_NAMESRV_CONFIG, {}, FILE, host=host)).code == 16
    # The same requests from the machine itself are refused as invalid settings.
    near = broker.address.partition(":")[0]
    assert (await ask(world, "broker-a", Code.UPDATE_BROKER_CONFIG, {}, SHELL, host=near)).code != 0
    near = name_server.partition(":")[0]
    answer = await ask(world, "nameserver", Code.UPDATE_NAMESRV_CONFIG, {}, FILE, host=near)
    assert answer.remark == "Can not update config in black list."
    assert broker.services.config.to_properties() == before
    assert not world.machines["nameserver"].runtime.files.exists("/etc/cron.d/pwned")


@pytest.mark.behaviour("AZ-17")
async def test_the_rest_is_served_to_other_machines(world: World) -> None:
    topic = {"topic": "T", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "defaultTopic": "x"}
    topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert (await ask(world, "broker-a", Code.UPDATE_AND_CREATE_TOPIC, topic)).code == 0
    assert (await ask(world, "broker-a", Code.GET_BROKER_CONFIG)).code == 0
    assert (await ask(world, "nameserver", Code.GET_BROKER_CLUSTER_INFO)).code == 0
    near = world.brokers["broker-a"].address.partition(":")[0]
    for host in ("127.0.0.1", near):
        answer = await ask(world, "broker-a", Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, host=host)
        assert (answer.code, answer.remark) == (0, None)


@pytest.mark.behaviour("AZ-17", "AZ-18")
@pytest.mark.parametrize(
    ("world", "refused"),
    [
        ({"adminAddresses": "10.7.0.0/16"}, {"10.8.0.1"}),
        ({"adminAddresses": "10.7.7.7"}, {"10.8.0.1"}),
        ({"protectedMode": "false"}, set()),
        ({"proxyProtocolTrusted": "10.9.9.9"}, {"127.0.0.1", STRANGER, "10.8.0.1"}),
        (
            {"proxyProtocolTrusted": "10.9.9.9", "adminAddresses": "127.0.0.1"},
            {STRANGER, "10.8.0.1"},
        ),
    ],
    indirect=["world"],
)
async def test_the_ways_out(world: World, refused: set[str]) -> None:
    fields = {"topic": "T"}
    found = {
        host
        for host in ("127.0.0.1", STRANGER, "10.8.0.1")
        if (await ask(world, "broker-a", Code.DELETE_TOPIC_IN_BROKER, fields, host=host)).code == 16
    }
    assert found == refused


@pytest.mark.behaviour("AZ-17")
@pytest.mark.parametrize("world", [KEYS], indirect=True)
async def test_observing_opens_nothing_that_was_closed(world: World) -> None:
    setting = b"slowRequestMillis=1000"
    answer = await ask(world, "broker-a", Code.UPDATE_BROKER_CONFIG, {}, setting)
    assert answer.code == 16
    assert "protectedMode" in str(answer.remark)
    wrong = Credentials("root", "another")
    assert (await ask(world, "broker-a", Code.UPDATE_BROKER_CONFIG, {}, setting, keys=wrong)).code == 16
    assert (await ask(world, "broker-a", Code.UPDATE_BROKER_CONFIG, {}, setting, keys=ROOT)).code == 0
    assert (await ask(world, "broker-a", Code.GET_BROKER_RUNTIME_INFO)).code == 0


@pytest.mark.behaviour("AZ-18")
async def test_a_name_server_has_the_same_settings(runtime: SimulatedRuntime) -> None:
    fields = {"namespace": "n", "key": "k", "value": "v"}
    for changes, code in (({}, 16), ({"protected_mode": False}, 0), ({"admin_addresses": "10.7.7.7"}, 0)):
        config = NameServerConfig(bind_address="10.0.0.1", **changes)  # type: ignore[arg-type]
        async with NameServer(runtime.machine("10.0.0.1"), config) as server:
            client = RemotingClient(runtime.machine(STRANGER))
            answer = await client.request(
                f"10.0.0.1:{server.port}", Command(Code.PUT_KV_CONFIG, dict(fields)), 5000
            )
            assert answer.code == code
            await client.close()


@pytest.mark.behaviour("AZ-17")
async def test_a_topic_name_leads_nowhere(runtime: SimulatedRuntime) -> None:
    """The names are those of CVE-2019-17572; the sender is local, so only the check of names can
    refuse them.
    """
    async with Broker(runtime, broker_config()) as broker:
        client = RemotingClient(runtime)
        for name in ("../../etc", "..", "/etc/passwd", "a/../../b", "a\0b"):
            fields = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
            fields |= {
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "defaultTopic": "x",
            }
            answer = await client.request(broker.address, Command(Code.UPDATE_AND_CREATE_TOPIC, fields), 5000)
            assert answer.code != 0, name
            sent = {
                "a": "g",
                "b": name,
                "c": "TBW102",
                "d": "4",
                "e": "0",
                "f": "0",
                "g": "1",
                "h": "0",
                "i": "",
            }
            answer = await client.request(broker.address, Command(Code.SEND_MESSAGE_V2, sent, b"x"), 5000)
            assert answer.code != 0, name
        await client.close()
        assert broker.services.topics.get("../../etc") is None
