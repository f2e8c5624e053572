"""Users of the console: from a file with roles, from the cluster's users, from the header of a proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.conversation.console_browser import HOST, ORIGIN, Browser, console, opened, sent

from orbitmq import Credentials
from orbitmq.admin import Admin
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.console.entrance import Entrance, ProxyUsers
from orbitmq.console.logins import MOST_WAITING, Desk, FileDoor, RocketMQDoor
from orbitmq.console.users_file import User, line_of, parsed
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.refusals import error_of

HOSTS = frozenset({HOST})
PASSWORD = "correct horse"
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret-1"}),
}


@pytest.fixture(scope="module")
def users() -> Mapping[str, User]:
    """A user of each role, by the role's name; and "known", whom only a proxy may name."""
    lines = [line_of(role, role, PASSWORD) for role in ("watcher", "viewer", "operator", "admin")]
    return parsed("\n".join(["# users", *lines, "known:viewer", ""]), "users.txt")


def by_file(world: World, users: Mapping[str, User]) -> Entrance:
    clock = world.runtime.clock
    desk = Desk(FileDoor(users, world.runtime.threads), clock.monotonic, by_address=True)
    return Entrance(HOSTS, by_link=False, desk=desk)


def by_cluster(world: World) -> Entrance:
    options = {"name_servers": world.name_server, "runtime": world.runtime}
    clock = world.runtime.clock
    return Entrance(
        HOSTS,
        by_link=False,
        desk=Desk(RocketMQDoor(options, clock.monotonic), clock.monotonic, by_address=True),
    )


async def log_in(browser: Browser, user: str, password: str, **headers: str) -> httpx.Response:
    form = {"user": user, "password": password}
    return await browser.http.post("/login", data=form, headers={**ORIGIN, **headers})


@pytest.mark.behaviour("CS-29")
async def test_a_role_says_what_a_user_may_see_and_change(
    orbitmq_world: World, users: Mapping[str, User]
) -> None:
    (message_id,) = await sent(orbitmq_world, "t", b"secret body")
    await orbitmq_world.sleep(2)
    topic = {"topic": "t", "queues": "3", "permission": "read+write"}
    for role, sees, operates, rules in (
        ("watcher", False, False, False),
        ("viewer", True, False, False),
        ("operator", True, True, False),
        ("admin", True, True, True),
    ):
        async with console(orbitmq_world, entrance=by_file(orbitmq_world, users)) as browser:
            asked = await browser.get("/topics")
            assert (asked.status_code, asked.headers["location"]) == (303, "/login")
            assert (await browser.get("/api/v1/topics")).status_code == 401
            assert (await log_in(browser, role, PASSWORD)).status_code == 303
            assert (await browser.json("/session"))["role"] == role
            for path in (f"/messages/{message_id}?topic=t", "/messages?topic=t", "/messages?topic=t&key=k"):
                assert ("secret body" in await browser.text(path)) == sees
                assert ("secret body" in str(await browser.json(path))) == sees
            raw = await browser.get(f"/messages/{message_id}/download?topic=t")
            assert raw.status_code == (200 if sees else 403)
            assert (await browser.send("topic-save", topic)).status_code == (303 if operates else 403)
            assert ('action="/do/topic-save"' in await browser.text("/topics/t/edit")) == operates
            answer = await browser.send("topic-delete", {"topics": "t", "typed": "no"})
            assert answer.status_code == (400 if rules else 403)
            left = await browser.http.post(
                "/leave", data={"form_token": await browser.token()}, headers=ORIGIN
            )
            assert left.status_code == 200
            assert (await browser.get("/topics")).status_code == 303


