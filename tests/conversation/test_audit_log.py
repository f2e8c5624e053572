"""The audit log of brokers and name servers: changes, refusals, and a disk that refuses its lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq import Credentials
from orbitmq.auth.changes import CHANGES
from orbitmq.auth.needs import ABOUT_USERS
from orbitmq.auth.protected import DANGEROUS
from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.audit import MAX_REFUSALS, MAX_WAITING, AuditRefusal
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

ROOT = Credentials("root", "root-secret-1")
APP = Credentials("app", "app-secret-1")
WRONG = Credentials("app", "app-secret-2")
ADDRESS = "127.0.0.1:10911"
KEYS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": ROOT,
}
SECRETS = ("root-secret-1", "app-secret", "Signature", "top-secret-body")
BROKER = "/store/audit.log"


async def ask(
    runtime: SimulatedRuntime,
    keys: Credentials | None,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    address: str = ADDRESS,
) -> Command:
    client = RemotingClient(runtime, identity=Identity(keys))
    try:
        return await client.request(address, Command(code, dict(fields or {}), body), 5000)
    finally:
        await client.close()


def topic(name: str, queues: int = 4) -> dict[str, str]:
    fields = {"topic": name, "defaultTopic": "x", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    return fields | {"topicSysFlag": "0", "order": "false"}


def lines(runtime: SimulatedRuntime, path: str = BROKER) -> list[dict[str, Any]]:
    """The lines of the audit log without that of the start."""
    text = runtime.files.read_bytes(path).decode()
    assert not [secret for secret in SECRETS if secret in text]
    return [found for line in text.splitlines() if (found := json.loads(line))["event"] != "start"]


@pytest.mark.behaviour("AZ-19", "AZ-22")
@pytest.mark.broker(**KEYS)
async def test_a_change_is_written_before_and_after(broker: Broker) -> None:
    runtime = broker.runtime
    make = UserInfo(password="app-secret-1").encode()
    assert (await ask(runtime, ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, make)).code == 0
    for queues in (4, 8):
        assert (await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic("orders", queues))).code == 0
    assert (await ask(runtime, ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
    found = lines(runtime)
    # Apart from ids and times, each change has two lines.
    assert [line["verdict"] for line in found] == ["permitted", "made"] * 4
    assert [line["id"] for line in found] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {line["user"] for line in found} == {"root"}
    assert all(line["from"].startswith("127.0.0.1:") and line["time"].endswith("Z") for line in found)
    assert found[0]["code"] == 3001
    assert found[0]["request"] == "AUTH_CREATE_USER"
    assert (found[0]["target"], found[0]["before"]) == (["User:app"], {"User:app": None})
    assert found[1]["after"] == {
        "User:app": {"username": "app", "userType": "Normal", "userStatus": "enable"}
    }
    queues_of = [
        [(line[key]["Topic:orders"] or {}).get("readQueueNums") for key in ("before", "after") if key in line]
        for line in found[2:]
    ]
    assert queues_of == [[None], [4], [4], [8], [8], [None]]


@pytest.mark.behaviour("AZ-19")
@pytest.mark.broker(**KEYS)
async def test_what_a_line_says_of_settings_rules_groups_and_offsets(broker: Broker) -> None:
    runtime = broker.runtime
    make = UserInfo(password="app-secret-1").encode()
    await ask(runtime, ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, make)
    entry = PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")
    body = AclInfo(None, [PolicyInfo(None, [entry])]).encode()
    await ask(runtime, ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:app"}, body)
    await ask(runtime, ROOT, Code.UPDATE_BROKER_CONFIG, {}, b"slowRequestMillis=77")
    reset = {"topic": "orders", "group": "billing", "timestamp": "-1", "isForce": "true"}
    await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))
    group = SubscriptionGroupConfig(group_name="billing").encode()
    await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    answer = await ask(runtime, ROOT, Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert answer.remark is None
    await ask(runtime, ROOT, Code.CLEAN_UNUSED_TOPIC)
    found = {line["code"]: line for line in lines(runtime) if line["verdict"] == "made"}
    rules = found[3006]["after"]["rules of User:app"]["policies"]
    assert rules[0]["entries"][0]["resource"] == "Topic:orders"
    before = next(line for line in lines(runtime) if line["code"] == 25)
    assert before["before"] == {"slowRequestMillis": "0"}
    assert found[25]["after"] == {"slowRequestMillis": "77"}
    assert found[200]["after"]["Group:billing"]["retryMaxTimes"] == 16
    assert list(found[222]["after"]) == ["Group:billing in Topic:orders"]
    # This change is not looked up before and after: its line has only the objects that the request names.
    assert not {"before", "after"} & found[316].keys()


@pytest.mark.behaviour("AZ-19")
@pytest.mark.broker(**KEYS)
async def test_a_change_that_fails_says_why(broker: Broker) -> None:
    runtime = broker.runtime
    assert (await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic("a/../../b"))).code != 0
    assert (await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, {"topic": "t"})).code != 0
    assert (await ask(runtime, ROOT, Code.AUTH_CREATE_ACL, {}, b"no json")).code != 0
    found = lines(runtime)
    assert [line["verdict"] for line in found] == ["permitted", "failed"] * 3
    assert all(line["answer"] != 0 and line["why"] for line in found[1::2])


@pytest.mark.behaviour("AZ-20")
@pytest.mark.broker(**KEYS)
async def test_a_change_that_cannot_be_written_is_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = broker.runtime
    runtime.files.fail("append", "audit.log", times=-1)
    answer = await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))
    assert answer.code == 1
    assert "the change is refused, as the audit log cannot be written" in str(answer.remark)
    assert broker.services.topics.get("orders") is None
    assert "the audit log /store/audit.log cannot be written, changes are refused" in caplog.text
    # Requests that change nothing are served.
    assert (await ask(runtime, ROOT, Code.GET_BROKER_RUNTIME_INFO)).code == 0
    runtime.files.heal()
    assert (await ask(runtime, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))).code == 0
    # Only the second line is lost: the change is already made.
    runtime.files.fail("append", "audit.log", skip=1)
    assert (await ask(runtime, ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
    assert [line["verdict"] for line in lines(runtime)] == ["permitted", "made", "permitted"]


@pytest.mark.behaviour("AZ-20")
async def test_changes_that_wait_for_the_disk_have_a_limit(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with Broker(runtime, broker_config(audit_log_file="/store/audit.log")) as broker:
        audit = broker.doors.guard.audit
        assert audit is not None
        monkeypatch.setattr(audit, "_append", lambda _entries: never)
        command = Command(Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))
        waiting = [
            asyncio.ensure_future(audit.change(command, None, "h:1", command.reply))
            for _ in range(MAX_WAITING)
        ]
        await asyncio.sleep(0)
        answer = await ask(runtime, None, Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))
        assert answer.remark == "100 changes wait for the audit log, the limit"
        for task in waiting:
            task.cancel()


@pytest.mark.behaviour("AZ-21")
async def test_a_disk_that_hangs_keeps_no_server_from_its_end(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    config = NameServerConfig(**KEYS, auth_config_path="/ns/config", listen_port=9876)
    async with NameServer(runtime, config) as server:
        audit = server._guard.audit
        assert audit is not None

        async def hangs(_entries: object) -> None:
            await asyncio.shield(never)

        monkeypatch.setattr(audit, "_append", hangs)
        for minute in range(20):
            for number in range(MAX_REFUSALS):
                audit.refused(AuditRefusal("", "10.0.0.1", 1000 * minute + number, "no"))
            await runtime.clock.sleep(61)
        assert len(audit._background) <= MAX_WAITING + 1
        began = runtime.clock.monotonic()
    assert runtime.clock.monotonic() - began < 5


@pytest.mark.behaviour("AZ-20")
async def test_a_server_that_cannot_write_it_does_not_start(runtime: SimulatedRuntime) -> None:
    runtime.files.fail("append", "audit.log", times=-1)
    with pytest.raises(StartError, match=r"cannot write auditLogFile=/store/audit.log"):
        await Broker(runtime, broker_config(**KEYS)).start()
    config = NameServerConfig(**KEYS, auth_config_path="/ns/config", listen_port=9876)
    with pytest.raises(StartError, match=r"cannot write auditLogFile=/ns/config/audit.log"):
        await NameServer(runtime, config).start()


@pytest.mark.behaviour("AZ-21")
@pytest.mark.broker(**KEYS)
async def test_a_flood_of_refusals_is_a_few_lines(broker: Broker) -> None:
    runtime = broker.runtime
    for _ in range(5):
        await ask(runtime, None, Code.GET_BROKER_CONFIG)
    make = UserInfo(password="app-secret-1").encode()
    assert (await ask(runtime, ROOT, Code.AUTH_CREATE_USER, {"username": "app"}, make)).code == 0
    for number in range(100):
        await ask(runtime, APP, Code.UPDATE_AND_CREATE_TOPIC, topic(f"orders-{number}"))
    await runtime.clock.sleep(1)
    at_once = [line for line in lines(runtime) if line["event"] == "refusal"]
    assert len(at_once) == MAX_REFUSALS
    assert at_once[0] | {"time": ""} == {
        "time": "",
        "event": "refusal",
        "claimed": "",
        "from": "127.0.0.1",
        "code": 26,
        "request": "GET_BROKER_CONFIG",
        "why": "username cannot be null.",
        "count": 1,
        "verdict": "refused",
    }
    await runtime.clock.sleep(61)
    more = lines(runtime)[2 + MAX_REFUSALS :]
    assert [(line["event"], line["count"]) for line in more] == [("refusal", 4), ("other refusals", 81)]
    # The next minute counts from zero.
    await ask(runtime, WRONG, Code.GET_BROKER_CONFIG)
    assert lines(runtime)[-1]["claimed"] == "app"


@pytest.mark.behaviour("AZ-21")
async def test_what_is_counted_is_written_at_the_end(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config(**KEYS)):
        for _ in range(3):
            await ask(runtime, None, Code.GET_BROKER_CONFIG)
    # The count of refusals is complete after a power loss, too.
    runtime.files.crash()
    assert [line["count"] for line in lines(runtime)] == [1, 2]


@pytest.mark.behaviour("AZ-22")
async def test_the_file_is_rotated_by_size_and_follows_logrotate(runtime: SimulatedRuntime) -> None:
    config = broker_config(audit_log_file="/logs/audit.log", audit_log_max_bytes=2000, audit_log_backups=2)
    async with Broker(runtime, config):
        for number in range(20):
            await ask(runtime, None, Code.UPDATE_AND_CREATE_TOPIC, topic(f"orders-{number}"))
        assert runtime.files.list_dir("/logs") == ["audit.log", "audit.log.1", "audit.log.2"]
        assert all(
            runtime.files.size_bytes(f"/logs/{name}") <= 2000 for name in runtime.files.list_dir("/logs")
        )
        kept = [line for end in (".2", ".1", "") for line in lines(runtime, f"/logs/audit.log{end}")]
        assert [line["id"] for line in kept] == sorted(line["id"] for line in kept)
        assert kept[-1]["target"] == ["Topic:orders-19"]
        runtime.files.rename("/logs/audit.log", "/logs/taken-away")
        await ask(runtime, None, Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders-19"})
        assert [line["verdict"] for line in lines(runtime, "/logs/audit.log")] == ["permitted", "made"]


@pytest.mark.behaviour("AZ-19")
async def test_without_keys_there_is_one_only_where_the_settings_say_so(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()):
        await ask(runtime, None, Code.UPDATE_AND_CREATE_TOPIC, topic("orders"))
    assert not runtime.files.exists(BROKER)
    async with Broker(runtime, broker_config(audit_log_file="/logs/audit.log")):
        # The request has no signature, so the user whom it names is not proved.
        await ask(runtime, APP, Code.UPDATE_AND_CREATE_TOPIC, topic("orders", 8))
    assert [line["user"] for line in lines(runtime, "/logs/audit.log")] == ["", ""]


@pytest.mark.behaviour("AZ-19", "AZ-20", "AZ-21")
async def test_a_name_server_has_one_too(runtime: SimulatedRuntime) -> None:
    config = NameServerConfig(**KEYS, auth_config_path="/ns/config", listen_port=9876)
    path, address = "/ns/config/audit.log", "127.0.0.1:9876"
    async with NameServer(runtime, config):
        entry = {"namespace": "n", "key": "k", "value": "v"}
        assert (await ask(runtime, ROOT, Code.PUT_KV_CONFIG, entry, address=address)).code == 0
        change = b"orderMessageEnable=true"
        assert (await ask(runtime, ROOT, Code.UPDATE_NAMESRV_CONFIG, {}, change, address)).code == 0
        assert (await ask(runtime, WRONG, Code.PUT_KV_CONFIG, entry, address=address)).code == 16
        runtime.files.fail("append", "audit.log")
        assert (await ask(runtime, ROOT, Code.DELETE_KV_CONFIG, entry, address=address)).code == 1
        assert (await ask(runtime, ROOT, Code.GET_KV_CONFIG, entry, address=address)).code == 0
    found = lines(runtime, path)
    assert [line["verdict"] for line in found] == ["permitted", "made", "permitted", "made", "refused"]
    assert (found[0]["before"], found[1]["after"]) == ({"key k of n": None}, {"key k of n": "v"})
    assert (found[2]["before"], found[3]["after"]) == (
        {"orderMessageEnable": "false"},
        {"orderMessageEnable": "true"},
    )
    assert (found[4]["claimed"], found[4]["code"]) == ("app", 100)


@pytest.mark.behaviour("AZ-19")
@pytest.mark.broker(**KEYS)
async def test_each_request_code_is_a_change_or_is_none_on_purpose(broker: Broker) -> None:
    """A new request code has to be put into one of the two sets."""
    router = broker.doors.router
    assert router is not None
    others = {Code(code).name for code in router.codes - CHANGES}
    changing = {
        name for name in others if not name.startswith(("GET_", "QUERY_", "LIST_", "VIEW_", "AUTH_GET_"))
    }
    # The other codes are those of clients' and brokers' own traffic, and queries.
    assert changing == {
        "ACK_MESSAGE",
        "AUTH_LIST_ACL",
        "AUTH_LIST_USER",
        "BATCH_ACK_MESSAGE",
        "BIND_WRITER",
        "CHANGE_MESSAGE_INVISIBLETIME",
        "CHECK_CLIENT_CONFIG",
        "CONSUMER_SEND_MSG_BACK",
        "END_TRANSACTION",
        "HEART_BEAT",
        "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
        "LITE_PULL_MESSAGE",
        "LOCK_BATCH_MQ",
        "NOTIFICATION",
        "PEEK_MESSAGE",
        "POLLING_INFO",
        "POP_MESSAGE",
        "PULL_MESSAGE",
        "RECALL_MESSAGE",
        "SEARCH_OFFSET_BY_TIMESTAMP",
        "SEND_BATCH_MESSAGE",
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_REPLY_MESSAGE",
        "SEND_REPLY_MESSAGE_V2",
        "UNLOCK_BATCH_MQ",
        "UNREGISTER_CLIENT",
        "UPDATE_CONSUMER_OFFSET",
    }
    questions = {code for code in ABOUT_USERS if {"GET", "LIST"} & set(Code(code).name.split("_"))}
    assert DANGEROUS - questions <= CHANGES
