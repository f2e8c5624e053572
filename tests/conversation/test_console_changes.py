"""Changes through the console: the rights they need, their confirmation, undoing and audit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.console_browser import ORIGIN, Browser, opened, sent

from orbitmq import ConsumeFrom, Credentials, ReceivedMessage
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.console.changes import CHANGES
from orbitmq.message.reserved import dead_letter_topic
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.refusals import error_of

TOPIC = {"topic": "t", "queues": "3", "permission": "read+write", "type": ""}


@pytest.mark.behaviour("CS-24")
async def test_without_write_nothing_is_changed(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    async with opened(orbitmq_world) as browser:
        for path in ("/topics", "/topics/t", "/topics/~new", "/dead-letters/g", "/topics/~delete?chosen=t"):
            assert 'action="/do/' not in await browser.text(path)
        for change in CHANGES:
            answer = await browser.send(change, TOPIC)
            assert (answer.status_code, "only reads" in answer.text) == (403, True)


@pytest.mark.behaviour("CS-24")
async def test_a_form_counts_once_and_only_from_this_session_and_origin(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        token = await browser.token()
        form = {**TOPIC, "form_token": token}
        for wrong in (
            {},
            {"Origin": "http://evil"},
            {"Origin": "https://127.0.0.1:8082"},
            {"Origin": "null"},
        ):
            answer = await browser.http.post("/do/topic-save", data=form, headers=wrong)
            assert answer.status_code == 403
        stale = await browser.http.post("/do/topic-save", data={**form, "form_token": "x"}, headers=ORIGIN)
        assert stale.status_code == 409
        assert "t" not in await admin.topics.list()
        # Both requests of a double click are under way at once.
        both = await asyncio.gather(
            *(browser.http.post("/do/topic-save", data=form, headers=ORIGIN) for _ in range(2))
        )
        assert sorted(one.status_code for one in both) == [303, 409]
        assert len(browser.console.audit.entries()) == 1
        assert "t" in await admin.topics.list()
        unknown = await browser.send("none", {})
        assert unknown.status_code == 404
        large = await browser.send("message-send", {"topic": "t", "body": "x" * 1024 * 1024})
        assert large.status_code == 413
        broken = await browser.http.post("/do/topic-save", content=b"\xff=%ff", headers=ORIGIN)
        assert broken.status_code == 400


@pytest.mark.behaviour("CS-24")
async def test_a_browser_tells_forms_where_they_come_from_and_errors_lead_back(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        # With "no-referrer" a browser would send "Origin: null" with each form.
        assert (await browser.get("/topics")).headers["referrer-policy"] == "same-origin"
        page = "http://127.0.0.1:8082/topics/t/edit?x=1"
        failed = await browser.send("topic-save", {**TOPIC, "queues": "0"}, Referer=page)
        assert '<a href="/topics/t/edit?x=1">Back</a>' in failed.text
        for foreign in ("http://evil/topics", "http://[", "//evil", ""):
            failed = await browser.send("topic-save", {**TOPIC, "queues": "0"}, Referer=foreign)
            assert "Back</a>" not in failed.text
        slashes = await browser.send(
            "topic-save", {**TOPIC, "queues": "0"}, Referer="http://127.0.0.1:8082//evil"
        )
        assert '<a href="/evil">Back</a>' in slashes.text


@pytest.mark.behaviour("CS-24")
async def test_a_program_makes_a_change_by_json(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        session = await browser.json("/session")
        assert (session["user"], session["role"]) == ("link", "admin")
        form = {**TOPIC, "form_token": session["form_token"]}
        answer = await browser.http.post("/api/v1/do/topic-save", data=form, headers=ORIGIN)
        assert answer.json() == {"done": "Topic t is saved on broker-a.", "page": "/topics/t"}
        again = await browser.http.post("/api/v1/do/topic-save", data=form, headers=ORIGIN)
        assert (again.status_code, "sent already" in again.json()["error"]) == (409, True)


@pytest.mark.behaviour("CS-25")
async def test_a_topic_is_made_changed_and_deleted_with_its_name_typed(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        assert await browser.done("topic-save", {**TOPIC, "type": "FIFO"}) == "Topic t is saved on broker-a."
        settings = (await admin.topics.settings()).whole()["t"]["broker-a"]
        assert (settings.queues, settings.attributes) == (3, {"message.type": "FIFO"})
        fewer = await browser.send("topic-save", {**TOPIC, "queues": "1"})
        assert (fewer.status_code, "has 3 queues" in fewer.text) == (400, True)
        for wrong, what in (
            ({"topic": " "}, "topic: the field is empty"),
            ({"queues": "0"}, "queues: 0: expected a whole number from 1 on"),
            ({"queues": "9" * 30}, "expected a whole number"),
            ({"permission": "all"}, "permission: expected one of"),
        ):
            answer = await browser.send("topic-save", {**TOPIC, **wrong})
            assert (answer.status_code, what in answer.text) == (400, True)
        wrong_name = await browser.send("topic-delete", {"topics": "t", "typed": "T"})
        assert (wrong_name.status_code, "nothing was changed" in wrong_name.text) == (400, True)
        await browser.done("topic-save", {**TOPIC, "topic": "u"})
        assert "Type “2 topics”" in await browser.text("/topics/~delete?chosen=t&chosen=u")
        said = await browser.done("topic-delete", {"topics": "t\nu", "typed": "2 topics"})
        assert said == "Deleted: t, u."
        assert not {"t", "u"} & set(await admin.topics.list())
        assert (await browser.get("/topics/~delete")).status_code == 400


@pytest.mark.behaviour("CS-25")
async def test_a_group_is_made_changed_and_deleted(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        await browser.done("group-save", {"group": "g", "consume": "yes", "retries": "5"})
        await browser.done("group-save", {"group": "g", "retries": "6", "typed": "g"})
        settings = (await admin.groups.show("g")).whole().settings["broker-a"]
        assert (settings.consume, settings.max_retries) == (False, 6)
        last = browser.console.audit.entries()[0]
        assert (last.before, last.after) == (
            "consume True, ordered False, retries 5",
            "consume False, ordered False, retries 6",
        )
        assert (await browser.send("group-delete", {"group": "g", "typed": ""})).status_code == 400
        await browser.done("group-delete", {"group": "g", "typed": "g"})
        assert "g" not in (await admin.groups.list()).whole()


async def lagging(world: World) -> None:
    """Let group g consume 4 of the 10 messages in the only queue of topic t."""
    await sent(world, "t", *[b"%d" % number for number in range(4)], queues=1)
    async with world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("t")
        count = 0
        async for message in consumer.messages(auto_ack=False):
            message.ack()
            count += 1
            if count == 4:
                break
    await sent(world, "t", *[b"%d" % number for number in range(4, 10)], queues=1)


async def place(browser: Browser) -> int:
    (queue,) = (one for one in (await browser.json("/groups/g"))["queues"] if one["topic"] == "t")
    return int(queue["committed"])


@pytest.mark.behaviour("CS-26")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"to": "first"}, 0),
        ({"to": "last"}, 10),
        ({"to": "shift", "value": "3"}, 7),
        ({"to": "shift", "value": "-3"}, 1),
        ({"to": "shift", "value": "-99"}, 0),
        ({"to": "offset", "value": "2", "queue": "broker-a:0"}, 2),
        ({"to": "time", "value": "1h"}, 0),
    ],
)
async def test_a_reset_is_shown_first_made_and_undone(
    orbitmq_world: World, fields: dict[str, str], expected: int
) -> None:
    await lagging(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        assert await place(browser) == 4
        page = await browser.text("/groups/g/reset", topic="t", **fields)
        assert await place(browser) == 4  # the page only shows the change
        plan = page.split('name="plan" value="')[1].split('"')[0]
        assert (
            await browser.done("group-reset", {"group": "g", "plan": plan, "typed": "g"})
            == "Group g was moved in 1 queue."
        )
        assert await place(browser) == expected
        again = await browser.send("group-reset", {"group": "g", "plan": plan, "typed": "g"})
        assert (again.status_code, "not kept any more" in again.text) == (400, True)
        link = (await browser.text("/groups/g")).split('href="/groups/g/undo?')[1].split('"')[0]
        back = await browser.text(f"/groups/g/undo?{link}")
        plan = back.split('name="plan" value="')[1].split('"')[0]
        await browser.done("group-reset", {"group": "g", "plan": plan, "typed": "g"})
        assert await place(browser) == 4


@pytest.mark.behaviour("CS-26")
async def test_a_reset_that_cannot_be_meant_is_refused(orbitmq_world: World) -> None:
    await lagging(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        for fields, what in (
            ({"to": "last"}, "topic: expected"),
            ({"topic": "t", "to": "middle"}, "to: middle: expected one of"),
            ({"topic": "t", "to": "time", "value": "soon"}, "value: soon: expected a time"),
            ({"topic": "t", "to": "offset", "value": "3"}, "an offset belongs to one queue"),
            ({"topic": "t", "to": "offset", "value": "99", "queue": "broker-a:0"}, "has the offsets 0 to 10"),
            ({"topic": "t", "to": "shift", "value": "x"}, "value: expected a number of messages"),
            ({"topic": "t", "to": "last", "queue": "broker-a"}, "queue: broker-a: expected BROKER:ID"),
            ({"topic": "t", "to": "last", "queue": "broker-a:9"}, "has no queue broker-a:9"),
            ({"topic": "none", "to": "last"}, "none"),
        ):
            answer = await browser.get("/groups/g/reset", **fields)
            assert (answer.status_code, what in answer.text) == (400, True), fields
        assert (await browser.get("/groups/g/undo", of="x")).status_code == 400


async def reject(world: World, group: str) -> None:
    """Make the messages of topic t dead letters of the group."""

    async def refuse(message: ReceivedMessage) -> None:
        message.reject()

    async with world.consumer(group, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("t")
        task = asyncio.create_task(consumer.run(refuse))
        async with world.admin() as admin:
            for _ in range(60):
                await world.sleep(1)
                if dead_letter_topic(group) in await admin.topics.list():
                    break
    await task


@pytest.mark.behaviour("CS-25", "CS-43")
async def test_dead_letters_are_sent_again_all_or_chosen_ones(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    await reject(orbitmq_world, "g")
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        assert (await browser.json("/dead-letters"))["groups"][0]["count"] == 1
        [letter] = (await browser.json("/dead-letters/g"))["letters"]
        assert (letter["place"], letter["origin"], letter["tries"]) == ("broker-a:0", "t", 1)
        assert 0 <= letter["age"] < 60
        assert 'name="chosen" value="broker-a:0"' in await browser.text("/dead-letters/g")
        page = await browser.text("/dead-letters/g/again", chosen="broker-a:0")
        assert 'name="chosen" value="broker-a:0"' in page
        for nothing in ({}, {"chosen": "broker-a"}):
            assert (await browser.get("/dead-letters/g/again", **nothing)).status_code == 400
        wrong = await browser.send("redrive", {"group": "g", "chosen": "broker-a"})
        assert (wrong.status_code, "expected BROKER:OFFSET" in wrong.text) == (400, True)
        wrong = await browser.send("redrive", {"group": "g", "rate": "fast", "typed": "g"})
        assert (wrong.status_code, "rate: fast: expected" in wrong.text) == (400, True)
        assert not (await admin.dead_letters.redrives("g")).whole()
        said = await browser.done("redrive", {"group": "g", "chosen": "broker-a:0-9", "rate": "5"})
        assert said == "The dead letters of g are being sent again by broker-a."
        await orbitmq_world.sleep(5)
        assert (await browser.json("/dead-letters/g"))["jobs"][0]["sent"] == 1


async def test_dead_letters_of_brokers_without_redrives_are_shown(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's brokers do not know the request; any other error is shown."""
    codes = [ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    ask = ClusterClient.ask

    async def of_java(cluster: ClusterClient, address: str, command: Command, **options: Any) -> Command:
        if command.code == RequestCode.LIST_REDRIVES:
            raise error_of(command, Command(codes[0], remark="no"), address)
        return await ask(cluster, address, command, **options)

    monkeypatch.setattr(ClusterClient, "ask", of_java)
    await sent(orbitmq_world, "t", b"1")
    await reject(orbitmq_world, "g")
    async with opened(orbitmq_world) as browser:
        page = await browser.json("/dead-letters/g")
        assert (len(page["letters"]), page["jobs"]) == (1, [])
        codes[0] = ResponseCode.SYSTEM_ERROR
        await orbitmq_world.sleep(3)
        assert (await browser.get("/dead-letters/g")).status_code == 400


@pytest.mark.behaviour("CS-25")
async def test_a_message_is_sent_and_sent_again(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    async with opened(orbitmq_world, write=True) as browser:
        said = await browser.done(
            "message-send", {"topic": "t", "body": "a\r\nb", "tag": "x", "keys": "one two"}
        )
        assert said.startswith("Sent to t/broker-a/")
        await orbitmq_world.sleep(3)
        (found,) = (await browser.json("/messages", topic="t", key="two"))["messages"]
        assert (found["body"], found["tag"], found["size"]) == ("a b", "x", 3)
        await browser.done("message-again", {"topic": "t", "id": found["message"]})
        await orbitmq_world.sleep(3)
        both = (await browser.json("/messages", topic="t", key="two"))["messages"]
        assert [one["tag"] for one in both] == ["x", "x"]


@pytest.mark.behaviour("CS-25")
async def test_a_setting_is_changed_only_at_a_registered_broker(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        ((address,),) = [[one["address"]] for one in (await browser.json("/brokers"))["brokers"]]
        fields = {"address": address, "key": "maxMsgsNumBatch", "value": "32"}
        assert await browser.done("broker-setting", fields) == f"maxMsgsNumBatch is 32 at {address}."
        last = browser.console.audit.entries()[0]
        assert (last.before, last.after, last.outcome) == ("64", "32", "done")
        for wrong, what in (
            ({"address": "10.9.9.9:10911"}, "no broker is registered at"),
            ({"key": "none"}, "the broker has no such setting"),
            ({"value": "many"}, "maxMsgsNumBatch"),
        ):
            answer = await browser.send("broker-setting", {**fields, **wrong})
            assert (answer.status_code, what in answer.text) == (400, True), wrong


async def may_do(browser: Browser) -> None:
    """The changes that user app, who has the rule Topic:orders*, may make."""
    question = {"user": "app", "may": "Pub", "resource": "Topic:orders-1", "from": "10.1.1.1"}
    page = await browser.json("/access/~test", **question)
    assert page["sentence"] == "app may do Pub with Topic:orders-1."
    assert page["verdicts"] == [{"broker": "broker-a", "state": "allowed", "why": "allowed by Topic:orders*"}]
    assert [one["resource"] for one in page["deciding_rules"]] == ["Topic:orders*"]
    page = await browser.json("/access/~test", **{**question, "from": ""})
    assert page["sentence"] == "app may not do Pub with Topic:orders-1."
    assert (page["verdicts"][0]["why"], page["deciding_rules"]) == ("no matched policies", [])
    assert 'value="app"' in await browser.text("/access/~test", user="app")
    for wrong, what in (
        ({"may": "Eat"}, "action is"),
        ({"resource": "orders"}, "expected Topic:name"),
        ({"from": "here"}, "expected an IP address"),
    ):
        answer = await browser.get("/access/~test", **{**question, **wrong})
        assert (answer.status_code, what in answer.text) == (400, True), wrong


@pytest.mark.orbitmq(
    settings={
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username": "root", "password": "root-secret-1"}',
    }
)
@pytest.mark.behaviour("CS-25", "CS-41")
async def test_users_and_rules_are_changed_and_no_secret_is_kept(orbitmq_world: World) -> None:
    root = Credentials("root", "root-secret-1")
    async with opened(orbitmq_world, write=True, credentials=root) as browser:
        said = await browser.done("user-create", {"user": "app"})
        secret = said.removeprefix("User app is saved on broker-a. The secret, shown once: ")
        assert len(secret) == 32
        ops = {"user": "ops", "secret": "ops-secret-1"}
        said = await browser.done("user-create", {**ops, "super": "yes", "typed": "ops"})
        assert said == "User ops is saved on broker-a."
        rule = {"user": "app", "resource": "Topic:orders*", "actions": "Pub, Sub", "from": "10.0.0.0/8"}
        await browser.done("rule-save", {**rule, "decision": "allow"})
        row = {
            "broker": "broker-a",
            "resource": "Topic:orders*",
            "actions": "Pub, Sub",
            "from": "10.0.0.0/8",
            "decision": "allow",
        }
        assert (await browser.json("/access/app"))["rules"] == [row]
        for wrong, what in (
            ({"actions": "Eat"}, "actions: Eat: expected some of"),
            ({"resource": "orders"}, "resource: orders: expected Topic:NAME"),
            ({"from": "nowhere"}, "nowhere"),
            ({"user": "nobody"}, "nobody"),
        ):
            answer = await browser.send("rule-save", {**rule, **wrong})
            assert (answer.status_code, what in answer.text) == (400, True), wrong
        await may_do(browser)
        await browser.done("rule-delete", {"user": "app", "resource": "Topic:orders*", "typed": "app"})
        assert (await browser.json("/access/app"))["rules"] == []
        await browser.done("user-save", {"user": "app", "secret": "app-secret-2", "typed": "app"})
        states = {one["user"]: one["state"] for one in (await browser.json("/access"))["users"]}
        assert states == {"app": "off", "ops": "ok", "root": "ok"}
        assert (await browser.send("user-delete", {"user": "app", "typed": "ap"})).status_code == 400
        await browser.done("user-delete", {"user": "app", "typed": "app"})
        assert "No broker has the user app" in await browser.text("/access/app")
        audit = str(browser.console.audit.entries())
        assert not [one for one in (secret, "ops-secret-1", "app-secret-2", "root-secret-1") if one in audit]


@pytest.mark.behaviour("CS-25")
async def test_each_change_is_in_the_audit_log_also_one_that_fails(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        await browser.done("topic-save", TOPIC)
        await browser.send("topic-delete", {"topics": "t", "typed": "no"})
        rows = (await browser.json("/audit"))["changes"]
        assert [(one["change"], one["target"], one["user"]) for one in rows] == [
            ("topic-delete", "t", "link"),
            ("topic-save", "t", "link"),
        ]
        assert rows[1]["outcome"] == "done"
        assert "nothing was changed" in rows[0]["outcome"]


@pytest.mark.behaviour("CS-25")
async def test_a_change_that_is_not_confirmed_in_time_says_so(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    await orbitmq_world.stop_broker("broker-a")
    await orbitmq_world.machines["broker-a"].begin(orbitmq_world.start_broker("broker-a"))
    await orbitmq_world.sleep(1)
    async with opened(orbitmq_world, write=True) as browser:
        form = {**TOPIC, "form_token": await browser.token()}
        orbitmq_world.machines["broker-a"].freeze()
        begin = orbitmq_world.runtime.clock.monotonic()
        answer = await browser.http.post("/do/topic-save", data=form, headers=ORIGIN)
        assert orbitmq_world.runtime.clock.monotonic() - begin <= 15
        assert answer.status_code in (400, 504)
        assert browser.console.audit.entries()[0].outcome != "done"
        orbitmq_world.machines["broker-a"].thaw()