@pytest.mark.behaviour("CS-30")
async def test_failed_logins_slow_their_address_and_user_down(
    orbitmq_world: World, users: Mapping[str, User]
) -> None:
    async with console(orbitmq_world, entrance=by_file(orbitmq_world, users)) as browser:
        for name in ("admin", "nobody", "known"):
            answer = await log_in(browser, name, "wrong")
            assert (answer.status_code, "user or the password is wrong" in answer.text) == (403, True)
        answer = await log_in(browser, "admin", PASSWORD)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        await orbitmq_world.sleep(1)
        assert (await log_in(browser, "admin", "wrong")).status_code == 403
        assert (await log_in(browser, "admin", PASSWORD)).headers["retry-after"] == "2"
        await orbitmq_world.sleep(2)
        assert (await log_in(browser, "admin", PASSWORD)).status_code == 303
        assert [one.outcome for one in browser.console.audit.entries()].count("done") == 1
        foreign = await browser.http.post("/login", data={"user": "admin", "password": PASSWORD})
        assert foreign.status_code == 403


@pytest.mark.behaviour("CS-30")
async def test_of_a_thousand_logins_at_once_few_are_looked_at(orbitmq_world: World) -> None:
    looked = 0

    class Slow:
        async def enter(self, name: str, password: str) -> None:
            nonlocal looked
            looked += 1
            await asyncio.sleep(1)

    desk = Desk(Slow(), orbitmq_world.runtime.clock.monotonic, by_address=False)
    async with console(orbitmq_world, entrance=Entrance(HOSTS, by_link=False, desk=desk)) as browser:
        answers = await asyncio.gather(*(log_in(browser, f"user{number}", "wrong") for number in range(1000)))
        codes = [one.status_code for one in answers]
        assert looked == codes.count(403) == MOST_WAITING
        assert codes.count(429) == 1000 - MOST_WAITING
        assert browser.console.sessions.of("") is None


@pytest.mark.orbitmq(settings=KEYS)
@pytest.mark.behaviour("CS-31")
async def test_users_of_the_cluster_log_in_and_the_brokers_decide(orbitmq_world: World) -> None:
    root = Credentials("root", "root-secret-1")
    async with Admin(orbitmq_world.name_server, runtime=orbitmq_world.runtime, credentials=root) as admin:
        await admin.access.create_user("app", "app-secret-1")
        await admin.access.create_user("gone", "gone-secret-1")
        await admin.access.change_user("gone", is_enabled=False)
    async with console(orbitmq_world, entrance=by_cluster(orbitmq_world)) as browser:
        for name, secret in (
            ("root", "wrong"),
            ("nobody", "x"),
            ("gone", "gone-secret-1"),
            ("", ""),
            (" ", " "),
        ):
            assert (await log_in(browser, name, secret)).status_code == 403
            await orbitmq_world.sleep(1000)
        assert (await log_in(browser, "app", "app-secret-1")).status_code == 303
        refused = await browser.send("topic-save", {"topic": "t", "queues": "1", "permission": "read"})
        assert (refused.status_code, "does not permit" in refused.text) == (400, True)
        assert "The only broker refuses to show its status to this user." in await browser.text("/")
        assert [one["state"] for one in (await browser.json("/brokers"))["brokers"]] == ["refuses"]
        browser.http.cookies.clear()
        assert (await log_in(browser, "root", "root-secret-1")).status_code == 303
        assert "Topic t is saved" in await browser.done(
            "topic-save", {"topic": "t", "queues": "1", "permission": "read"}
        )
        users = (await browser.json("/access"))["users"]
        assert [(one["user"], one["kind"], one["state"]) for one in users] == [
            ("app", "normal", "ok"),
            ("gone", "normal", "off"),
            ("root", "super", "ok"),
        ]
        for path in ("/access", "/brokers", "/audit", "/session"):
            assert "-secret-1" not in (await browser.get(f"/api/v1{path}")).text


