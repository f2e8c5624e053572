"""The console with stale forms, failing brokers, large or hostile texts, and browsers that leave."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.conversation.console_browser import ORIGIN, TOKEN, Browser, leaving, opened, sent
from tests.conversation.test_console import EVERY, filled

from orbitmq import Message
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.console.bodies import MOST_BYTES
from orbitmq.console.search import Found, Search
from orbitmq.console.sessions import MOST_FORMS
from orbitmq.testing import World
from orbitmq.wire.command import Command

MARKUP = "<script>alert(1)</script><p hx-get='/' hx-on:click='x' onclick=\"x\">"
FOUR_MIB = 4 * 1024 * 1024
TOPIC = {"queues": "1", "permission": "read+write", "type": ""}


async def token_of(browser: Browser, path: str) -> str:
    """The token of the forms of a page, as a tab of the browser has it."""
    found = TOKEN.search(await browser.text(path))
    assert found is not None
    return found[1]


async def save(browser: Browser, name: str, token: str) -> int:
    """Submit the form for a topic; returns the status of the response."""
    form = {**TOPIC, "topic": name, "form_token": token}
    return (await browser.http.post("/do/topic-save", data=form, headers=ORIGIN)).status_code


@pytest.mark.behaviour("CS-24")
async def test_forms_of_two_tabs_count_each_and_in_any_order(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        first = await token_of(browser, "/topics/~new")
        second = await token_of(browser, "/topics/~new")
        assert await save(browser, "of-the-second", second) == 303
        assert await save(browser, "again", second) == 409
        assert await save(browser, "of-the-first", first) == 303
        assert {"of-the-first", "of-the-second"} <= set(await admin.topics.list())
        assert "again" not in await admin.topics.list()


@pytest.mark.behaviour("CS-24")
async def test_a_form_is_stale_after_many_others_and_when_another_tab_logged_out(
    orbitmq_world: World,
) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        oldest = await token_of(browser, "/topics/~new")
        for _ in range(MOST_FORMS):
            newest = await token_of(browser, "/audit")
        form = {**TOPIC, "topic": "t", "form_token": oldest}
        answer = await browser.http.post("/do/topic-save", data=form, headers=ORIGIN)
        assert (answer.status_code, "too old" in answer.text) == (409, True)
        left = await token_of(browser, "/audit")
        assert (
            await browser.http.post("/leave", data={"form_token": left}, headers=ORIGIN)
        ).status_code == 200
        assert await save(browser, "t", newest) == 401
        assert not browser.console.audit.entries()


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-22")
@pytest.mark.parametrize(
    "path", ["/", "/topics", "/topics/t", "/groups", "/groups/g", "/brokers", "/clients"]
)
async def test_a_broker_that_goes_in_the_middle_of_a_page_is_named(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The broker stops after its first response to the page."""
    await filled(orbitmq_world)
    address = orbitmq_world.brokers["broker-b"].address
    ask, clock = ClusterClient.ask, orbitmq_world.runtime.clock
    asked = 0

    async def stopping(cluster: ClusterClient, to: str, command: Command, **options: Any) -> Command:
        nonlocal asked
        asked += 1
        if asked == 2:
            await orbitmq_world.stop_broker("broker-b")
        return await ask(cluster, to, command, **options)

    async with opened(orbitmq_world) as browser:
        monkeypatch.setattr(ClusterClient, "ask", stopping)
        begin = clock.monotonic()
        answer = await browser.get(path)
        assert asked >= 2
        assert clock.monotonic() - begin <= 2.5
        assert answer.status_code == 200, answer.text
        said = "no answer" if path == "/brokers" else "No answer from"
        assert address in answer.text.partition(said)[2]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-22")
async def test_pages_of_single_things_take_two_seconds_beside_a_broker_that_hangs(
    orbitmq_world: World,
) -> None:
    (message_id,) = await sent(orbitmq_world, "t", b"1")
    async with orbitmq_world.admin() as admin:
        await admin.groups.create("g")
    await orbitmq_world.stop_broker("broker-b")
    await orbitmq_world.machines["broker-b"].begin(orbitmq_world.start_broker("broker-b"))
    await orbitmq_world.sleep(3)
    clock, machine = orbitmq_world.runtime.clock, orbitmq_world.machines["broker-b"]
    async with opened(orbitmq_world, write=True) as browser:
        machine.freeze()
        for path in (
            "/topics/t",
            "/topics/t/edit",
            "/topics/~delete?chosen=t",
            "/groups/g",
            "/groups/g/edit",
            "/groups/g/delete",
            "/groups/g/reset",
            "/groups/g/reset?topic=t&to=last",
            "/clients/g?id=x",
            f"/messages/{message_id}?topic=t",
            "/messages?topic=t&key=k",
            "/dead-letters/g",
            "/timers?id=AA",
            f"/brokers/{orbitmq_world.brokers['broker-a'].address}",
        ):
            begin = clock.monotonic()
            answer = await browser.get(path)
            assert clock.monotonic() - begin <= 2, path
            assert answer.status_code in (200, 400), path
        machine.thaw()


