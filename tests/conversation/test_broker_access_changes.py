"""Users and rules over the wire: the rights to change them, and the moment from which a change counts."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from tests.conversation.secured_broker import APP, APPS, ROOT, WRONG, Keys, admin, secured

from orbitmq import Message, NotPermittedError
from orbitmq.admin.definitions import as_json, from_json
from orbitmq.auth.requests import REQUESTS
from orbitmq.testing.world import World
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode

__all__ = ["secured"]


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
        # The fast path leaves a pull with an SQL92 filter to the handlers.
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
            "create rule app Topic:paid* (deny Pub from 10.0.0.0/8)",
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
