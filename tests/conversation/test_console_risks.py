"""Dangerous changes in the console: only for those the user has to type the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conversation.console_browser import ORIGIN, Browser, opened, sent

from orbitmq import Credentials
from orbitmq.admin import GroupSettings
from orbitmq.broker.config import BrokerConfig
from orbitmq.console.changes import CHANGES
from orbitmq.console.risks import RISKS, RISKY_SETTINGS
from orbitmq.testing import World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "console.md"
ROW = re.compile(r"\| `([a-z-]+)` \| (\w+) \| (.+) \|")
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username": "root", "password": "root-secret-1"}',
}


async def asks(browser: Browser, change: str, fields: Mapping[str, str], wanted: str) -> str:
    """Check that the change needs its target typed first, and that a program gets an error; returns
    the page.
    """
    before = browser.console.audit.entries()
    asked = await browser.send(change, fields)
    assert asked.status_code == 200, asked.text
    assert f"Type “{wanted}” to confirm" in asked.text
    assert browser.console.audit.entries() == before
    token = (await browser.json("/session"))["form_token"]
    form = {"form_token": token, **fields}
    refused = await browser.http.post(f"/api/v1/do/{change}", data=form, headers=ORIGIN)
    assert refused.status_code == 400
    assert refused.json() == {"error": f"typed: expected {wanted!r}: nothing was changed"}
    wrong = await browser.send(change, {**fields, "typed": "x"})
    assert (wrong.status_code, "nothing was changed" in wrong.text) == (400, True)
    return asked.text


@pytest.mark.behaviour("CS-52")
async def test_a_topic_or_group_that_loses_clients_is_typed(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        topic = {"topic": "t", "queues": "2", "permission": "read", "type": ""}
        page = await asks(browser, "topic-save", topic, "t")
        assert "Topic t loses a permission" in page
        assert (await admin.topics.settings()).whole()["t"]["broker-a"].perm == 6
        # The page has all fields of the submitted form, and a token of its own.
        form = {
            "typed": "t",
            **dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.split("<main")[1])),
        }
        assert form.items() >= topic.items()
        answer = await browser.http.post("/do/topic-save", data=form, headers=ORIGIN)
        assert answer.status_code == 303
        assert (await admin.topics.settings()).whole()["t"]["broker-a"].perm == 4
        await browser.done("topic-save", {**topic, "permission": "read+write"})
        await browser.done("topic-save", {**topic, "topic": "new"})
        await admin.groups.create("g", GroupSettings())
        assert "g is switched off" in await asks(browser, "group-save", {"group": "g", "retries": "3"}, "g")
        await browser.done("group-save", {"group": "g", "retries": "3", "consume": "yes"})
        await browser.done("group-save", {"group": "new", "retries": "3"})
        await asks(browser, "redrive", {"group": "g"}, "g")
        await asks(browser, "topic-delete", {"topics": "t\nnew"}, "2 topics")
        await asks(browser, "group-delete", {"group": "g"}, "g")
        await asks(browser, "group-reset", {"group": "g", "plan": "x"}, "g")


@pytest.mark.behaviour("CS-52")
async def test_the_address_of_a_broker_is_typed_for_settings_that_lose_messages_or_clients(
    orbitmq_world: World,
) -> None:
    address = orbitmq_world.brokers["broker-a"].address
    change = {"address": address, "key": "fileReservedTime", "value": "5"}
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        await asks(browser, "broker-setting", change, address)
        assert (await admin.brokers.settings(address))["fileReservedTime"] == "72"
        page = await browser.text(f"/brokers/{address}", key="fileReservedTime")
        assert f"Type “{address}” to confirm" in page
        await browser.done("broker-setting", {**change, "typed": address})
        last = browser.console.audit.entries()[0]
        assert (last.before, last.after, last.outcome) == ("72", "5", "done")


@pytest.mark.orbitmq(settings=SECURED)
@pytest.mark.behaviour("CS-52")
async def test_a_user_is_typed_who_loses_or_gets_more_than_a_rule(orbitmq_world: World) -> None:
    root = Credentials("root", "root-secret-1")
    async with opened(orbitmq_world, write=True, credentials=root) as browser:
        page = await asks(
            browser, "user-create", {"user": "ops", "super": "yes", "secret": "ops-secret-1"}, "ops"
        )
        assert "ops-secret-1" not in page
        assert 'type="password" name="secret"' in page
        await browser.done("user-create", {"user": "app", "secret": "app-secret-1"})
        user = {"user": "app", "enabled": "yes"}
        for fields, what in (
            ({**user, "secret": "app-secret-2"}, "gets another secret key"),
            ({"user": "app"}, "is switched off"),
            ({**user, "super": "yes"}, "becomes a super user"),
            ({"user": "root", "enabled": "yes"}, "is a super user no longer"),
        ):
            page = await asks(browser, "user-save", fields, fields["user"])
            assert what in page
            assert "app-secret-2" not in page
        await browser.done("user-save", user)
        rule = {"user": "app", "resource": "Topic:t", "actions": "Pub", "decision": "allow"}
        await browser.done("rule-save", rule)
        await asks(browser, "rule-save", {**rule, "decision": "deny"}, "app")
        await asks(browser, "rule-save", {**rule, "resource": "*"}, "app")
        await asks(browser, "rule-delete", {"user": "app", "resource": "Topic:t"}, "app")
        await asks(browser, "user-delete", {"user": "app"}, "app")
        assert "Type “app” to confirm" in await browser.text("/access/app")


@pytest.mark.behaviour("CS-52")
def test_the_page_of_the_console_says_which_changes_are_dangerous() -> None:
    told = {name: (role, typed) for name, role, typed in ROW.findall(PAGE.read_text())}
    assert {name: role for name, (role, _) in told.items()} == {
        name: change.needs for name, change in CHANGES.items()
    }
    assert {name for name, (_, typed) in told.items() if typed != "no"} == set(RISKS)


@pytest.mark.behaviour("CS-52")
def test_the_dangerous_settings_are_live_ones() -> None:
    assert set(BrokerConfig().live_keys()) >= RISKY_SETTINGS
