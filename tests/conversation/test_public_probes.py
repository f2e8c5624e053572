"""Published attacks and the probes of scanners, at every port of a broker and of a name server.

Each is sent with authentication on and off, by a machine that is no operator's. They change nothing, create
no file outside the servers' folders, and no response or log line has a secret.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.conversation.http_peer import Raw

from orbitmq.auth.protected import DANGEROUS
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.cluster.brokers import make_broker
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame

NAMES, BROKER, STRANGER = "10.0.0.1", "10.0.0.2", "10.7.7.7"
REMOTING = {"broker": (BROKER, 10911), "VIP": (BROKER, 10909), "name server": (NAMES, 9876)}
OTHERS = {
    "HA": (BROKER, 10912),
    "gRPC": (BROKER, 8081),
    "metrics": (BROKER, 5557),
    "metrics of the name server": (NAMES, 5558),
}
ROOT_SECRET, INNER_SECRET, KEY_SECRET = "root-secret-1", "inner-secret-1", "key-password-1"
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_SECRET}),
}
COMMON = {
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER_SECRET}),
    "tls.server.keyPassword": KEY_SECRET,
    "metricsExporterType": "PROM",
}
# No name of a topic, a group or a user may become a path. The first is that of CVE-2019-17572.
PATHS = ("../../../../topic2020", "..", "/etc/cron.d/pwned", "a/../../b", "a\0b", "..\\..\\b")


@dataclass(frozen=True, slots=True)
class Probe:
    """A request; ``refused`` if it names an impossible object, so that it is an error without keys, too."""

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    refused: bool = True

    def command(self) -> Command:
        return Command(self.code, dict(self.fields), self.body)


def of_settings() -> list[Probe]:
    """The requests published for CVE-2023-33246 (broker) and CVE-2023-37582 (name server), and
    similar ones.
    """
    shell = b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch /tmp/pwned;\nnamesrvAddr=10.7.7.7:9876"
    cron = b"\nproductEnvName=* * * * * root touch /tmp/pwned"
    bodies = [
        shell,
        b"filterServerNums=1",
        b"rocketmqHome=-c gopher://x -c $@|sh . echo",
        *(
            key + b"=/etc/cron.d/pwned" + cron
            for key in (
                b"configStorePath", b"configStorePathName", b"kvConfigPath", b"storePathRootDir", b"logFile",
                b"auditLogFile", b"authConfigPath", b"configBlackList", b"metricsTokenFile",
            )
        ),
    ]  # fmt: skip
    return [
        Probe(code, {}, body)
        for code in (Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG)
        for body in bodies
    ]


def of_paths() -> list[Probe]:
    """Requests with names of topics, groups, users, accounts and brokers that are paths into other
    folders.
    """
    found: list[Probe] = []
    for path in PATHS:
        topic = {"topic": path, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
        topic |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        sent = {"a": "g", "b": path, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
        pull = {"consumerGroup": path, "topic": path, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
        pull |= {"sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
        pull |= {"subscription": "*", "offset": "0"}
        consumer = {"groupName": path, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        consumer |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": []}  # type: ignore[dict-item]
        heart = {"clientID": path, "producerDataSet": [], "consumerDataSet": [consumer]}
        found += [
            Probe(Code.UPDATE_AND_CREATE_TOPIC, topic),
            Probe(Code.SEND_MESSAGE_V2, sent, b"x"),
            Probe(Code.SEND_MESSAGE_V2, {**sent, "b": f"%RETRY%{path}"}, b"x"),
            Probe(Code.SEND_MESSAGE_V2, {**sent, "b": f"%DLQ%{path}"}, b"x"),
            Probe(Code.PULL_MESSAGE, pull),
            Probe(Code.UPDATE_CONSUMER_OFFSET, {**pull, "commitOffset": "7"}),
            Probe(Code.QUERY_CONSUME_QUEUE, {**pull, "index": "0", "count": "1"}),
            Probe(Code.QUERY_MESSAGE, {**pull, "key": path, "maxNum": "1", "beginTimestamp": "0"}),
            Probe(Code.HEART_BEAT, {}, json.dumps(heart).encode(), refused=False),
            Probe(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": path}).encode()),
            Probe(Code.DELETE_TOPIC_IN_BROKER, topic),
            Probe(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": path}),
            Probe(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": path}),
            Probe(Code.AUTH_CREATE_USER, {"username": path}, b'{"username":"x","password":"y"}'),
            Probe(Code.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": path, "secretKey": "x"}),
            Probe(Code.PUT_KV_CONFIG, {"namespace": path, "key": path, "value": path}),
            Probe(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": path}, b'{"queueDatas":[]}', refused=False),
            Probe(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": path}),
        ]
    return found


def of_scanners() -> list[Probe]:
    """Requests that list the server's objects; without keys most are answered, as in RocketMQ."""
    named = {"username": "root", "subject": "User:root", "accessKey": "root", "topic": "TBW102"}
    codes = (
        Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG, Code.GET_CONTROLLER_CONFIG,
        Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_HA_STATUS,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_ALL_PRODUCER_INFO, Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_BROKER_CLUSTER_ACL_CONFIG, Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.VIEW_BROKER_STATS_DATA,
    )  # fmt: skip
    return [Probe(code, named, refused=code in DANGEROUS) for code in codes]


