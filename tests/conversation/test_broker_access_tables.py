"""Users and rules on the disk: how a start reads them, and how secrets are kept."""

from __future__ import annotations

import asyncio
import errno
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.secured_broker import ROOT, Keys, on, secured, settings

from orbitmq import Credentials, Message
from orbitmq.auth.rules import Acl
from orbitmq.auth.users import User
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.broker import Broker
from orbitmq.broker.name_servers import NameServers, NoRouteError
from orbitmq.broker.own_requests import client_of
from orbitmq.cluster.brokers import make_broker
from orbitmq.errors import StartError
from orbitmq.runtime.seam import Files
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import Secret, SigningKey

__all__ = ["secured"]


@pytest.mark.behaviour("AU-19")
@pytest.mark.parametrize("asks", [True, False])
async def test_no_port_beside_the_gate_is_open(runtime: SimulatedRuntime, asks: bool) -> None:
    config = on(authentication_enabled=asks)
    async with make_broker(runtime, config):
        is_open = {}
        for port in (config.listen_port, config.ha_listen_port, config.grpc_server_port):
            try:
                transport, _ = await runtime.network.connect(asyncio.Protocol, "127.0.0.1", port)
            except OSError:
                is_open[port] = False
            else:
                is_open[port] = True
                transport.abort()
        assert is_open == {10911: True, 10912: not asks, 8081: True}


# -- the tables ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("AU-20")
@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_users_and_rules_survive(secured: World, how: str) -> None:
    root = Keys(secured, ROOT)
    await root.make_user("late", password="late-secret")
    await root.allow("late", ("Topic:orders", "Pub"))
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "root"}, UserInfo(password="root-secret-9").encode())
    if how == "stop":
        await secured.stop_broker("broker-a")
    else:
        secured.crash("broker-a", Keep.NOTHING)
    await root.close()
    await secured.start_broker("broker-a")
    async with secured.producer(credentials=Credentials("late", "late-secret")) as producer:
        await producer.send(Message("orders", b"x"))
    access = secured.brokers["broker-a"].part(BrokerAccess)
    assert [user.name for user in access.users.all()] == ["app", "late", "root"]
    assert [name for name, _ in access.rules.all()] == ["app", "late"]
    for credentials, code in ((ROOT, 16), (Credentials("root", "root-secret-9"), 0)):
        again = Keys(secured, credentials)
        assert (await again.ask(Code.AUTH_LIST_USER)).code == code
        await again.close()


@pytest.mark.behaviour("AU-20")
async def test_they_stay_while_nobody_is_asked_for_keys(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, on()):
        pass
    async with Broker(runtime, broker_config()) as broker:
        assert broker.doors.guard.gate is None
        router = broker.doors.router
        assert router is not None
        assert not router.codes & set(range(3001, 3011))
        assert [user.name for user in broker.part(BrokerAccess).users.all()] == ["root"]
    async with Broker(runtime, on(init_authentication_user="")) as broker:
        assert broker.part(BrokerAccess).users.has_super()


@pytest.mark.behaviour("AU-16")
async def test_without_a_super_user_the_start_fails(runtime: SimulatedRuntime) -> None:
    with pytest.raises(StartError, match=r"no super user who is not disabled.*set initAuthenticationUser"):
        await Broker(runtime, on(init_authentication_user="")).start()


@pytest.mark.behaviour("AU-16")
async def test_the_users_of_the_settings_are_made_once(runtime: SimulatedRuntime) -> None:
    inner = Credentials("inner", "inner-secret")
    async with Broker(runtime, on(inner_client_credentials=inner)) as broker:
        users = broker.part(BrokerAccess).users
        assert [(user.name, user.is_super) for user in users.all()] == [("inner", True), ("root", True)]
    async with Broker(runtime, on(init_authentication_user=Credentials("root", "another"))) as broker:
        root = broker.part(BrokerAccess).users.get("root")
        assert root is not None
        assert root.secret.reveal() == "root-secret-1"


