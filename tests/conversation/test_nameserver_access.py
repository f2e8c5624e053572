"""A name server that requires keys: brokers, clients and operators with right and wrong keys."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.scripted import running as consuming
from tests.conversation.test_nameserver_conversation import identity, register_body

from orbitmq import Consumer, Credentials, Message, NotPermittedError, Producer, ReceivedMessage
from orbitmq.admin import Admin
from orbitmq.auth.name_server_requests import REQUESTS
from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Secret, SigningKey

ROOT = Credentials("root", "root-secret-1")
INNER = Credentials("inner", "inner-secret-1")
APP = Credentials("app", "app-secret-1")
WRONG = Credentials("app", "app-secret-2")
ADDRESS = "127.0.0.1:9876"
KEYS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": ROOT,
    "inner_client_credentials": INNER,
}


def settings(**changes: Any) -> NameServerConfig:
    return NameServerConfig(**{**KEYS, "listen_port": 9876, "auth_config_path": "/ns/config", **changes})


class Cluster:
    """A name server that requires keys, and a broker with or without keys."""

    def __init__(self, runtime: SimulatedRuntime, server: NameServer) -> None:
        self.runtime = runtime
        self.server = server

    async def ask(
        self,
        credentials: Credentials | None,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        client = RemotingClient(self.runtime, identity=Identity(credentials))
        try:
            return await client.request(ADDRESS, Command(code, dict(fields or {}), body), 5000)
        finally:
            await client.close()

    def admin(self, credentials: Credentials | None) -> Admin:
        return Admin(ADDRESS, runtime=self.runtime, credentials=credentials)

    async def allow(self, resource: str, actions: str, decision: str = "Allow") -> None:
        entry = PolicyEntryInfo(resource, actions.split(","), None, decision)
        body = AclInfo(None, [PolicyInfo(None, [entry])]).encode()
        answer = await self.ask(ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:app"}, body)
        assert (answer.code, answer.remark) == (0, None)

    def names(self) -> list[str]:
        return list(self.server.routes.cluster_info().broker_addr_table)


@asynccontextmanager
async def cluster(
    runtime: SimulatedRuntime, *, broker: bool = True, **changes: Any
) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(NameServer(runtime, settings(**changes)))
        found = Cluster(runtime, server)
        if broker:
            config = broker_config(**KEYS, namesrv_addr=ADDRESS)
            await stack.enter_async_context(Broker(runtime, config))
            while not found.names():
                await asyncio.sleep(0.1)
        yield found


async def make_app(found: Cluster, *rules: tuple[str, str]) -> None:
    async with found.admin(ROOT) as admin:
        await admin.access.create_user("app", "app-secret-1")
        for resource, actions in rules:
            await admin.access.set_rule("app", resource, actions.split(","))


@pytest.mark.behaviour("AU-46")
@pytest.mark.parametrize(
    ("reveals", "proxies", "host", "keys", "shown"),
    [
        (True, "", "", ROOT, "app-secret-1"),
        (True, "", "", APP, None),
        (True, "", "10.9.9.9", ROOT, None),
        (True, "10.0.0.1", "", ROOT, None),
        (False, "", "", ROOT, None),
    ],
    ids=["super user here", "normal user", "from elsewhere", "behind proxies", "by default"],
)
async def test_passwords_are_shown_to_super_users_of_this_machine_if_a_setting_says_so(
    orbitmq_runtime: SimulatedRuntime,
    reveals: bool,
    proxies: str,
    host: str,
    keys: Credentials,
    shown: str | None,
) -> None:
    runtime = orbitmq_runtime.machine("10.0.0.1") if host else orbitmq_runtime
    config = settings(auth_reveal_passwords=reveals, proxy_protocol_trusted=proxies)
    async with NameServer(runtime, config) as server:
        here = Cluster(runtime, server)
        body = UserInfo("app", "app-secret-1", "Normal", "enable").encode()
        assert (await here.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, body)).code == 0
        await here.allow("*", "All")
        client = RemotingClient(runtime.machine(host) if host else runtime, identity=Identity(keys))
        address = f"10.0.0.1:{server.port}" if host else ADDRESS
        one = await client.request(address, Command(Code.AUTH_GET_USER, {"username": "app"}), 5000)
        listed = await client.request(address, Command(Code.AUTH_LIST_USER, {"filter": "app"}), 5000)
        await client.close()
        assert UserInfo.decode(one.body).password == shown
        assert [user.password for user in UserInfo.decode_list(listed.body)] == [shown]


def test_a_setting_that_shows_passwords_is_said_at_the_start() -> None:
    keys = 'authenticationEnabled=true\ninitAuthenticationUser={"username":"root","password":"x"}\n'
    _, said = NameServerConfig.load(f"{keys}authRevealPasswords=true\n")
    assert said == ["authRevealPasswords=true: getUser and listUser show passwords to super users"]


@pytest.mark.behaviour("AU-23", "AZ-13")
async def test_clients_and_the_broker_work_with_their_keys(runtime: SimulatedRuntime) -> None:
    seen: list[bytes] = []

    async def take(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with cluster(runtime) as found:
        async with found.admin(ROOT) as admin:
            await admin.topics.create("orders", queues=2)
            await admin.topics.create("invoices", queues=2)
        await make_app(found, ("Topic:orders", "Pub,Sub,Get"), ("Group:billing", "Sub"))
        keys: dict[str, Any] = {"name_servers": ADDRESS, "runtime": runtime, "credentials": APP}
        async with Producer("pg", **keys) as producer:
            await producer.send(Message("orders", b"m"))
            with pytest.raises(NotPermittedError, match="Topic:invoices from 127"):
                await producer.send(Message("invoices", b"m"))
            async with consuming(Consumer("billing", **keys), take, "orders"):
                await producer.send(Message("orders", b"n"))
                while b"n" not in seen:
                    await asyncio.sleep(0.1)


@pytest.mark.behaviour("AU-23")
@pytest.mark.parametrize("keys", [None, WRONG, Credentials("none", "x")], ids=["none", "wrong", "unknown"])
async def test_nobody_else_is_served(runtime: SimulatedRuntime, keys: Credentials | None) -> None:
    remark = "username cannot be null." if keys is None else "check signature failed."
    register = {
        "clusterName": "DefaultCluster",
        "brokerName": "broker-x",
        "brokerAddr": "10.0.0.66:10911",
        "brokerId": "0",
        "haServerAddr": "10.0.0.66:10912",
    }
    async with cluster(runtime) as found:
        await make_app(found, ("*", "All"))
        for code in (*found.server.handlers.codes, 905, 9999):
            answer = await found.ask(keys, code, {**register, "topic": "TBW102", "cluster": "c"})
            assert (answer.code, answer.remark) == (16, remark), code
        assert found.names() == ["broker-a"]
        async with found.admin(keys) as admin:
            with pytest.raises(NotPermittedError):
                await admin.brokers.list()


@pytest.mark.behaviour("AU-23")
async def test_a_broker_without_the_keys_is_not_registered(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime, broker=False) as found:
        for inner in ("", Credentials("inner", "another")):
            config = broker_config(**{**KEYS, "inner_client_credentials": inner}, namesrv_addr=ADDRESS)
            async with Broker(runtime, config):
                await asyncio.sleep(5)
                assert not found.names()
        keys = {"namesrv_addr": ADDRESS, "inner_client_credentials": INNER}
        async with Broker(runtime, broker_config(**keys)):
            await asyncio.sleep(5)
            assert found.names() == ["broker-a"], "also a broker that requires no keys signs"


@pytest.mark.behaviour("AU-23")
async def test_what_it_tells_brokers_is_signed(runtime: SimulatedRuntime) -> None:
    heard: list[Command] = []

    def listen(_connection: ServerConnection, command: Command) -> None:
        heard.append(command)

    slave = RemotingServer(runtime, listen)
    await slave.start("127.0.0.1", 10921)
    told = {"support_acting_master": True, "notify_min_broker_id_changed": True}
    async with cluster(runtime, broker=False, **told) as found:
        client = RemotingClient(found.runtime, identity=Identity(INNER))
        body = register_body(("orders", "invoices"))
        requests = [
            Command(Code.REGISTER_BROKER, {**identity(number), "enableActingMaster": "true"}, body)
            for number in (0, 1)
        ]
        for request in (*requests, Command(Code.UNREGISTER_BROKER, identity(0))):
            answer = await client.request(ADDRESS, request, 5000)
            assert (answer.code, answer.remark) == (0, None)
        await asyncio.sleep(1)
        await client.close()
    await slave.stop()
    assert [command.code for command in heard] == [Code.NOTIFY_MIN_BROKER_ID_CHANGE]
    assert isinstance(INNER.secret_key, Secret)
    assert SigningKey(INNER.secret_key).made(heard[0])


@pytest.mark.behaviour("AZ-13")
@pytest.mark.parametrize(
    ("rules", "topic", "code"),
    [
        ([], "orders", 16),
        ([], "TBW102", 17),
        ([], "RMQ_SYS_TRACE_TOPIC", 17),
        ([], "%RETRY%billing", 16),
        ([("Topic:orders", "Delete", "Allow")], "orders", 17),
        ([("Topic:orders", "Sub", "Allow")], "orders2", 16),
        ([("Topic:ord*", "Sub", "Allow"), ("Topic:orders", "Pub", "Deny")], "orders", 17),
        ([("Topic:ord*", "Sub", "Allow"), ("Topic:orders", "All", "Deny")], "orders", 16),
        ([("Group:billing", "Sub", "Allow")], "%RETRY%billing", 17),
        ([("Topic:*", "All", "Allow")], "%RETRY%billing", 16),
        ([("Cluster:*", "All", "Allow")], "orders", 16),
    ],
)
async def test_a_route_needs_some_right_for_its_topic(
    runtime: SimulatedRuntime, rules: list[tuple[str, str, str]], topic: str, code: int
) -> None:
    """TOPIC_NOT_EXIST shows that the request came to the handler."""
    async with cluster(runtime, broker=False) as found:
        answer = await found.ask(
            ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, UserInfo(password="app-secret-1").encode()
        )
        assert answer.code == 0
        for rule in rules:
            await found.allow(*rule)
        assert (await found.ask(APP, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == code


@pytest.mark.behaviour("AZ-14")
async def test_changes_need_the_right_for_the_cluster_that_they_touch(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as found:
        await make_app(found, ("Cluster:other", "All"), ("Topic:*", "All"), ("Group:*", "All"))
        broker = {"brokerName": "broker-a", "brokerAddr": "10.0.0.66:10911", "brokerId": "0"}
        ha = {"haServerAddr": "10.0.0.66:10912"}
        taken_over = {"clusterName": "other", **broker, **ha}
        pair = {"namespace": "n", "key": "k", "value": "v"}
        for code, fields in (
            (Code.REGISTER_BROKER, taken_over),
            (Code.REGISTER_BROKER, {**taken_over, "clusterName": "DefaultCluster", "brokerName": "b"}),
            (Code.UNREGISTER_BROKER, taken_over),
            (Code.BROKER_HEARTBEAT, taken_over),
            (Code.QUERY_DATA_VERSION, taken_over),
            (Code.GET_BROKER_MEMBER_GROUP, taken_over),
            (Code.WIPE_WRITE_PERM_OF_BROKER, broker),
            (Code.ADD_WRITE_PERM_OF_BROKER, broker),
            (Code.PUT_KV_CONFIG, pair),
            (Code.GET_KV_CONFIG, pair),
            (Code.DELETE_KV_CONFIG, pair),
            (Code.GET_KVLIST_BY_NAMESPACE, pair),
            (Code.GET_BROKER_CLUSTER_INFO, {}),
            (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
            (Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "orders"}),
            (Code.AUTH_LIST_USER, {}),
            (Code.GET_BROKER_RUNTIME_INFO, {}),
        ):
            answer = await found.ask(APP, code, fields)
            refusal = "User:app has no permission to access Cluster:DefaultCluster from 127.0.0.1"
            assert (answer.code, str(answer.remark).partition(",")[0]) == (16, refusal), code
        for code in (Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG):
            answer = await found.ask(APP, code, {}, b"kvConfigPath=/etc/passwd")
            assert answer.remark == f"User:app is no super user: request {int(code)} is theirs."
        await found.allow("Cluster:DefaultCluster", "All")
        assert (await found.ask(APP, Code.GET_BROKER_CLUSTER_INFO)).code == 0
        assert (await found.ask(APP, Code.PUT_KV_CONFIG, pair)).code == 0
        assert (await found.ask(APP, Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})).code == 0
        for code in (Code.REGISTER_BROKER, Code.BROKER_HEARTBEAT):
            answer = await found.ask(APP, code, {"brokerName": "b"})
            assert "clusterName" in str(answer.remark)
        assert found.names() == ["broker-a"]


@pytest.mark.behaviour("AZ-14")
async def test_without_brokers_a_cluster_wide_request_needs_every_cluster(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime, broker=False) as found:
        user = UserInfo(password="app-secret-1").encode()
        await found.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, user)
        assert (await found.ask(APP, Code.GET_BROKER_CLUSTER_INFO)).code == 16
        await found.allow("Cluster:DefaultCluster", "All")
        assert (await found.ask(APP, Code.GET_BROKER_CLUSTER_INFO)).code == 16
        await found.allow("Cluster:*", "Get")
        assert (await found.ask(APP, Code.GET_BROKER_CLUSTER_INFO)).code == 0


@pytest.mark.behaviour("AZ-14")
async def test_the_table_is_about_requests_that_a_name_server_answers(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime, broker=False) as found:
        codes = found.server.handlers.codes
        assert set(REQUESTS) <= codes
        assert {Code(code).name for code in codes - set(REQUESTS)} == {
            "UPDATE_NAMESRV_CONFIG",
            "GET_NAMESRV_CONFIG",
        }


@pytest.mark.behaviour("AU-24")
async def test_users_and_rules_are_changed_everywhere_and_survive(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as found:
        await make_app(found, ("Topic:orders", "Pub"))
        async with found.admin(ROOT) as admin:
            users = (await admin.access.users()).whole()
            rules = (await admin.access.rules("app")).whole()
            places = ["broker-a", f"name server {ADDRESS}"]
            assert [one.broker_name for one in users if one.user == "app"] == places
            assert [one.broker_name for one in rules] == places
            await admin.access.change_user("app", is_enabled=False)
        assert (await found.ask(APP, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).code == 16
        text = (await found.ask(ROOT, Code.GET_NAMESRV_CONFIG)).body.decode()
        assert "initAuthenticationUser=***" in text
        assert "secret-1" not in text
    # The keys in the settings get another secret; the users stay.
    again = Credentials("root", "root-secret-2")
    async with cluster(runtime, broker=False, init_authentication_user=again) as found:
        assert (await found.ask(again, Code.AUTH_LIST_USER)).code == 16
        listed = UserInfo.decode_list((await found.ask(ROOT, Code.AUTH_LIST_USER)).body)
        assert [(one.username, one.user_status, one.password) for one in listed] == [
            ("app", "disable", None),
            ("inner", "enable", None),
            ("root", "enable", None),
        ]
        await found.ask(ROOT, Code.AUTH_DELETE_USER, {"username": "app"})
    files = runtime.files
    assert json.loads(files.read_bytes("/ns/config/acls.json")) == {"acls": {}}
    assert list(json.loads(files.read_bytes("/ns/config/users.json"))["users"]) == ["inner", "root"]


@pytest.mark.behaviour("AU-24")
async def test_the_rules_of_a_deleted_user_do_not_come_back(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime) as found:
        await make_app(found, ("Topic:orders", "Pub"))
        async with found.admin(ROOT) as admin:
            await admin.access.delete_user("app")
        await make_app(found)
        answer = await found.ask(APP, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert "no matched policies" in str(answer.remark)


@pytest.mark.behaviour("AU-24")
@pytest.mark.parametrize("table", ["users", "acls"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"users":[],"acls":[1]}', b'{"users":{"a":1},"acls":{"a":{}}}', b'{"x":{}}'],
)
async def test_a_broken_table_is_a_start_error(runtime: SimulatedRuntime, table: str, content: bytes) -> None:
    runtime.files.make_dirs("/ns/config")
    runtime.files.write_atomic(f"/ns/config/{table}.json", content)
    with pytest.raises(StartError, match=f"/ns/config/{table}.json is no table of {table}"):
        await NameServer(runtime, settings()).start()


@pytest.mark.behaviour("AU-24")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"auth_config_path": ""}, "authConfigPath"),
        ({"init_authentication_user": "", "inner_client_credentials": ""}, "no super user"),
    ],
)
async def test_settings_with_which_nobody_could_make_users(
    runtime: SimulatedRuntime, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(StartError, match=text):
        await NameServer(runtime, settings(**changes)).start()


@pytest.mark.behaviour("AU-24")
async def test_two_name_servers_do_not_share_a_folder(runtime: SimulatedRuntime) -> None:
    """Each would overwrite the other's users, and so would a server whose port is taken."""
    async with cluster(runtime, broker=False):
        with pytest.raises(StartError, match="authConfigPath=/ns/config is used by another process"):
            await NameServer(runtime, settings(listen_port=9877)).start()
    # A server that cannot start leaves the folder free.
    async with NameServer(runtime, NameServerConfig(listen_port=9876)):
        with pytest.raises(StartError, match="cannot listen on"):
            await NameServer(runtime, settings()).start()
    nobody = {"init_authentication_user": "", "inner_client_credentials": ""}
    with pytest.raises(StartError, match="no super user"):
        await NameServer(runtime, settings(auth_config_path="/ns/other", **nobody)).start()
    for folder in ("/ns/config", "/ns/other"):
        async with cluster(runtime, broker=False, auth_config_path=folder) as found:
            assert (await found.ask(ROOT, Code.AUTH_LIST_USER)).code == 0


