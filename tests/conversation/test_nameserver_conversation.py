"""Commands and responses: a name server on the network and clock of the simulation."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NOTIFY_TIMEOUT_MS, NameServer
from orbitmq.settings import properties_text
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import ClusterInfo, GetBrokerMemberGroupResponseBody, TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion, KVTable, TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

COMPRESSED = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d6512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae6162859199a1b20402d"
    "03030323104b85e41764263b2a5800a19942b0a79fbb8f6b7c88a3bb4235480553742c90640000eb551a09"
)
ROUTE_OLD = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":'
    b'[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)


class Peer:
    """Sends requests to the name server over a connection of its own."""

    def __init__(self, server: NameServer, runtime: Any, *, version: int = 479) -> None:
        self._address = f"127.0.0.1:{server.port}"
        self._client = RemotingClient(runtime)
        self._version = version

    async def ask(self, code: int, body: bytes = b"", /, **ext: str) -> Command:
        command = Command(code, ext=ext, body=body, version=self._version)
        return await self._client.request(self._address, command, 3000)

    async def register(
        self,
        broker_id: int = 0,
        *,
        topics: tuple[str, ...] = ("TopicA", "TopicB"),
        **ext: str,
    ) -> Command:
        body = register_body(topics)
        return await self.ask(RequestCode.REGISTER_BROKER, body, **{**identity(broker_id), **ext})

    async def route(self, topic: str = "TopicA") -> Command:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)

    async def close(self) -> None:
        await self._client.close()


def identity(broker_id: int = 0) -> dict[str, str]:
    return {
        "brokerName": "broker-a",
        "brokerAddr": f"127.0.0.1:109{broker_id + 1}1",
        "clusterName": "DefaultCluster",
        "haServerAddr": f"127.0.0.1:109{broker_id + 1}2",
        "brokerId": str(broker_id),
    }


def version_json(counter: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": 1700000000000}


def register_body(topics: tuple[str, ...]) -> bytes:
    configs = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for topic in topics
    }
    wrapper = {
        "dataVersion": version_json(3),
        "mappingDataVersion": version_json(0),
        "topicConfigTable": configs,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


@pytest.fixture
def server(
    orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime, request: pytest.FixtureRequest
) -> NameServer:
    """A name server with the settings in ``pytest.mark.nameserver``."""
    mark = request.node.get_closest_marker("nameserver")
    settings = mark.kwargs if mark else {}
    config = NameServerConfig(listen_port=9876, kv_config_path="/n/kv.json", **settings)
    return orbitmq_loop.enter(NameServer(runtime, config))


@pytest.fixture
def peer(server: NameServer, runtime: SimulatedRuntime) -> Peer:
    return Peer(server, runtime)


async def test_register_and_route_are_rocketmqs_bytes(
    server: NameServer, peer: Peer, runtime: SimulatedRuntime
) -> None:
    assert (await peer.register(0)).code == ResponseCode.SUCCESS
    slave = await peer.register(1)
    assert slave.ext == {"haServerAddr": "127.0.0.1:10912", "masterAddr": "127.0.0.1:10911"}
    assert slave.body == b""
    old = Peer(server, runtime, version=399)
    assert (await old.route()).body == ROUTE_OLD
    standard = ROUTE_OLD.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
    assert (await peer.route()).body == standard
    asked = await old.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicA", acceptStandardJsonOnly="true")
    assert asked.body == standard
    older = Peer(server, runtime, version=353)
    assert b'"topicSynFlag":0,"topicSysFlag":0' in (await older.route()).body
    for extra in (old, older):
        await extra.close()


async def test_an_unknown_topic_and_an_unknown_code_are_told(peer: Peer) -> None:
    answer = await peer.route("Nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: Nowhere\nSee http")
    answer = await peer.ask(999)
    assert (answer.code, answer.remark) == (3, " request type 999 not supported")
    answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (answer.remark or "")


async def test_a_compressed_registration_is_read_whatever_its_header_says(peer: Peer) -> None:
    await peer.register(0)
    for flag in ("true", "false"):
        ext = {**identity(), "compressed": flag, "bodyCrc32": str(zlib.crc32(COMPRESSED) & 0x7FFFFFFF)}
        assert (await peer.ask(RequestCode.REGISTER_BROKER, COMPRESSED, **ext)).code == ResponseCode.SUCCESS
    assert (await peer.route()).code == ResponseCode.SUCCESS


async def test_a_damaged_registration_is_refused(peer: Peer) -> None:
    answer = await peer.register(0, bodyCrc32="1")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    body = register_body(("A", "B"))
    good = await peer.register(0, topics=("A", "B"), bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF))
    assert good.code == ResponseCode.SUCCESS
    for damaged in (b"{", COMPRESSED[:40], b"\x78\xda"):
        answer = await peer.ask(RequestCode.REGISTER_BROKER, damaged, **identity())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("Failed to decode RegisterBrokerBody")


@pytest.mark.behaviour("NR-13")
async def test_one_topic_of_an_unknown_broker_is_refused(peer: Peer) -> None:
    answer = await peer.register(0, topics=("Only",))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


@pytest.mark.behaviour("HB-05")
@pytest.mark.behaviour("HB-07")
async def test_a_silent_broker_expires_when_it_is_due(
    server: NameServer, peer: Peer, runtime: SimulatedRuntime
) -> None:
    await runtime.clock.sleep(1)
    await peer.register(0)
    await runtime.clock.sleep(119.9)  # the connection is busy, the broker is not
    assert (await peer.route()).code == ResponseCode.SUCCESS
    watcher = Peer(server, runtime)
    await runtime.clock.sleep(0.2)
    assert (await watcher.route()).code == ResponseCode.TOPIC_NOT_EXIST
    await watcher.close()


@pytest.mark.behaviour("HB-05")
async def test_a_broker_that_comes_later_may_be_due_first(
    server: NameServer, peer: Peer, runtime: SimulatedRuntime
) -> None:
    slow = Peer(server, runtime)
    await slow.register(0)
    await runtime.clock.sleep(4.6)  # this is between two scans of the longest interval
    await peer.register(1, heartbeatTimeoutMillis="1000")
    await runtime.clock.sleep(0.9)
    assert sorted(m.broker_id for m in server.routes.members()) == [0, 1]
    await runtime.clock.sleep(0.2)
    assert [m.broker_id for m in server.routes.members()] == [0]
    await slow.close()


async def test_two_brokers_of_one_id_are_told_once(
    peer: Peer, runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await peer.register(0)
        await peer.register(0, brokerAddr="10.0.0.9:10911")
    (said,) = [r.getMessage() for r in caplog.records if "two living addresses" in r.getMessage()]
    assert "broker-a id 0: 127.0.0.1:10911 and 10.0.0.9:10911" in said


@pytest.mark.behaviour("HB-03")
@pytest.mark.behaviour("HB-04")
async def test_both_light_heartbeats_keep_a_broker(
    server: NameServer, peer: Peer, runtime: SimulatedRuntime
) -> None:
    await peer.register(0, heartbeatTimeoutMillis="10000")
    who = identity()
    for counter, changed in ((3, "false"), (4, "true")):
        await runtime.clock.sleep(8)
        body = json.dumps(version_json(counter)).encode()
        answer = await peer.ask(RequestCode.QUERY_DATA_VERSION, body, **who)
        assert answer.ext == {"changed": changed}
        assert DataVersion.decode(answer.body).counter == 3
    await runtime.clock.sleep(8)
    assert (await peer.ask(RequestCode.BROKER_HEARTBEAT, **who)).code == ResponseCode.SUCCESS
    await runtime.clock.sleep(8)
    assert (await peer.route()).code == ResponseCode.SUCCESS
    await runtime.clock.sleep(8)
    watcher = Peer(server, runtime)
    assert (await watcher.route()).code == ResponseCode.TOPIC_NOT_EXIST
    unknown = await watcher.ask(RequestCode.QUERY_DATA_VERSION, b"{}", **who)
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    await watcher.close()


@pytest.mark.behaviour("HB-08")
async def test_a_closed_connection_takes_the_broker_at_once(
    server: NameServer, peer: Peer, runtime: SimulatedRuntime
) -> None:
    broker = Peer(server, runtime)
    await broker.register(0)
    assert (await peer.route()).code == ResponseCode.SUCCESS
    await broker.close()
    await runtime.clock.sleep(0.1)
    assert (await peer.route()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_unregister_members_and_cluster(peer: Peer) -> None:
    await peer.register(0)
    await peer.register(1)
    answer = await peer.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="DefaultCluster", brokerName="broker-a"
    )
    group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
    assert group is not None
    assert dict(group.broker_addrs) == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
    info = ClusterInfo.decode((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert {name: sorted(groups) for name, groups in info.cluster_addr_table.items()} == {
        "DefaultCluster": ["broker-a"]
    }
    assert (await peer.ask(RequestCode.UNREGISTER_BROKER, **identity(0))).code == ResponseCode.SUCCESS
    route = TopicRouteData.decode((await peer.route()).body)
    assert dict(route.broker_datas[0].broker_addrs) == {1: "127.0.0.1:10921"}


@pytest.mark.behaviour("NR-16")
async def test_a_goodbye_that_comes_behind_the_next_start_does_not_count(
    peer: Peer, server: NameServer, runtime: SimulatedRuntime
) -> None:
    await peer.register()
    again = Peer(server, runtime)
    await again.register()
    goodbye = await peer.ask(RequestCode.UNREGISTER_BROKER, **identity())
    assert goodbye.code == ResponseCode.SUCCESS
    await peer.close()
    assert (await again.route()).code == ResponseCode.SUCCESS
    await again.ask(RequestCode.UNREGISTER_BROKER, **identity())
    assert (await again.route()).code == ResponseCode.TOPIC_NOT_EXIST
    await again.close()


async def test_write_permission_is_taken_and_given_by_broker(peer: Peer) -> None:
    await peer.register(0)
    for code, field, perm in (
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", 4),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", 6),
    ):
        answer = await peer.ask(code, brokerName="broker-a")
        assert answer.ext == {field: "2"}
        assert TopicRouteData.decode((await peer.route()).body).queue_datas[0].perm == perm


async def test_topic_lists_registration_and_deletion(peer: Peer) -> None:
    async def topics(code: int, **ext: str) -> set[str]:
        return set(TopicList.decode((await peer.ask(code, **ext)).body).topic_list)

    await peer.register(0)
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert await topics(everything) == {"TopicA", "TopicB"}
    assert await topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster") == {
        "TopicA",
        "TopicB",
    }
    assert await topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="none") == set()
    assert await topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"DefaultCluster", "broker-a"}
    for code in (311, 312, 313):
        assert await topics(code) == set()
    data = (await peer.route()).body
    assert (await peer.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, data, topic="New")).code == 0
    refused = await peer.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, data.replace(b"broker-a", b"broker-z"), topic="Newer"
    )
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "broker-z" in (refused.remark or "")
    assert await topics(everything) == {"New", "TopicA", "TopicB"}
    await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="New", clusterName="DefaultCluster")
    await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicA")
    assert await topics(everything) == {"TopicB"}


@pytest.mark.nameserver(enable_all_topic_list=False, enable_topic_list=False)
async def test_topic_lists_can_be_switched_off(peer: Peer) -> None:
    for code in (206, 224, 311, 312, 313):
        answer = await peer.ask(code, cluster="c")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


@pytest.mark.nameserver(order_message_enable=True)
async def test_ordered_topics_come_from_the_key_value_table(peer: Peer) -> None:
    namespace = "ORDER_TOPIC_CONFIG"
    empty = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace=namespace)
    assert empty.code == ResponseCode.QUERY_NOT_FOUND
    put = await peer.ask(RequestCode.PUT_KV_CONFIG, namespace=namespace, key="TopicA", value="broker-a:4")
    assert put.code == ResponseCode.SUCCESS
    got = await peer.ask(RequestCode.GET_KV_CONFIG, namespace=namespace, key="TopicA")
    assert got.ext == {"value": "broker-a:4"}
    registered = await peer.register(0)
    assert KVTable.decode(registered.body).table == {"TopicA": "broker-a:4"}
    assert TopicRouteData.decode((await peer.route()).body).order_topic_conf == "broker-a:4"
    assert TopicRouteData.decode((await peer.route("TopicB")).body).order_topic_conf is None
    await peer.ask(RequestCode.DELETE_KV_CONFIG, namespace=namespace, key="TopicA")
    gone = await peer.ask(RequestCode.GET_KV_CONFIG, namespace=namespace, key="TopicA")
    assert gone.code == ResponseCode.QUERY_NOT_FOUND
    assert gone.remark == "No config item, Namespace: ORDER_TOPIC_CONFIG Key: TopicA"


@pytest.mark.nameserver(config_store_path="/n/namesrv.properties")
async def test_settings_are_shown_and_changed_from_a_list(peer: Peer, runtime: SimulatedRuntime) -> None:
    shown = properties_text.parse((await peer.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode())
    assert (shown["listenPort"], shown["enableTopicList"]) == ("9876", "true")
    update = RequestCode.UPDATE_NAMESRV_CONFIG
    assert (await peer.ask(update, b"enableTopicList=false")).code == ResponseCode.SUCCESS
    assert (await peer.ask(RequestCode.GET_UNIT_TOPIC_LIST)).remark == "disable"
    assert runtime.files.read_bytes("/n/namesrv.properties") == b"enableTopicList=false\n"
    for body, code, words in (
        (b"kvConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"listenPort=1", ResponseCode.INVALID_PARAMETER, "listenPort"),
        (b"noSuchKey=1", ResponseCode.INVALID_PARAMETER, "noSuchKey"),
        (b"enableTopicList=7", ResponseCode.INVALID_PARAMETER, "expected true or false"),
    ):
        answer = await peer.ask(update, body)
        assert answer.code == code
        assert words in (answer.remark or "")


@pytest.mark.nameserver(need_wait_for_service=True)
async def test_it_can_wait_for_its_brokers_before_it_answers(peer: Peer, runtime: SimulatedRuntime) -> None:
    await peer.register(0)
    answer = await peer.route()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    await runtime.clock.sleep(45)
    assert (await peer.route()).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("MB-01")
@pytest.mark.behaviour("MB-04")
@pytest.mark.behaviour("NR-08")
async def test_acting_master_and_the_notice_of_the_lowest_id(runtime: SimulatedRuntime) -> None:
    heard: list[dict[str, str]] = []
    assert not NameServerConfig().notify_min_broker_id_changed
    assert NOTIFY_TIMEOUT_MS == 300

    def listen(connection: Any, command: Command) -> Command | None:
        assert command.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        assert command.is_oneway
        heard.append(command.ext)
        return None

    slave_port = RemotingServer(runtime, listen)
    await slave_port.start("127.0.0.1", 10921)
    config = NameServerConfig(support_acting_master=True, notify_min_broker_id_changed=True)
    async with NameServer(runtime, config) as server:
        peer = Peer(server, runtime)
        await peer.register(0, enableActingMaster="true")
        await peer.register(1, enableActingMaster="true")
        await peer.ask(RequestCode.UNREGISTER_BROKER, **identity(0))
        route = TopicRouteData.decode((await peer.route()).body)
        assert dict(route.broker_datas[0].broker_addrs) == {0: "127.0.0.1:10921"}
        await runtime.clock.sleep(0.1)
        assert heard == [
            {
                "minBrokerId": "1",
                "brokerName": "broker-a",
                "minBrokerAddr": "127.0.0.1:10921",
                "offlineBrokerAddr": "127.0.0.1:10911",
            }
        ]
        await peer.close()
    await slave_port.stop()


async def test_a_taken_port_is_one_clear_line(runtime: SimulatedRuntime) -> None:
    async with NameServer(runtime, NameServerConfig(listen_port=9876)):
        line = r"cannot listen on 0\.0\.0\.0:9876 \(bindAddress, listenPort\): "
        with pytest.raises(StartError, match=line):
            await NameServer(runtime, NameServerConfig(listen_port=9876)).start()
