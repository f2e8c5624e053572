"""A broker with the accounts of ACL 1.0: clients with right and wrong keys, and files that change."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.scripted import running as consuming
from tests.conversation.secured_broker import Keys, admin

from orbitmq import (
    ConsumeFrom,
    Credentials,
    Message,
    NotPermittedError,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.auth.needs import ACCOUNTS
from orbitmq.auth.requests import REQUESTS
from orbitmq.auth.rules import ALLOWED, Action, Asked, ResourceKind
from orbitmq.auth.users import User, UserType
from orbitmq.broker.access.plain_files import LOOK_S, PlainAclFiles
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.wire.bodies.auth import PlainAccount, PlainAccounts
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.auth import GetBrokerAclConfigResponse
from orbitmq.wire.signing import Secret

ROOT = Credentials("rootuser", "root-secret-1")
APP = Credentials("appuser", "app-secret-1")
LATE = Credentials("lateuser", "late-secret-1")
FILE = "/mq/conf/plain_acl.yml"
ACL = """
accounts:
- accessKey: rootuser
  secretKey: root-secret-1
  admin: true
- accessKey: appuser
  secretKey: app-secret-1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
"""
LATE_ACL = """
accounts:
- accessKey: lateuser
  secretKey: late-secret-1
  topicPerms: [orders=SUB]