@pytest.mark.behaviour("AZ-09", "AZ-10")
async def test_what_would_be_refused_is_counted_until_it_is_closed(runtime: SimulatedRuntime) -> None:
    async with cluster(runtime, auth_mode="observe") as found:
        assert (await found.ask(None, Code.GET_BROKER_CLUSTER_INFO)).code == 0
        assert (await found.ask(None, Code.AUTH_LIST_USER)).code == 16
        async with found.admin(ROOT) as admin:
            counted = (await admin.access.refusals()).whole()
            assert [(one.broker_name, one.why, one.count) for one in counted] == [
                (f"name server {ADDRESS}", "no keys", 2)
            ]
        assert (await found.ask(ROOT, Code.UPDATE_NAMESRV_CONFIG, body=b"authMode=enforce")).code == 0
        assert (await found.ask(None, Code.GET_BROKER_CLUSTER_INFO)).code == 16


@pytest.mark.behaviour("AU-23")
async def test_a_disk_that_cannot_be_written_is_told_and_tried_again(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(runtime, broker=False) as found:
        user = UserInfo(password="app-secret-1").encode()
        write = type(runtime.files).write_atomic
        with monkeypatch.context() as patch:

            def full(*_: Any, **__: Any) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(type(runtime.files), "write_atomic", full)
            answer = await found.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, user)
            assert "authConfigPath=/ns/config cannot be written: No space left" in str(answer.remark)
        assert type(runtime.files).write_atomic is write
        assert (await found.ask(APP, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).code == 17
        await found.allow("Topic:orders", "Pub")
    async with cluster(runtime, broker=False) as found:
        assert (await found.ask(APP, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})).code == 17


@pytest.mark.behaviour("AU-40")
async def test_secrets_are_encrypted_on_the_disk(runtime: SimulatedRuntime) -> None:
    runtime.files.make_dirs("/keys")
    runtime.files.write_atomic("/keys/auth.key", b64encode(b"k" * 32))
    keyed = settings(auth_key_file="/keys/auth.key")
    for _ in range(2):
        async with NameServer(runtime, keyed):
            kept = runtime.files.read_bytes("/ns/config/users.json")
            assert b"encryptedPassword" in kept
            assert b"root-secret-1" not in kept
    with pytest.raises(StartError, match="authKeyFile names no key"):
        await NameServer(runtime, settings()).start()
    assert runtime.files.read_bytes("/ns/config/users.json") == kept