@pytest.mark.behaviour("CS-31")
async def test_a_cluster_that_checks_no_keys_lets_nobody_in(orbitmq_world: World) -> None:
    async with console(orbitmq_world, entrance=by_cluster(orbitmq_world)) as browser:
        answer = await log_in(browser, "root", "anything")
        assert (answer.status_code, "no broker that answers checks keys" in answer.text) == (400, True)
        assert (await browser.get("/")).status_code == 303


@pytest.mark.behaviour("CS-29")
async def test_a_proxy_names_the_user_and_no_other_peer_does(
    orbitmq_world: World, users: Mapping[str, User]
) -> None:
    here = Entrance(HOSTS, by_link=False, proxy=ProxyUsers("X-User", frozenset({"127.0.0.1"}), users))
    async with console(orbitmq_world, entrance=here) as browser:
        for headers in ({}, {"X-User": "stranger"}, [("X-User", "admin"), ("X-User", "viewer")]):
            assert (await browser.http.get("/", headers=headers)).status_code == 403
        for name in ("known", "admin"):
            browser.http.headers["X-User"] = name
            assert (await browser.get("/")).status_code == 303
            assert (await browser.json("/session"))["user"] == name
    elsewhere = Entrance(HOSTS, by_link=False, proxy=ProxyUsers("X-User", frozenset({"10.0.0.1"}), users))
    async with console(orbitmq_world, entrance=elsewhere) as browser:
        assert (await browser.http.get("/", headers={"X-User": "admin"})).status_code == 403


@pytest.mark.behaviour("CS-20")
async def test_with_https_the_cookie_is_secure_and_forms_of_http_are_refused(orbitmq_world: World) -> None:
    async with console(orbitmq_world, write=True, entrance=Entrance(HOSTS, "https")) as browser:
        answer = await browser.get("/", token=browser.console.sessions.token)
        assert "Secure" in answer.headers["set-cookie"]
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        http = await browser.http.post("/login", data={}, headers=ORIGIN)
        assert http.status_code == 401


@pytest.mark.behaviour("CS-20")
async def test_a_session_that_was_left_is_over(orbitmq_world: World) -> None:
    async with opened(orbitmq_world) as browser:
        token = await browser.token()
        assert (
            await browser.http.post("/leave", data={"form_token": "x"}, headers=ORIGIN)
        ).status_code == 409
        assert (await browser.http.post("/leave", data={"form_token": token})).status_code == 403
        assert (await browser.get("/")).status_code == 200
        token = await browser.token()
        left = await browser.http.post("/leave", data={"form_token": token}, headers=ORIGIN)
        assert (left.status_code, "logged out" in left.text) == (200, True)
        assert (await browser.get("/")).status_code == 401


@pytest.mark.behaviour("CS-31")
async def test_a_rocketmq_cluster_without_authentication_has_no_users(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its brokers refuse each request with one certain remark, as 5.5.0 does; any other error stays
    an error.
    """
    remarks: dict[int, str] = {
        RequestCode.AUTH_LIST_USER: "An system error occurred, please try again later.",
        RequestCode.AUTH_LIST_ACL: "java.lang.IllegalStateException: The authorizationMetadataProvider is "
        "not configured., org.apache",
    }
    ask = ClusterClient.ask

    async def of_java(cluster: ClusterClient, address: str, command: Command, **options: Any) -> Command:
        if command.code in remarks:
            raise error_of(command, Command(1, remark=remarks[command.code]), address)
        return await ask(cluster, address, command, **options)

    monkeypatch.setattr(ClusterClient, "ask", of_java)
    async with opened(orbitmq_world) as browser:
        assert "authentication is off" in await browser.text("/access")
        remarks[RequestCode.AUTH_LIST_USER] = remarks[RequestCode.AUTH_LIST_ACL]
        await orbitmq_world.sleep(3)
        assert "authentication is off" in await browser.text("/access")
        remarks[RequestCode.AUTH_LIST_USER] = "java.lang.NullPointerException"
        await orbitmq_world.sleep(3)
        assert (await browser.get("/access")).status_code == 400