"""
ON = {"aclEnable": "true", "rocketmqHome": "/mq", "transactionTimeOut": "1000"}


def write(world: World, text: str, path: str = FILE) -> None:
    files = world.machines["broker-a"].runtime.files
    files.make_dirs(path.rpartition("/")[0])
    files.write_atomic(path, text.encode())


@pytest.fixture
def secured(orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    """One broker with ACL 1.0 and the topics "orders" and "invoices"."""
    world = World(orbitmq_runtime, settings=ON)
    write(world, ACL)
    orbitmq_loop.enter(world)
    orbitmq_loop.run(prepare(world))
    return world


async def prepare(world: World) -> None:
    async with admin(world, ROOT) as client:
        for topic in ("orders", "invoices"):
            await client.topics.create(topic, queues=2)


async def may_send(world: World, topic: str, credentials: Credentials | None) -> str:
    """The reason why a send is refused; empty if it is served."""
    async with world.producer(credentials=credentials) as producer:
        try:
            await producer.send(Message(topic, b"x"))
        except NotPermittedError as error:
            return str(error)
    return ""


@pytest.mark.behaviour("AU-32", "AZ-28")
async def test_every_kind_of_client_works_with_an_account(secured: World) -> None:
    seen: list[bytes] = []

    async def failing_once(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.reconsume_times == 0 and message.body == b"again":
            raise ValueError("once")

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    # This consumer requests the ends of the queues.
    last = secured.consumer("late", credentials=APP, trace=True, consume_from=ConsumeFrom.LAST)
    transactions = TransactionProducer(
        "tx", check=check, name_servers=secured.name_server, runtime=secured.runtime, credentials=APP
    )
    async with (
        secured.producer(credentials=APP, trace=True) as producer,
        consuming(last, failing_once, "orders"),
        transactions,
    ):
        await secured.sleep(5)
        await producer.send(Message("orders", b"again"))
        await producer.send_batch([Message("orders", b"b1"), Message("orders", b"b2")])
        async with transactions.transaction(Message("orders", b"tx")):
            pass
        await secured.until(lambda: len(seen) >= 5, 200)
    assert sorted(seen) == [b"again", b"again", b"b1", b"b2", b"tx"]
    async with secured.simple_consumer("popping", credentials=APP) as simple:
        simple.subscribe("orders")
        for message in await simple.receive(wait=10):
            await simple.ack(message)


@pytest.mark.behaviour("AU-32", "AZ-27")
async def test_others_are_refused(secured: World) -> None:
    assert await may_send(secured, "orders", APP) == ""
    assert await may_send(secured, "invoices", ROOT) == ""
    assert "access Topic:invoices" in await may_send(secured, "invoices", APP)
    assert "check signature failed" in await may_send(secured, "orders", LATE)
    wrong = Credentials("appuser", "app-secret-2")
    assert "check signature failed" in await may_send(secured, "orders", wrong)
    assert "without credentials" in await may_send(secured, "orders", None)
    app = Keys(secured, APP)
    answer = await app.ask(Code.UPDATE_AND_CREATE_TOPIC, {"topic": "mine"})
    assert answer.code == ResponseCode.NO_PERMISSION
    answer = await app.ask(Code.GET_BROKER_CONFIG)
    assert (answer.code, "is no super user" in str(answer.remark)) == (ResponseCode.NO_PERMISSION, True)
    await app.close()


@pytest.mark.behaviour("AU-32")
async def test_a_changed_file_counts_without_a_restart(secured: World) -> None:
    write(secured, LATE_ACL, "/mq/conf/acl/teams/late.yml")
    write(secured, "accounts: [", "/mq/conf/acl/.late.yml.swp")
    write(secured, "accessKey: rootuser", "/mq/conf/acl/tools.yml")
    await secured.sleep(3 * LOOK_S)
    late = Keys(secured, LATE)
    pull = {"topic": "orders", "queueId": "0"}
    await late.ok(Code.GET_MAX_OFFSET, pull)
    assert "access Topic:orders" in await may_send(secured, "orders", LATE)
    write(secured, LATE_ACL.replace("SUB", "PUB"), "/mq/conf/acl/teams/late.yml")
    await secured.sleep(3 * LOOK_S)
    assert (await late.ask(Code.GET_MAX_OFFSET, pull)).code == ResponseCode.NO_PERMISSION
    assert await may_send(secured, "orders", LATE) == ""
    secured.machines["broker-a"].runtime.files.remove("/mq/conf/acl/teams/late.yml")
    await secured.sleep(3 * LOOK_S)
    assert "check signature failed" in await may_send(secured, "orders", LATE)
    write(secured, ACL.replace("app-secret-1", "app-secret-2"))
    await secured.sleep(3 * LOOK_S)
    assert "check signature failed" in await may_send(secured, "orders", APP)
    assert await may_send(secured, "orders", Credentials("appuser", "app-secret-2")) == ""
    await late.close()


@pytest.mark.behaviour("AU-32")
async def test_a_pull_that_waits_ends_when_its_account_goes(secured: World) -> None:
    app = Keys(secured, APP)
    fields = {
        "consumerGroup": "billing", "topic": "orders", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000",
        "subVersion": "0", "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    began = secured.clock.monotonic()
    write(secured, ACL[: ACL.index("- accessKey: appuser")])
    answer = await app.ask(Code.PULL_MESSAGE, fields, timeout_ms=90_000)
    assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
    assert secured.clock.monotonic() - began < 3 * LOOK_S
    assert (await app.ask(Code.PULL_MESSAGE, fields)).code == ResponseCode.NO_PERMISSION
    await app.close()


@pytest.mark.behaviour("AU-33")
@pytest.mark.parametrize("text", ["accounts: [", "", ACL + "  topicperms: [a=PUB]\n"])
async def test_a_file_that_breaks_later_leaves_everything_as_it_is(
    secured: World, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(secured, text)
    await secured.sleep(10 * LOOK_S)
    assert await may_send(secured, "orders", APP) == ""
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert warned[0].startswith(f"{FILE}: ")
    assert warned[0].endswith("; the accounts of before stay")
    secured.machines["broker-a"].runtime.files.remove(FILE)
    await secured.sleep(10 * LOOK_S)
    assert await may_send(secured, "orders", APP) == ""
    assert "there is no such file" in caplog.records[-1].getMessage()
    write(secured, ACL.replace("orders=PUB|SUB", "invoices=PUB"))
    await secured.sleep(3 * LOOK_S)
    assert await may_send(secured, "invoices", APP) == ""


@pytest.mark.behaviour("AU-34")
async def test_white_addresses_let_nobody_in(secured: World, caplog: pytest.LogCaptureFixture) -> None:
    white = ACL.replace("admin: true", "admin: true\n  whiteRemoteAddress: 127.0.0.1")
    for count in range(3):
        write(secured, f"globalWhiteRemoteAddresses: ['*']\n{white}# {count}\n")
        await secured.sleep(3 * LOOK_S)
    assert "without credentials" in await may_send(secured, "orders", None)
    said = [one.getMessage() for one in caplog.records if "lets nobody in" in one.getMessage()]
    assert said == [
        f"{FILE}: globalWhiteRemoteAddresses lets nobody in without a signature",
        "account 'rootuser': whiteRemoteAddress lets nobody in without a signature",
    ]


@pytest.mark.behaviour("AU-32")
async def test_accounts_are_shown_as_users_and_rules(secured: World) -> None:
    async with admin(secured, ROOT) as client:
        users = (await client.access.users()).whole()
        assert [(one.user, one.is_super, one.is_enabled) for one in users] == [
            ("appuser", False, True),
            ("rootuser", True, True),
        ]
        rules = [(rule.user, rule.resource) for rule in (await client.access.rules("appuser")).whole()]
        assert ("appuser", "Topic:orders") in rules
    root = Keys(secured, ROOT)
    answer = await root.ask(Code.AUTH_CREATE_USER, {"username": "more"}, b"{}")
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "authenticationEnabled is not set" in str(answer.remark)
    await root.close()


@pytest.mark.behaviour("AU-33")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            None,
            f"aclEnable=true: {FILE}: there is no such file; write the accounts into it, or let rocketmqHome",
        ),
        ("", f"aclEnable=true: {FILE}: no account: nobody could send a request"),
        (f"{ACL}  topicPerms: []\n", f"aclEnable=true: {FILE}: line 12: topicPerms is there twice"),
    ],
)
async def test_a_file_that_cannot_be_used_is_a_start_error(
    runtime: SimulatedRuntime, text: str | None, error: str
) -> None:
    if text is not None:
        runtime.files.make_dirs("/mq/conf")
        runtime.files.write_atomic(FILE, text.encode())
    broker = Broker(runtime, broker_config(acl_enable=True, rocketmq_home="/mq"))
    with pytest.raises(StartError) as caught:
        await broker.start()
    assert str(caught.value).startswith(error)


@pytest.mark.behaviour("AU-33")
async def test_a_folder_that_cannot_be_read_is_a_start_error(runtime: SimulatedRuntime) -> None:
    files = runtime.files
    files.make_dirs("/mq/conf/acl")
    files.write_atomic(FILE, ACL.encode())
    for number in range(101):
        files.write_atomic(f"/mq/conf/acl/{number}.yml", b"")
    with pytest.raises(StartError, match="/mq/conf/acl: it has more than 100 files and folders, the limit"):
        await Broker(runtime, broker_config(acl_enable=True, rocketmq_home="/mq")).start()


@pytest.mark.behaviour("AU-32")
async def test_without_rocketmq_home_the_files_lie_beside_the_configuration(
    runtime: SimulatedRuntime,
) -> None:
    runtime.files.make_dirs("/etc/mq")
    runtime.files.write_atomic("/etc/mq/plain_acl.yml", ACL.encode())
    inner = Credentials("inneruser", "inner-secret-1")
    config = broker_config(
        acl_enable=True, broker_config_path="/etc/mq/broker.conf", inner_client_credentials=inner
    )
    async with Broker(runtime, config) as broker:
        users = broker.part(PlainAclFiles).users
        assert [(user.name, user.is_super) for user in users.all()] == [
            ("appuser", False),
            ("inneruser", True),
            ("rootuser", True),
        ]


@pytest.mark.behaviour("AU-42")
async def test_accounts_become_users_and_rules_that_stay(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.files.make_dirs("/mq/conf")
    runtime.files.write_atomic(
        FILE, ACL.replace("SUB\n", "SUB\n  whiteRemoteAddress: 10.0.0.1\n", 1).encode()
    )
    auth = {"authentication_enabled": True, "authorization_enabled": True, "rocketmq_home": "/mq"}
    async with Broker(runtime, broker_config(**auth, migrate_auth_from_v1=True)) as broker:
        tables = broker.part(BrokerAccess)
        assert [(user.name, user.is_super) for user in tables.users.all()] == [
            ("appuser", False),
            ("rootuser", True),
        ]
        asked = Asked(ResourceKind.TOPIC, "orders", (Action.PUB,))
        assert tables.rules.of("appuser").verdict(asked, None) == ALLOWED
        tables.rules.remove("appuser")
        tables.users.remove("rootuser")
        tables.users.put(User("other", Secret("other-secret"), UserType.SUPER))
        assert "whiteRemoteAddress lets nobody in" in caplog.text
    # A user who exists stays unchanged; a missing one is created.
    async with Broker(runtime, broker_config(**auth, migrate_auth_from_v1=True)) as broker:
        tables = broker.part(BrokerAccess)
        assert [user.name for user in tables.users.all()] == ["appuser", "other", "rootuser"]
        assert tables.rules.get("appuser") is None
    runtime.files.remove(FILE)
    async with Broker(runtime, broker_config(**auth)) as broker:
        assert broker.part(BrokerAccess).users.get("rootuser") is not None
    with pytest.raises(StartError, match=f"migrateAuthFromV1Enabled=true: {FILE}: there is no such file"):
        await Broker(runtime, broker_config(**auth, migrate_auth_from_v1=True)).start()


# -- the requests of RocketMQ's mqadmin 4.x ---------------------------------------------------------------

NEW = {"accessKey": "newuser1", "secretKey": "new-secret-1", "admin": "false"}
NEW_USER = Credentials("newuser1", "new-secret-1")
COUNTER = "counter"


async def accounts(keys: Keys) -> dict[str, Any]:
    body = PlainAccounts.decode(await keys.ok(Code.GET_BROKER_CLUSTER_ACL_CONFIG))
    return {str(one.access_key): one for one in body.plain_access_configs}


async def versions(keys: Keys) -> dict[str, int]:
    answer = await keys.ask(Code.GET_BROKER_CLUSTER_ACL_INFO)
    header = GetBrokerAclConfigResponse.from_ext(answer.ext)
    assert (header.cluster_name, header.broker_name) == ("DefaultCluster", "broker-a")
    found = json.loads(str(header.all_acl_file_version))
    assert json.loads(header.version) == found[FILE]
    return {path: version[COUNTER] for path, version in found.items()}


def text_of(world: World, path: str = FILE) -> str:
    return world.machines["broker-a"].runtime.files.read_bytes(path).decode()


@pytest.mark.behaviour("AU-41")
async def test_an_account_is_made_changed_and_deleted_in_its_file(secured: World) -> None:
    root = Keys(secured, ROOT)
    assert await versions(root) == {FILE: 0}
    rights = {"defaultTopicPerm": "DENY", "topicPerms": "orders=PUB", "groupPerms": "g=SUB,h=DENY"}
    await root.ok(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, **rights, "whiteRemoteAddress": "10.0.0.*"})
    assert await may_send(secured, "orders", NEW_USER) == ""
    assert "access Topic:invoices" in await may_send(secured, "invoices", NEW_USER)
    assert await versions(root) == {FILE: 1}
    made = (await accounts(root))["newuser1"]
    assert made == PlainAccount(
        "newuser1", "10.0.0.*", False, "DENY", None, ["orders=PUB"], ["g=SUB", "h=DENY"]
    )
    # Fields that the request leaves out keep their values, except admin.
    await root.ok(
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        {"accessKey": "newuser1", "secretKey": "new-secret-2", "topicPerms": "invoices=PUB"},
    )
    assert "check signature failed" in await may_send(secured, "orders", NEW_USER)
    changed = Credentials("newuser1", "new-secret-2")
    assert "access Topic:orders" in await may_send(secured, "orders", changed)
    assert await may_send(secured, "invoices", changed) == ""
    assert (await accounts(root))["newuser1"].default_topic_perm == "DENY"
    # The file for the next start says the same, and later checks of the file see no change.
    assert list(await accounts(root)) == ["rootuser", "appuser", "newuser1"]
    await secured.sleep(3 * LOOK_S)
    assert await may_send(secured, "invoices", changed) == ""
    await root.ok(Code.DELETE_ACL_CONFIG, {"accessKey": "newuser1"})
    assert "check signature failed" in await may_send(secured, "invoices", changed)
    assert await versions(root) == {FILE: 3}
    assert "newuser1" not in text_of(secured)
    await root.close()


@pytest.mark.behaviour("AU-41")
async def test_an_account_is_changed_in_the_file_where_it_is(secured: World) -> None:
    other = "/mq/conf/acl/late.yml"
    write(secured, LATE_ACL, other)
    await secured.sleep(3 * LOOK_S)
    root = Keys(secured, ROOT)
    before = text_of(secured)
    await root.ok(
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        {"accessKey": "lateuser", "secretKey": "late-secret-1", "topicPerms": "orders=PUB"},
    )
    assert await may_send(secured, "orders", LATE) == ""
    assert (text_of(secured), await versions(root)) == (before, {other: 1, FILE: 0})
    await root.ok(
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.0.0.*,10.0.1.*", "aclFileFullPath": other},
    )
    await root.ok(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.2.*"})
    body = PlainAccounts.decode(await root.ok(Code.GET_BROKER_CLUSTER_ACL_CONFIG))
    assert body.global_white_addrs == ["10.0.0.*", "10.0.1.*", "10.0.2.*"]
    await root.close()


@pytest.mark.behaviour("AU-41")
@pytest.mark.parametrize(
    ("code", "fields", "answer", "remark"),
    [
        (
            50,
            {**NEW, "secretKey": "short"},
            209,
            "The accessKey=newuser1 and secretKey=*** cannot be null and len",
        ),
        (
            50,
            {"accessKey": "newuser1"},
            209,
            "The accessKey=newuser1 and secretKey=null cannot be null and length",
        ),
        (50, {**NEW, "topicPerms": "orders"}, 209, "Parse Resource format error for orders."),
        (50, {**NEW, "groupPerms": "g=ANY"}, 209, "Parse resource permission error for g=ANY."),
        (50, {**NEW, "topicPerms": "orders*=PUB"}, 209, "expected a whole name: ACL 1.0 has no patterns"),
        (50, {**NEW, "defaultTopicPerm": "pub"}, 209, "defaultTopicPerm is 'pub'; expected one of PUB, SUB"),
        (50, {**NEW, "accessKey": "new user "}, 209, "accessKey"),
        (50, {"secretKey": "new-secret-1"}, 1, "accessKey"),
        (
            51,
            {"accessKey": "nobodyatall"},
            210,
            "The accesskey[nobodyatall] corresponding to accessConfig has been",
        ),
        (
            53,
            {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd.yml"},
            211,
            "The globalWhiteAddresses[*] has",
        ),
        (
            53,
            {"globalWhiteAddrs": "*", "aclFileFullPath": f"{FILE}/../../x.yml"},
            211,
            "The globalWhiteAddresses",
        ),
        (53, {}, 1, "globalWhiteAddrs"),
    ],
)
async def test_a_change_that_cannot_be_is_answered_and_changes_nothing(
    secured: World, code: int, fields: dict[str, str], answer: int, remark: str
) -> None:
    root = Keys(secured, ROOT)
    before = text_of(secured)
    found = await root.ask(code, fields)
    assert (found.code, remark in str(found.remark)) == (answer, True), found.remark
    assert "new-secret" not in str(found.remark)
    assert text_of(secured) == before
    assert await may_send(secured, "orders", APP) == ""
    await root.close()


@pytest.mark.behaviour("AU-41")
async def test_the_last_account_stays_and_a_full_disk_is_said(secured: World) -> None:
    root = Keys(secured, ROOT)
    await root.ok(Code.DELETE_ACL_CONFIG, {"accessKey": "appuser"})
    answer = await root.ask(Code.DELETE_ACL_CONFIG, {"accessKey": "rootuser"})
    assert (answer.code, "no account" in str(answer.remark)) == (ResponseCode.DELETE_ACL_CONFIG_FAILED, True)
    files = secured.machines["broker-a"].runtime.files
    files.fail("write_atomic", "plain_acl.yml")
    answer = await root.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, NEW)
    assert (answer.code, str(answer.remark).startswith("the file cannot be written: ")) == (209, True)
    assert "check signature failed" in await may_send(secured, "orders", NEW_USER)
    await root.close()


@pytest.mark.behaviour("AU-41")
async def test_accounts_are_for_super_users_also_while_nobody_else_is_refused(secured: World) -> None:
    app, nobody = Keys(secured, APP), Keys(secured, None)
    async with admin(secured, ROOT) as client:
        [broker] = await client.brokers.list()
        await client.brokers.change_settings(broker.address, {"authMode": "observe"})
    assert await may_send(secured, "invoices", None) == ""
    for code in ACCOUNTS:
        for keys in (app, nobody):
            assert (await keys.ask(code, NEW)).code == ResponseCode.NO_PERMISSION
    router = secured.brokers["broker-a"].doors.router
    assert router is not None
    assert router.codes >= ACCOUNTS
    assert not set(REQUESTS) & ACCOUNTS
    await app.close()
    await nobody.close()


@pytest.mark.behaviour("AU-41")
async def test_a_broker_without_accounts_says_so(broker: Broker) -> None:
    async with BrokerPeer(broker.runtime) as peer:
        answer = await peer.ask(Command(Code.UPDATE_AND_CREATE_ACL_CONFIG, dict(NEW)))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 50 not supported: aclEnable is not set at this broker"


@pytest.mark.behaviour("AU-41")
async def test_changes_are_in_the_audit_log_without_secrets(secured: World) -> None:
    root = Keys(secured, ROOT)
    await root.ok(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "topicPerms": "orders=PUB"})
    await root.ok(Code.DELETE_ACL_CONFIG, {"accessKey": "newuser1"})
    await root.close()
    store = secured.brokers["broker-a"].config.store_path_root_dir
    log = text_of(secured, f"{store}/audit.log")
    lines = [json.loads(line) for line in log.splitlines()]
    made = [line for line in lines if line.get("request") == "UPDATE_AND_CREATE_ACL_CONFIG"]
    assert [line["verdict"] for line in made] == ["permitted", "made"]
    assert made[0]["before"] == {"User:newuser1": None, "rules of User:newuser1": None}
    assert made[1]["after"]["User:newuser1"]["userType"] == "Normal"
    assert [line["verdict"] for line in lines if line.get("code") == 51] == ["permitted", "made"]
    assert "secret" not in log