@pytest.mark.behaviour("AU-22")
@pytest.mark.parametrize("asks", [True, False])
async def test_a_broker_signs_its_own_requests_whether_or_not_it_asks_for_keys(
    runtime: SimulatedRuntime, asks: bool
) -> None:
    inner = Credentials("inner", "inner-secret")
    heard: list[Command] = []

    def hear(_connection: ServerConnection, command: Command) -> Command:
        heard.append(command)
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "this name server only listens")

    name_server = RemotingServer(runtime, hear)
    await name_server.start("127.0.0.1", 9876)
    changes: dict[str, Any] = {"inner_client_credentials": inner, "namesrv_addr": "127.0.0.1:9876"}
    config = on(**changes) if asks else broker_config(**changes)
    async with Broker(runtime, config) as broker:
        await asyncio.sleep(3)
        with pytest.raises(NoRouteError):
            await broker.part(NameServers).route("T", 0)
    await name_server.stop()
    assert isinstance(inner.secret_key, Secret)
    key = SigningKey(inner.secret_key)
    assert {Code.GET_ROUTEINFO_BY_TOPIC, Code.REGISTER_BROKER} <= {command.code for command in heard}
    assert all(key.made(command) for command in heard)
    passing_on = client_of(runtime, config, for_clients=True)
    assert (passing_on.identity.credentials is not None) == asks, "strangers speak with its keys"
    await passing_on.close()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("users", b'{"users":{"root":{"password":"x"}}}'),
        ("users", b'{"users":{"root":{"password":"x","userType":"Boss","userStatus":"enable"}}}'),
        ("users", b'{"users":['),
        ("acls", b'{"acls":{"app":{"policies":[{"policyType":"Custom","entries":[]}]}}}'),
        ("acls", b'{"acls":{"app":7}}'),
    ],
)
async def test_a_broken_table_is_a_start_error(runtime: SimulatedRuntime, file: str, content: bytes) -> None:
    runtime.files.write_atomic(f"/store/config/{file}.json", content)
    with pytest.raises(StartError, match=file):
        await Broker(runtime, on()).start()


async def test_a_disk_that_refuses_is_told(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, on()) as broker:
        client = RemotingClient(runtime, identity=Identity(ROOT))
        runtime.files.fail("pwrite", "tables.journal", error=errno.ENOSPC)
        command = Command(Code.AUTH_CREATE_USER, {"username": "new"}, UserInfo(password="x").encode())
        answer = await client.request(broker.address, command, 5000)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert str(answer.remark).startswith("a change of users cannot be written: ")
        await client.close()


def test_every_header_says_its_code() -> None:
    found = [
        headers.AuthCreateUserRequest,
        headers.AuthUpdateUserRequest,
        headers.AuthDeleteUserRequest,
        headers.AuthGetUserRequest,
        headers.AuthListUserRequest,
        headers.AuthCreateAclRequest,
        headers.AuthUpdateAclRequest,
        headers.AuthDeleteAclRequest,
        headers.AuthGetAclRequest,
        headers.AuthListAclRequest,
    ]
    assert [header.code for header in found] == list(range(3001, 3011))
    assert headers.AuthDeleteAclRequest(subject="s", policy_type="p", resource="r").to_ext() == {
        "subject": "s",
        "policyType": "p",
        "resource": "r",
    }
    assert headers.AuthListAclRequest(subject_filter="s", resource_filter="r").to_ext() == {
        "subjectFilter": "s",
        "resourceFilter": "r",
    }


# -- secrets on the disk ---------------------------------------------------------------------------------

KEY_FILE = "/keys/auth.key"
KEYED = {"authKeyFile": KEY_FILE}


def contents(files: Files, folder: str) -> dict[str, bytes]:
    """The contents of the table files."""
    return {name: files.read_bytes(f"{folder}/{name}") for name in files.list_dir(folder)}