PROBES = [*of_settings(), *of_paths(), *of_scanners()]
# Requests of web scanners: for RocketMQ's dashboard, its proxy, and files of the machine.
WEB = tuple(
    f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    for line in (
        "GET /../../../../etc/passwd",
        "GET /metrics/../../etc/passwd",
        "GET /%2e%2e/%2e%2e/etc/passwd",
        "GET /metrics/%2e%2e/healthz",
        "GET /cluster/brokerConfig.query?brokerAddr=10.0.0.2:10911",
        "GET /acl/users.query",
        "GET /topic/list.query",
        "GET /rocketmq/nsaddr",
        "GET /actuator/env",
        "POST /ops/updateNameSvrAddr.do?nameSvrAddrList=10.7.7.7:9876",
        "POST /topic/deleteTopic.do?topic=TBW102",
        "PUT /metrics",
        "TRACE /metrics",
        "CONNECT 10.0.0.2:10911",
    )
)


class Cluster:
    """A name server and a broker, each on a machine of its own, and a stranger's access to them."""

    def __init__(self, machine: SimulatedRuntime, names: NameServer, broker: Broker) -> None:
        self.names, self.broker = names, broker
        self.machine = machine
        self.machines: dict[str, SimulatedRuntime] = {}
        self.said = b""

    async def ask(self, where: tuple[str, int], probe: Probe, client: RemotingClient) -> Command:
        answer = await client.request(f"{where[0]}:{where[1]}", probe.command(), 60_000)
        self.said += repr((answer.remark, answer.ext)).encode() + answer.body
        return answer

    async def tell(self, where: tuple[str, int], data: bytes) -> bytes:
        """Send these bytes; returns the response, up to the end of the connection."""
        _, protocol = await self.machine.network.connect(Raw, *where)
        peer = cast("Raw", protocol)
        assert peer.transport is not None
        peer.transport.write(data)
        async with asyncio.timeout(60):
            await peer.ended
        self.said += bytes(peer.received)
        return bytes(peer.received)

    def state(self) -> dict[str, Any]:
        """The state that no probe may change."""
        services = self.broker.services
        return {
            "settings": services.config.to_properties(),
            "settings of the name server": self.names.handlers.config.to_properties(),
            "topics": sorted(one.topic_name for one in services.topics),
            "brokers": self.names.routes.cluster_info().to_plain(),
            "files": [path for root, one in self.machines.items() for path in outside(one, root)],
        }


def outside(runtime: SimulatedRuntime, root: str) -> list[str]:
    """The files of a machine outside its server's folder, and files whose name is a path out of it."""
    return [
        path
        for path in runtime.files._files  # the seam lists one folder at a time
        if not path.startswith(f"{root}/") or ".." in path or "%2e" in path or "\0" in path
    ]


@asynccontextmanager
async def cluster(runtime: SimulatedRuntime, *, keys: bool) -> AsyncIterator[Cluster]:
    """The servers; with ``keys`` they require keys."""
    common = {**COMMON, **(KEYS if keys else {})}
    ours, _ = NameServerConfig.load(
        "",
        {
            **common,
            "bindAddress": NAMES,
            "listenPort": "9876",
            "kvConfigPath": "/ns/kv.json",
            "configStorePath": "/ns/namesrv.properties",
            "authConfigPath": "/ns/config",
            "metricsPromExporterHost": NAMES,
        },
    )
    theirs, _ = BrokerConfig.load(
        "",
        {
            **common,
            "bindAddress": BROKER,
            "brokerIP1": BROKER,
            "listenPort": "10911",
            "namesrvAddr": f"{NAMES}:9876",
            "storePathRootDir": "/store",
            "mappedFileSizeCommitLog": str(1 << 20),
            "metricsPromExporterHost": BROKER,
        },
    )
    machines = {"/ns": runtime.machine(NAMES), "/store": runtime.machine(BROKER)}
    async with (
        NameServer(machines["/ns"], ours) as names,
        make_broker(machines["/store"], theirs) as broker,
    ):
        found = Cluster(runtime.machine(STRANGER), names, broker)
        found.machines = machines
        async with asyncio.timeout(60):
            while not names.routes.cluster_info().broker_addr_table:
                await asyncio.sleep(0.1)
        yield found


@pytest.mark.behaviour("AZ-29")
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
async def test_published_attacks_and_probes_change_and_tell_nothing(
    runtime: SimulatedRuntime, keys: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with cluster(runtime, keys=keys) as found:
        before = found.state()
        client = RemotingClient(found.machine)
        for port, where in REMOTING.items():
            for probe in PROBES:
                answer = await found.ask(where, probe, client)
                about = (port, probe, answer.code, answer.remark)
                if keys:
                    assert (answer.code, answer.remark) == (16, "username cannot be null."), about
                elif probe.code in DANGEROUS:
                    assert (answer.code, "protectedMode" in str(answer.remark)) == (16, True), about
                elif probe.refused:
                    assert answer.code != ResponseCode.SUCCESS, about
        await client.close()
        for where in OTHERS.values():
            for data in (*WEB, *(encode_frame(probe.command()) for probe in PROBES)):
                said = await found.tell(where, data)
                assert not said or said.startswith((b"HTTP/1.1 4", b"\0\0")), (where, data, said)
        for where in REMOTING.values():
            for data in WEB:
                assert await found.tell(where, data) == b"", (where, data)
        assert found.state() == before
    texts = caplog.text.encode() + found.said
    for secret in (ROOT_SECRET, INNER_SECRET, KEY_SECRET):
        assert secret.encode() not in texts
    assert b"root:x:0:0" not in texts
    assert "Traceback" not in caplog.text
