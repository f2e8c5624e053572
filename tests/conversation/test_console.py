"""The console's pages over a cluster in memory, requested as by a browser."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.conversation.console_browser import console, opened, sent

from orbitmq import ConsumeFrom
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

EVERY = (
    "/",
    "/topics",
    "/topics/t",
    "/topics/~new",
    "/topics/t/edit",
    "/topics/t/send",
    "/topics/~delete?chosen=t",
    "/groups",
    "/groups/g",
    "/groups/~new",
    "/groups/g/edit",
    "/groups/g/delete",
    "/groups/g/reset",
    "/groups/g/reset?topic=t&to=last",
    "/messages",
    "/messages?topic=t",
    "/dead-letters",
    "/dead-letters/g",
    "/brokers",
    "/clients",
    "/timers",
    "/traces",
    "/access",
    "/audit",
)


async def filled(world: World) -> None:
    """Create a topic t with a message, and a group g."""
    await sent(world, "t", b"1")
    async with world.admin() as admin:
        await admin.groups.create("g")


@pytest.mark.behaviour("CS-20")
async def test_a_token_opens_one_session_and_only_for_ten_minutes(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with console(orbitmq_world) as browser:
        token = browser.console.sessions.token
        for path in (*EVERY, "/api/v1/topics", "/none"):
            assert (await browser.get(path)).status_code == 401
        assert (await browser.get("/", token="x")).status_code == 401
        answer = await browser.get("/", token=token)
        assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
        assert [(path, (await browser.get(path)).status_code) for path in EVERY] == [
            (path, 200) for path in EVERY
        ]
        browser.http.cookies.clear()
        assert (await browser.get("/", token=token)).status_code == 401
    async with console(orbitmq_world) as browser:
        await orbitmq_world.sleep(601)
        assert (await browser.get("/", token=browser.console.sessions.token)).status_code == 401


@pytest.mark.behaviour("CS-20")
async def test_an_idle_session_ends(orbitmq_world: World) -> None:
    async with opened(orbitmq_world) as browser:
        await orbitmq_world.sleep(1700)
        assert (await browser.get("/")).status_code == 200
        await orbitmq_world.sleep(1801)
        assert (await browser.get("/")).status_code == 401


@pytest.mark.behaviour("CS-21")
async def test_every_answer_forbids_scripts_and_foreign_hosts_get_none(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        for path in (*EVERY, "/static/console.css", "/static/icon.svg", "/api/v1/topics", "/none"):
            answer = await browser.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'self'")
            assert answer.headers["cache-control"] == "no-store"
            assert not re.search(
                r"<script|<style|\sstyle=|\son\w+=|javascript:|https?://(?!www.w3.org)", answer.text
            )
        foreign = await browser.http.get("/", headers={"Host": "evil.example"})
        assert foreign.status_code == 421
        assert "content-security-policy" in foreign.headers
        twice = await browser.http.get("/", headers=[("Host", "127.0.0.1:8082"), ("Host", "evil.example")])
        assert twice.status_code == 421


@pytest.mark.behaviour("CS-21")
async def test_names_from_the_cluster_are_escaped(orbitmq_world: World) -> None:
    name = "<script>alert(1)</script>"
    async with opened(orbitmq_world) as browser:
        for path in ("/topics", "/groups", "/clients/g", "/messages", "/traces"):
            answer = await browser.get(path, find=name, topic=name, id=name, sort=name, page=name, csv="")
            assert "<script" not in answer.text


@pytest.mark.behaviour("CS-22")
async def test_pages_show_topics_groups_and_brokers_and_change_nothing(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with orbitmq_world.admin() as admin:
        before = (await admin.groups.list(system=True)).whole()
        async with opened(orbitmq_world) as browser:
            for path in EVERY:
                await browser.get(path)
            topics = (await browser.json("/topics"))["topics"]
            assert [(one["topic"], one["queues"]) for one in topics] == [("t", 2)]
            queues = (await browser.json("/topics/t"))["queues"]
            assert sum(one["messages"] for one in queues) == 1
            assert [one["oldest_message"] == one["newest"] for one in queues] == [True, True]
            groups = (await browser.json("/groups"))["groups"]
            assert [(one["group"], one["lag"], one["brokers"]) for one in groups] == [("g", 0, "broker-a")]
            assert "g is not behind" in await browser.text("/groups/g")
            brokers = (await browser.json("/brokers"))["brokers"]
            settings = (await browser.json(f"/brokers/{brokers[0]['address']}"))["settings"]
            assert ("brokerName", "broker-a") in [(one["name"], one["value"]) for one in settings]
            assert "no broker is registered" in (await browser.text("/brokers/10.0.0.1:1")).lower()
            assert (await browser.get("/groups/none")).status_code == 400
            assert (await browser.get("/topics/t/none")).status_code == 404
            overview = await browser.json("/")
            assert overview["sentence"] == "The broker answers; no group is behind."
        assert (await admin.groups.list(system=True)).whole() == before


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-22")
async def test_the_overview_asks_each_broker_once_for_all_lags(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(orbitmq_world, "t", b"1", b"2", b"3", b"4")
    for group in ("g1", "g2", "g3"):
        async with orbitmq_world.consumer(group, consume_from=ConsumeFrom.LAST) as consumer:
            consumer.subscribe("t")
            await orbitmq_world.sleep(10)
    await sent(orbitmq_world, "t", *[b"more"] * 6)
    async with orbitmq_world.admin() as admin:
        lags = {
            group: sum(one.lag for one in (await admin.groups.lag(group)).whole())
            for group in ("g1", "g2", "g3")
        }
        assert min(lags.values()) >= 6
        assert (await admin.groups.lags()).whole() == lags
    async with opened(orbitmq_world) as browser:
        asked: list[int] = []
        ask = ClusterClient.ask

        async def listened(cluster: ClusterClient, address: str, command: Command) -> Command:
            asked.append(command.code)
            return await ask(cluster, address, command)

        monkeypatch.setattr(ClusterClient, "ask", listened)
        overview = await browser.json("/")
        assert {one["group"]: one["lag"] for one in overview["lags"]} == lags
        each = (RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert sorted(asked) == sorted(each * 2)


@pytest.mark.behaviour("CS-22")
async def test_viewers_share_a_page_for_two_seconds(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world) as browser, orbitmq_world.admin() as admin:
        await browser.json("/topics")
        await admin.topics.create("u")
        assert len((await browser.json("/topics"))["topics"]) == 1
        await orbitmq_world.sleep(2)
        assert len((await browser.json("/topics"))["topics"]) == 2


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-22")
async def test_a_page_names_the_broker_that_does_not_answer_within_two_seconds(orbitmq_world: World) -> None:
    # Start the broker again, in a process that can be frozen.
    await orbitmq_world.stop_broker("broker-b")
    await orbitmq_world.machines["broker-b"].begin(orbitmq_world.start_broker("broker-b"))
    await orbitmq_world.sleep(1)
    async with opened(orbitmq_world) as browser:
        await orbitmq_world.sleep(3)
        orbitmq_world.machines["broker-b"].freeze()
        clock = orbitmq_world.runtime.clock
        for path in ("/", "/topics", "/groups", "/brokers"):
            begin = clock.monotonic()
            page = await browser.text(path)
            assert clock.monotonic() - begin <= 2
            assert re.search(r"broker-b(.|\n)*no answer|broker-b at ", page)
        orbitmq_world.machines["broker-b"].thaw()


@pytest.mark.behaviour("CS-22")
async def test_a_cluster_that_is_away_is_named(orbitmq_world: World) -> None:
    async with opened(orbitmq_world) as browser:
        await orbitmq_world.stop_name_server()
        for path in (
            "/",
            "/topics",
            "/groups",
            "/brokers",
            "/dead-letters",
            "/clients",
            "/timers",
            "/access",
        ):
            answer = await browser.get(path)
            assert answer.status_code == 400
            assert orbitmq_world.name_server in answer.text
            failed = await browser.get(f"/api/v1{path}")
            assert orbitmq_world.name_server in failed.json()["error"]


@pytest.mark.behaviour("CS-23")
async def test_a_long_table_is_searched_sorted_paged_and_taken_as_csv(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        await asyncio.gather(
            *(admin.topics.create(f"t-{number:03}", queues=1 + number % 2) for number in range(120))
        )
    async with opened(orbitmq_world) as browser:
        first = await browser.text("/topics")
        assert "t-099" in first
        assert "t-100" not in first
        assert "t-100" in await browser.text("/topics", page="2")
        assert "t-119" in await browser.text("/topics", page="999999999999")
        found = await browser.text("/topics", find="T-11")
        assert ("t-110" in found, "t-010" in found) == (True, False)
        down = await browser.text("/topics", sort="-topic")
        assert down.index("t-119") < down.index("t-118")
        table = await browser.get("/topics", csv="topics")
        assert table.headers["content-disposition"] == 'attachment; filename="topics.csv"'
        assert table.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert len(table.text.splitlines()) == 121
        assert (await browser.get("/topics", csv="none")).status_code == 404


@pytest.mark.behaviour("CS-23")
async def test_each_page_leads_to_its_own_json(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        for path in EVERY:
            found = re.search(r'<a href="(/api/v1[^"]*)">JSON</a>', await browser.text(path))
            assert found is not None
            assert found[1].replace("&amp;", "&") == f"/api/v1{path}"
            assert (await browser.get(found[1].replace("&amp;", "&"))).status_code == 200


@pytest.mark.behaviour("CS-23")
async def test_the_pages_are_in_english_or_chinese(orbitmq_world: World) -> None:
    async with console(orbitmq_world) as browser:
        chinese = {"Accept-Language": "zh-CN,zh;q=0.9"}
        assert (await browser.get("/")).status_code == 401
        token = browser.console.sessions.token
        await browser.http.get("/", params={"token": token}, headers=chinese)
        assert '<html lang="zh">' in await browser.text("/")
        assert "主题" in await browser.text("/topics")
        assert "Topics" in await browser.text("/topics", lang="en")
        assert '<html lang="en">' in await browser.text("/")
        assert '<html lang="en">' in await browser.text("/", lang="xx")