@pytest.mark.behaviour("AU-40")
@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.ANY])
async def test_secrets_are_encrypted_on_the_disk(orbitmq_runtime: SimulatedRuntime, keep: Keep) -> None:
    world = World(orbitmq_runtime, settings=settings(**KEYED))

    def disk() -> Files:
        return world.machines["broker-a"].runtime.files

    def all_tables() -> bytes:
        return b"".join(contents(disk(), "/store/broker-a/config").values())

    def app() -> User | None:
        return world.brokers["broker-a"].part(BrokerAccess).users.get("app")

    disk().make_dirs("/keys")
    disk().write_atomic(KEY_FILE, b64encode(b"k" * 32) + b"\n")
    async with world:
        root = Keys(world, ROOT)
        await root.make_user("app", password="app-secret-1")
        await root.close()
        for _ in range(2):
            assert b"encryptedPassword" in all_tables()
            for secret in (b"app-secret-1", b"root-secret-1"):
                assert secret not in all_tables()
            world.crash("broker-a", keep)
            await world.start_broker("broker-a")
            assert app() == User("app", Secret("app-secret-1"))
        # A new key in front of the old one: a start encrypts all secrets with the first key.
        new = b64encode(b"n" * 32)
        disk().write_atomic(KEY_FILE, new + b"\n" + disk().read_bytes(KEY_FILE))
        await world.stop_broker("broker-a")
        await world.start_broker("broker-a")
        await world.stop_broker("broker-a")
        disk().write_atomic(KEY_FILE, new)
        await world.start_broker("broker-a")
        assert app() == User("app", Secret("app-secret-1"))


@pytest.mark.behaviour("AU-46")
@pytest.mark.parametrize(
    ("reveals", "proxies", "host", "keys", "shown"),
    [
        (True, "", "", ROOT, "app-secret-1"),
        (True, "", "", Credentials("ops", "ops-secret-1"), None),
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
    config = broker_config(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=ROOT,
        auth_reveal_passwords=reveals,
        proxy_protocol_trusted=proxies,
    )
    runtime = orbitmq_runtime.machine("10.0.0.1") if host else orbitmq_runtime
    async with Broker(runtime, config) as broker:
        access = broker.part(BrokerAccess)
        access.users.put(User("app", Secret("app-secret-1")))
        access.users.put(User("ops", Secret("ops-secret-1")))
        entry = PolicyEntryInfo("*", ["All"], None, "Allow")
        access.rules.put("ops", Acl.of(AclInfo(None, [PolicyInfo(None, [entry])])))
        client = RemotingClient(runtime.machine(host) if host else runtime, identity=Identity(keys))
        address = f"{'10.0.0.1' if host else '127.0.0.1'}:{broker.port}"
        one = await client.request(address, Command(Code.AUTH_GET_USER, {"username": "app"}), 5000)
        listed = await client.request(address, Command(Code.AUTH_LIST_USER, {"filter": "app"}), 5000)
        await client.close()
        assert UserInfo.decode(one.body).password == shown
        assert [user.password for user in UserInfo.decode_list(listed.body)] == [shown]
        assert (b"app-secret-1" in one.body) == (shown is not None)


@pytest.mark.behaviour("AU-40")
async def test_a_key_encrypts_what_was_in_clear_and_without_it_nothing_starts(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    runtime = orbitmq_runtime
    config = broker_config(authentication_enabled=True, init_authentication_user=ROOT)
    async with Broker(runtime, config) as broker:
        broker.part(BrokerAccess).users.put(User("app", Secret("app-secret-1")))
    folder = f"{config.store_path_root_dir}/config"

    def kept() -> dict[str, bytes]:
        return contents(runtime.files, folder)

    assert b"app-secret-1" in kept()["users.json"]
    runtime.files.make_dirs("/keys")
    runtime.files.write_atomic(KEY_FILE, b64encode(b"k" * 32))
    keyed = replace(config, auth_key_file=KEY_FILE)
    async with Broker(runtime, keyed):
        pass
    before = kept()
    assert b"app-secret-1" not in b"".join(before.values())
    with pytest.raises(StartError, match="authKeyFile names no key"):
        await Broker(runtime, config).start()
    runtime.files.write_atomic(KEY_FILE, b64encode(b"o" * 32))
    with pytest.raises(StartError, match="a key that the file of authKeyFile does not have"):
        await Broker(runtime, keyed).start()
    assert kept() == before
    runtime.files.write_atomic(KEY_FILE, b64encode(b"k" * 32))
    async with Broker(runtime, keyed) as broker:
        assert broker.part(BrokerAccess).users.get("app") == User("app", Secret("app-secret-1"))