@pytest.mark.behaviour("CS-21")
async def test_a_body_of_four_mib_is_shown_in_part_and_downloaded_whole(orbitmq_world: World) -> None:
    begin = MARKUP.encode() + b"\xff\xfe"
    body = begin + b"x" * (FOUR_MIB - len(begin) - 1024)
    (message_id,) = await sent(orbitmq_world, "t", body)
    await orbitmq_world.sleep(2)
    async with opened(orbitmq_world, write=True) as browser:
        for query in ({"form": "text"}, {"form": "json"}, {"form": "hex"}):
            page = await browser.text(f"/messages/{message_id}", topic="t", **query)
            assert len(page) < 6 * MOST_BYTES
            assert "4.0 MiB" in page
            assert not re.search(r"<script|<[^>]*\s(hx-|on\w+=)", page)
        for path in ("/messages?topic=t", "/messages?topic=t&key=k"):
            page = await browser.text(path)
            assert len(page) < 64 * 1024
            assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;p hx-get=" in page
            assert not re.search(r"<script|<[^>]*\s(hx-|on\w+=)", page)
        assert (await browser.get(f"/messages/{message_id}/download", topic="t")).content == body
        large = await browser.send("message-send", {"topic": "t", "body": "x" * FOUR_MIB})
        assert (large.status_code, "larger than 1 MiB" in large.text) == (413, True)


@pytest.mark.behaviour("CS-21")
async def test_markup_in_names_and_messages_is_escaped_on_every_page(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)
    async with world.producer() as producer:
        made = Message("t", MARKUP.encode(), tags=MARKUP, keys="k", properties={MARKUP: MARKUP})
        message_id = (await producer.send(made)).message_id
    async with (
        world.consumer("g", client_id=MARKUP.replace(" ", "/")) as consumer,
        opened(world, write=True) as browser,
    ):
        consumer.subscribe("t")
        await world.sleep(5)
        (member,) = (await browser.json("/groups/g"))["members"]
        assert "<p/hx-get" in member["member"]
        (address,) = (one["address"] for one in (await browser.json("/brokers"))["brokers"])
        for path, query in (
            ("/messages", {"topic": "t"}),
            (f"/messages/{message_id}", {"topic": "t"}),
            ("/groups/g", {}),
            ("/clients", {}),
            ("/clients/g", {"id": member["member"], "stacks": "1"}),
            (f"/brokers/{address}", {}),
        ):
            page = await browser.text(path, **query)
            assert "&lt;script&gt;" in page, path
            assert not re.search(r"<script|<[^>]*\s(hx-|on\w+=)", page), path


@pytest.mark.behaviour("CS-21")
async def test_bytes_that_are_no_text_are_answered(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        for path in EVERY:
            answer = await browser.http.get(
                path, params={"find": b"\xff", "sort": b"\xff\x00", "page": b"-\xff"}
            )
            assert answer.status_code in (200, 400), path
        for path in (
            "/topics/%ff",
            "/topics/%00",
            "/groups/%c3%28",
            "/messages/%ff",
            "/@%ff/",
            "/%ff/%ff/%ff",
        ):
            assert (await browser.get(path)).status_code in (200, 400, 404), path
        for body in (b"\xff\xfe", b"form_token=%ff", b"form_token", b"&&&=&", b""):
            answer = await browser.http.post("/do/topic-save", content=body, headers=ORIGIN)
            assert answer.status_code in (400, 409), body
        cookie = {"Cookie": b"orbitmq_console=\xff\xfe"}
        browser.http.cookies.clear()
        assert (await browser.http.get("/", headers=cookie)).status_code == 401  # type: ignore[arg-type]


@pytest.mark.behaviour("CS-27")
async def test_a_search_ends_when_the_browser_stops_it(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(orbitmq_world, "t", b"1")
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(*_: object, **__: object) -> Found:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with opened(orbitmq_world) as browser:
        monkeypatch.setattr(Search, "run", endless)
        async with leaving(browser, "/messages", "topic=t"):
            await begun.wait()
            await orbitmq_world.sleep(1)
            assert not ended.is_set()
        assert ended.is_set()
