"""A broker that asks for keys: our own clients with right and wrong ones, users and rules over the wire."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.scripted import running as consuming

from orbitmq import (
    Credentials,
    Message,
    NotPermittedError,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.admin.definitions import as_json, from_json
from orbitmq.auth.requests import REQUESTS
from orbitmq.auth.rules import Acl
from orbitmq.auth.users import User
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
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
from orbitmq.wire.signing import Secret, Signer, SigningKey

ROOT = Credentials("root", "root-secret-1")
APP = Credentials("app", "app-secret-1")
WRONG = Credentials("app", "app-secret-2")
NOBODY = Credentials("nobody", "app-secret-1")
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret-1"}),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
}
APPS = [
    ("Topic:orders", "Pub,Sub,Get"),
    ("Group:billing", "Sub"),
    ("Group:TOOLS_CONSUMER", "Sub"),
    ("Topic:RMQ_SYS_TRACE_TOPIC", "Pub"),
]


class Keys:
    """Speaks with one broker as one user."""

    def __init__(self, world: World, credentials: Credentials | None) -> None:
        self._client = RemotingClient(world.runtime, identity=Identity(credentials))
        self._address = next(iter(world.brokers.values())).address

    async def ask(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int = 5000,
    ) -> Command:
        return await self._client.request(self._address, Command(code, dict(fields or {}), body), timeout_ms)

    async def ok(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
        answer = await self.ask(code, fields, body)
        assert (answer.code, answer.remark) == (0, None)
        return answer.body

    async def make_user(self, name: str, **values: Any) -> None:
        await self.ok(Code.AUTH_CREATE_USER, {"username": name}, UserInfo(**values).encode())

    async def allow(self, name: str, *rules: tuple[str, str], decision: str = "Allow") -> None:
        entries = [
            PolicyEntryInfo(resource, actions.split(","), None, decision) for resource, actions in rules
        ]
        body = AclInfo(None, [PolicyInfo(None, entries)]).encode()
        await self.ok(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)

    async def close(self) -> None:
        await self._client.close()


def settings(**changes: str) -> dict[str, str]:
    return {**ON, **changes}


@pytest.fixture
def secured(request: pytest.FixtureRequest, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    """One broker that asks for keys, with the topic "orders" and the user "app"."""
    world = World(orbitmq_runtime, settings=settings(**getattr(request, "param", {})))
    orbitmq_loop.enter(world)
    orbitmq_loop.run(prepare(world))
    return world


async def prepare(world: World) -> None:
    async with admin(world, ROOT) as client:
        await client.topics.create("orders", queues=2)
    root = Keys(world, ROOT)
    await root.make_user("app", password="app-secret-1")
    await root.allow("app", *APPS)
    await root.close()


def admin(world: World, credentials: Credentials) -> Admin:
    return Admin(world.name_server, runtime=world.runtime, credentials=credentials)


# -- clients ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("AU-13", "AZ-01")
async def test_every_kind_of_client_works_with_its_rights(secured: World) -> None:
    seen: list[bytes] = []
    asked: list[str] = []

    async def failing_once(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.reconsume_times == 0 and message.body == b"again":
            raise ValueError("once")

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    async with secured.producer(credentials=APP, trace=True) as producer:
        await producer.send(Message("orders", b"again"))
        await producer.send_batch([Message("orders", b"b1"), Message("orders", b"b2")])
        await producer.send_oneway(Message("orders", b"one-way"))
        async with consuming(
            secured.consumer("billing", credentials=APP, trace=True), failing_once, "orders"
        ):
            await secured.until(lambda: len(seen) >= 5, 200)
    async with TransactionProducer(
        "tx", check=check, name_servers=secured.name_server, runtime=secured.runtime, credentials=APP
    ) as transactions:
        async with transactions.transaction(Message("orders", b"tx")):
            pass
        async with transactions.transaction(Message("orders", b"open")) as transaction:
            transaction.leave_open()
        await secured.until(lambda: asked == ["orders"], 100)
        await secured.sleep(1)
    async with secured.pull_consumer("billing", credentials=APP) as pulling:
        pulling.subscribe("orders")
        assert await pulling.poll(timeout=30)
        await pulling.commit()
    async with secured.simple_consumer("billing", credentials=APP) as simple:
        simple.subscribe("orders")
        found = await simple.receive(wait=10)
        for message in found:
            await simple.ack(message)
    async with secured.reader("orders", credentials=APP) as reader:
        assert len([message async for message in reader]) == 6
    assert sorted(seen[:5]) == [b"again", b"again", b"b1", b"b2", b"one-way"]


@pytest.mark.behaviour("AU-13", "AU-15")
@pytest.mark.parametrize("credentials", [WRONG, NOBODY, None], ids=["wrong secret", "unknown", "none"])
async def test_others_are_refused_and_nothing_is_stored(
    secured: World, credentials: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = secured.brokers["broker-a"].services.store
    before = store.end
    text = "a client without credentials" if credentials is None else "or its secret key is wrong: check sig"
    async with secured.producer(credentials=credentials) as producer:
        with pytest.raises(NotPermittedError, match=text):
            await producer.send(Message("orders", b"x"))
        await producer.send_oneway(Message("orders", b"x"))
        await secured.sleep(1)
    async with secured.simple_consumer("billing", credentials=credentials) as simple:
        simple.subscribe("orders")
        with pytest.raises(NotPermittedError, match="POP_MESSAGE, topic orders, group billing"):
            await simple.receive(wait=1)
    assert store.end == before
    refused = [one.getMessage() for one in caplog.records if "is refused" in one.getMessage()]
    assert refused
    assert "app-secret" not in caplog.text


@pytest.mark.behaviour("AZ-01")
async def test_missing_rights_are_named(secured: World) -> None:
    async with admin(secured, ROOT) as client:
        await client.topics.create("invoices", queues=2)
    async with secured.producer(credentials=APP) as producer:
        with pytest.raises(
            NotPermittedError,
            match=r"topic invoices, group test_producer to 'app': User:app has no permission to access "
            r"Topic:invoices from 127.0.0.1, no matched policies.",
        ):
            await producer.send(Message("invoices", b"x"))
        await producer.send(Message("orders", b"x"))
    async with secured.simple_consumer("shipping", credentials=APP) as simple:
        simple.subscribe("orders")
        with pytest.raises(NotPermittedError, match=r"Group:shipping from 127\.0\.0\.1"):
            await simple.receive(wait=1)


@pytest.mark.behaviour("AU-13")
async def test_no_frame_passes_by_way_of_the_fast_path(secured: World) -> None:
    """The same plain sends and pulls that it takes from anybody, when nobody is asked for keys."""
    peer = BrokerPeer(secured.runtime, secured.brokers["broker-a"].address)
    async with peer:
        for _ in range(3):
            answer = await peer.send(b"x", topic="orders")
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
            answer = await peer.pull(topic="orders")
            assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.behaviour("AZ-06")
async def test_a_change_counts_from_the_next_request_on(secured: World) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    look = {"topic": "orders", "queueId": "0"}
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.allow("app", ("Topic:orders", "Pub"))
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).code == ResponseCode.NO_PERMISSION
    await root.allow("app", ("Topic:*", "Get"))
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_DELETE_ACL, {"subject": "User:app", "policyType": "", "resource": "Topic:*"})
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).code == ResponseCode.NO_PERMISSION
    await root.allow("app", ("*", "All"))
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="disable").encode())
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "User:app is disabled."
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="enable").encode())
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(password="app-secret-2").encode())
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "check signature failed."
    await root.ok(Code.AUTH_DELETE_USER, {"username": "app"})
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "check signature failed."
    await root.make_user("app", password="app-secret-1")
    refusal = (await app.ask(Code.GET_MAX_OFFSET, look)).remark
    assert "no matched policies" in str(refusal), "his rules are gone with him"
    await root.close()
    await app.close()


@pytest.mark.behaviour("AU-13", "AZ-06")
async def test_each_request_of_a_connection_has_a_user_of_its_own(secured: World) -> None:
    """A signed request opens nothing for those behind it, and who lost his rights keeps none by staying."""
    root = Keys(secured, ROOT)
    await root.make_user("other", password="other-secret-1")
    client = RemotingClient(secured.runtime)
    address = secured.brokers["broker-a"].address

    async def remark(credentials: Credentials | None, sent_as: str = "") -> str | None:
        command = Command(Code.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        if credentials is not None:
            Signer(credentials).sign(command, credentials)
        if sent_as:
            command.ext["AccessKey"] = sent_as
        return (await client.request(address, command, 5000)).remark

    other = Credentials("other", "other-secret-1")
    for _ in range(2):
        assert await remark(APP) is None
        assert await remark(ROOT) is None
        assert await remark(None) == "username cannot be null."
        assert "User:other has no permission" in str(await remark(other))
        assert await remark(APP, sent_as="root") == "check signature failed."
        assert await remark(WRONG) == "check signature failed."
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="disable").encode())
    assert await remark(APP) == "User:app is disabled."
    assert await remark(ROOT) is None
    await client.close()
    await root.close()


@pytest.mark.behaviour("AZ-04")
async def test_a_message_is_not_read_by_way_of_ones_own_topic_or_group(secured: World) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    async with admin(secured, ROOT) as client:
        await client.topics.create("invoices", queues=1)
    async with secured.producer(credentials=ROOT) as producer:
        offsets = []
        for topic in ("orders", "invoices"):
            offsets.append(str(secured.brokers["broker-a"].services.store.end))
            await producer.send(Message(topic, b"of " + topic.encode()))
    mine, theirs = offsets
    await app.ok(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders", "offset": mine})
    for fields in ({"topic": "orders", "offset": theirs}, {"offset": theirs}):
        answer = await app.ask(Code.VIEW_MESSAGE_BY_ID, fields)
        assert answer.remark == (
            "User:app has no permission to access Topic:invoices from 127.0.0.1, no matched policies."
        )
    back = {"group": "billing", "offset": theirs, "delayLevel": "1", "originTopic": "orders"}
    assert "Topic:invoices" in str((await app.ask(Code.CONSUMER_SEND_MSG_BACK, back)).remark)
    await root.ok(Code.VIEW_MESSAGE_BY_ID, {"offset": theirs})
    await root.close()
    await app.close()


# -- users and rules over the wire -----------------------------------------------------------------------


@pytest.mark.behaviour("AU-17", "AU-18", "AZ-05")
async def test_users_and_rules_over_the_wire(secured: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    root = Keys(secured, ROOT)
    listed = await root.ok(Code.AUTH_LIST_USER, {"filter": ""})
    assert json.loads(listed) == [
        {"userStatus": "enable", "userType": "Normal", "username": "app"},
        {"userStatus": "enable", "userType": "Super", "username": "root"},
    ]
    assert UserInfo.decode_list(await root.ok(Code.AUTH_LIST_USER, {"filter": "oo"}))[0].username == "root"
    assert await root.ok(Code.AUTH_LIST_USER, {"filter": "x"}) == b""
    one = await root.ok(Code.AUTH_GET_USER, {"username": "app"})
    assert UserInfo.decode(one) == UserInfo("app", None, "Normal", "enable")
    assert await root.ok(Code.AUTH_GET_USER, {"username": "none"}) == b""
    assert (await root.ask(Code.AUTH_GET_USER, {"username": ""})).code == ResponseCode.INVALID_PARAMETER

    acl = AclInfo.decode(await root.ok(Code.AUTH_GET_ACL, {"subject": "User:app"}))
    assert acl.subject == "User:app"
    assert [entry.resource for entry in (acl.policies or [])[0].entries or []] == [name for name, _ in APPS]
    found = AclInfo.decode_list(await root.ok(Code.AUTH_LIST_ACL, {"resourceFilter": "Group:"}))
    assert [entry.resource for entry in (found[0].policies or [])[0].entries or []] == [
        "Group:billing",
        "Group:TOOLS_CONSUMER",
    ]
    assert await root.ok(Code.AUTH_LIST_ACL, {"subjectFilter": "root"}) == b""
    assert await root.ok(Code.AUTH_GET_ACL, {"subject": "User:root"}) == b""

    body = AclInfo(None, [PolicyInfo(None, [PolicyEntryInfo("Topic:a", ["Pub"], None, "Allow")])]).encode()
    for code, fields, content, refusal in (
        (
            Code.AUTH_CREATE_USER,
            {"username": "app"},
            UserInfo(password="x").encode(),
            (16, "The user is existed"),
        ),
        (Code.AUTH_CREATE_ACL, {"subject": "User:no"}, body, (16, "The subject of User:no is not exist.")),
        (Code.AUTH_GET_ACL, {"subject": "User:no"}, b"", (16, "The subject is not exist.")),
        (Code.AUTH_DELETE_ACL, {"subject": "User:root"}, b"", (16, "The acl is not exist.")),
        (Code.AUTH_CREATE_ACL, {"subject": "app"}, body, (29, "subject is 'app'; expected User: and a name")),
        (
            Code.AUTH_DELETE_USER,
            {"username": "root"},
            b"",
            (16, "root is the last super user who is not disabled: make another one before"),
        ),
    ):
        answer = await root.ask(code, fields, content)
        assert (answer.code, answer.remark) == refusal
    for code in (Code.AUTH_CREATE_USER, Code.AUTH_CREATE_ACL):
        answer = await root.ask(code, {"username": "b", "subject": "User:app"}, b"{")
        assert answer.code == ResponseCode.SYSTEM_ERROR

    text = (await root.ok(Code.GET_BROKER_CONFIG)).decode()
    assert "initAuthenticationUser=***" in text
    everything = text + listed.decode() + one.decode() + caplog.text
    assert "root-secret" not in everything
    assert "app-secret" not in everything
    await root.close()


@pytest.mark.behaviour("AU-17", "AZ-07")
async def test_users_change_users_with_the_right_of_the_cluster_only(secured: World) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    new = UserInfo(password="x").encode()
    answer = await app.ask(Code.AUTH_CREATE_USER, {"username": "new"}, new)
    assert "Cluster:DefaultCluster from 127.0.0.1, no matched policies." in str(answer.remark)
    await root.allow("app", ("Cluster:*", "Update"))
    await app.ok(Code.AUTH_CREATE_USER, {"username": "new"}, new)
    await app.ok(Code.AUTH_DELETE_USER, {"username": "new"})
    for fields, body in (
        ({"username": "more"}, UserInfo(password="x", user_type="Super")),
        ({"username": "root"}, UserInfo(password="x")),
    ):
        code = Code.AUTH_CREATE_USER if fields["username"] == "more" else Code.AUTH_UPDATE_USER
        answer = await app.ask(code, fields, body.encode())
        assert (answer.code, str(answer.remark)[:27]) == (1, "The super user can only be ")
    await root.close()
    await app.close()


@pytest.mark.behaviour("AZ-07")
@pytest.mark.parametrize("secured", [{"authorizationEnabled": "false"}], indirect=True)
async def test_authentication_alone(secured: World) -> None:
    async with secured.producer(credentials=APP) as producer:
        await producer.send(Message("anything", b"x"))
        with pytest.raises(NotPermittedError):
            async with secured.producer(credentials=WRONG) as other:
                await other.send(Message("anything", b"x"))
    app = Keys(secured, APP)
    answer = await app.ask(Code.AUTH_LIST_USER, {"filter": ""})
    assert answer.remark == "User:app is no super user: users and rules are theirs."
    await app.close()


@pytest.mark.behaviour("AZ-09", "AZ-10")
@pytest.mark.parametrize("secured", [{"authMode": "observe"}], indirect=True)
async def test_a_running_cluster_is_closed_after_it_was_observed(secured: World) -> None:
    async with secured.producer() as unsigned, secured.producer(credentials=APP) as producer:
        await unsigned.send(Message("orders", b"x"))
        await producer.send(Message("invoices", b"x"))
        nobody = Keys(secured, None)
        answer = await nobody.ask(Code.AUTH_CREATE_USER, {"username": "new"}, UserInfo(password="x").encode())
        assert answer.remark == "username cannot be null."
        await nobody.close()
        async with admin(secured, ROOT) as client:
            told = {
                (one.user, one.why, one.action, one.resource): one.count
                for one in (await client.access.refusals()).whole()
            }
            assert told["app", "no right", "Pub", "Topic:invoices"] == 1
            assert told["", "no keys", "", ""] >= 2
            await client.access.set_rule("app", "Topic:invoices", ["Pub"])
            [broker] = await client.brokers.list()
            await client.brokers.change_settings(broker.address, {"authMode": "enforce"})
        await producer.send(Message("invoices", b"x"))
        with pytest.raises(NotPermittedError):
            await unsigned.send(Message("orders", b"x"))


@pytest.mark.behaviour("AZ-11")
@pytest.mark.parametrize("way", ["pull", "pop", "notice"])
@pytest.mark.parametrize("how", ["rule", "disabled", "deleted", "nothing lost"])
async def test_who_loses_a_right_while_waiting_is_refused(secured: World, way: str, how: str) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    consumes = {"consumerGroup": "billing", "topic": "orders"}
    if way == "pull":
        # A filter by SQL92: the fast path does not take it.
        code, values = Code.PULL_MESSAGE, {
            **consumes, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "6",
            "commitOffset": "0", "suspendTimeoutMillis": "60000", "subscription": "a = 1",
            "expressionType": "SQL92", "subVersion": "0",
        }  # fmt: skip
    elif way == "notice":
        code, values = Code.NOTIFICATION, {
            **consumes, "queueId": "-1", "pollTime": "60000", "order": "false",
            "bornTime": str(secured.runtime.clock.now_ms()),
        }  # fmt: skip
    else:
        code, values = Code.POP_MESSAGE, {
            **consumes, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "60000",
            "bornTime": str(secured.runtime.clock.now_ms()), "initMode": "0", "expType": "TAG", "exp": "*",
        }  # fmt: skip
    waiting = asyncio.ensure_future(app.ask(code, values))
    others = asyncio.ensure_future(root.ask(code, {**values, "consumerGroup": "others"}))
    try:
        await asyncio.sleep(1)
        assert [waiting.done(), others.done()] == [False, False]
        async with admin(secured, ROOT) as client:
            if how == "rule":
                await client.access.delete_rules("app", "Topic:orders")
            elif how == "disabled":
                await client.access.change_user("app", is_enabled=False)
            elif how == "deleted":
                await client.access.delete_user("app")
            else:
                await client.access.delete_rules("app", "Topic:RMQ_SYS_TRACE_TOPIC")
        ended = await waiting
        assert ended.body == b""
        if how == "nothing lost":
            codes = ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.SUCCESS
            assert ended.code in codes
            assert ended.ext.get("hasMsg", "false") == "false"
        else:
            remark = {"rule": "no matched policies", "disabled": "User:app is disabled."}
            assert ended.code == ResponseCode.NO_PERMISSION
            assert remark.get(how, "check signature failed.") in str(ended.remark)
            assert (await app.ask(code, values)).code == ResponseCode.NO_PERMISSION
        assert not others.done()
    finally:
        waiting.cancel()
        others.cancel()
        await root.close()
        await app.close()


@pytest.mark.behaviour("AZ-12")
async def test_an_export_has_users_without_secrets_and_rules(secured: World) -> None:
    async with admin(secured, ROOT) as client:
        await client.access.set_rule("app", "Topic:paid*", ["Pub"], sources=["10.0.0.0/8"], allows=False)
        exported = (await client.definitions.export()).whole()
        text = json.dumps(as_json(exported))
        assert "secret-1" not in text
        assert from_json(text).users == exported.users
        assert from_json(text).rules == exported.rules
        assert sorted(exported.users) == ["app", "root"]
        assert exported.differing == ()
        assert await client.definitions.plan(exported) == []
        await client.access.delete_rules("app", "Topic:paid*")
        await client.access.set_rule("app", "Topic:orders", ["Sub"])
        await client.access.change_user("app", is_enabled=False)
        plan = await client.definitions.plan(from_json(text))
        assert [change.text for change in plan] == [
            "user app: is enabled no -> yes",
            "rule app Topic:orders: actions Sub -> Pub,Sub,Get",
            "create rule app Topic:paid* (deny Pub)",
        ]
        for change in plan:
            await client.definitions.make(change)
        assert (await client.definitions.export()).whole() == exported
        await client.access.delete_user("app")
        user, *_ = await client.definitions.plan(exported)
        assert (user.text, user.problem) == ("create user app", "an export has no secrets: make the user")
        other = await client.definitions.plan(exported, cluster="DefaultCluster")
        assert all("do without a cluster" in each.problem for each in other)


@pytest.mark.behaviour("AU-13")
async def test_a_signed_request_for_all_topics_or_groups_is_served(secured: World) -> None:
    root = Keys(secured, ROOT)
    topics = json.loads(await root.ok(Code.GET_ALL_TOPIC_CONFIG))
    assert "orders" in topics["topicConfigTable"]
    groups = json.loads(await root.ok(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    assert "TOOLS_CONSUMER" in groups["subscriptionGroupTable"]
    refused = await root.ask(Code.GET_ALL_TOPIC_CONFIG, {"maxTopicNum": "1"})
    assert "topicSeq" in str(refused.remark)
    await root.close()


@pytest.mark.behaviour("AZ-03")
async def test_the_table_is_about_requests_that_a_broker_answers(secured: World) -> None:
    known = secured.brokers["broker-a"].doors.router
    assert known is not None
    assert set(REQUESTS) <= known.codes
    assert {Code(code).name for code in known.codes - set(REQUESTS)} == {
        "UPDATE_BROKER_CONFIG",
        "GET_BROKER_CONFIG",
        "CLEAN_EXPIRED_CONSUMEQUEUE",
        "CLEAN_UNUSED_TOPIC",
        "DELETE_EXPIRED_COMMITLOG",
        "CONSUME_MESSAGE_DIRECTLY",
        "RESUME_CHECK_HALF_MESSAGE",
        "START_REDRIVE",
        "LIST_REDRIVES",
        "CHANGE_REDRIVE",
        "SET_QUOTA",
        "LIST_QUOTAS",
    }


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


def on(**changes: Any) -> BrokerConfig:
    config = broker_config(authentication_enabled=True, init_authentication_user=ROOT)
    for name, value in changes.items():
        setattr(config, name, value)
    return config


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
    """The files of tables."""
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
        # Another key above it: each start writes all with the first one.
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
