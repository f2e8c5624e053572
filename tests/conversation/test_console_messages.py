"""Searches for messages in the console: by id and key, from an offset on, within the limits of a search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.conversation.console_browser import Browser, leaving, opened, sent
from tests.conversation.scripted import running

from orbitmq import ConsumeFrom, Message, Reader, ReadStep, ReceivedMessage
from orbitmq.console import search, ways
from orbitmq.console.ways import MOST_SEARCHES
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World

NASTY = b"<script>alert(1)</script>\xff"


@pytest.mark.behaviour("CS-21")
async def test_a_body_is_shown_escaped_and_downloaded_as_an_attachment(orbitmq_world: World) -> None:
    (message_id,) = await sent(orbitmq_world, "t", NASTY)
    await orbitmq_world.sleep(2)
    async with opened(orbitmq_world) as browser:
        page = await browser.text(f"/messages/{message_id}", topic="t")
        assert "&lt;script&gt;" in page
        assert "<script" not in page
        assert f"<h1>{message_id}</h1>" in await browser.text("/messages", topic="t", id=message_id)
        found = (await browser.json("/messages", topic="t", key="k"))["messages"]
        assert [one["message"] for one in found] == [message_id]
        raw = await browser.get(f"/messages/{message_id}/download", topic="t")
        assert raw.content == NASTY
        assert raw.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in raw.headers["content-security-policy"]
        assert "orbitmq message get" in page
        assert "3c 73 63" in await browser.text(f"/messages/{message_id}", topic="t", form="hex")
        unknown = await browser.get("/messages/nothing", topic="t")
        assert unknown.status_code == 400


async def numbered(world: World, count: int, queues: int = 2) -> None:
    """Send messages 0 to ``count`` - 1 of topic t, a second apart; the even ones have the tag even."""
    async with world.admin() as admin:
        await admin.topics.create("t", queues=queues)
    async with world.producer() as producer:
        for number in range(count):
            tag = "odd" if number % 2 else "even"
            await producer.send(Message("t", b"%d" % number, tags=tag, properties={"n": str(number)}))
            await world.sleep(1)


async def bodies(browser: Browser, **query: str) -> list[int]:
    found = (await browser.json("/messages", topic="t", **query))["messages"]
    return [int(one["body"]) for one in found]


@pytest.mark.behaviour("CS-27")
async def test_messages_are_read_from_an_end_a_time_or_an_offset_and_filtered(orbitmq_world: World) -> None:
    await numbered(orbitmq_world, 20)
    async with opened(orbitmq_world) as browser:
        assert await bodies(browser) == list(range(19, -1, -1))
        assert await bodies(browser, **{"from": "first"}) == list(range(20))
        assert await bodies(browser, **{"from": "time", "time": "5s"}) == [16, 17, 18, 19]
        one_queue = await bodies(browser, broker="broker-a", queue="0", offset="8")
        assert len(one_queue) == 2
        assert await bodies(browser, **{"from": "first", "tag": "odd"}) == list(range(1, 20, 2))
        assert await bodies(browser, **{"from": "first", "sql": "n > 16"}) == [17, 18, 19]
        assert await bodies(browser, tag="none") == []


@pytest.mark.behaviour("CS-27")
async def test_a_search_that_cannot_be_meant_is_refused(orbitmq_world: World) -> None:
    await numbered(orbitmq_world, 2)
    async with opened(orbitmq_world) as browser:
        for fields, what in (
            ({"tag": "a", "sql": "b = 1"}, "not both"),
            ({"sql": "n >"}, "n"),
            ({"from": "time", "time": "soon"}, "time: soon: expected a time"),
            ({"offset": "3"}, "an offset belongs to one queue"),
            ({"broker": "broker-a", "queue": "0", "offset": "-1"}, "offset: expected a number from 0 on"),
            ({"broker": "broker-a", "queue": "7", "offset": "1"}, "has no queue broker-a:7"),
            ({"cursor": "x"}, "cursor: x: expected BROKER:QUEUE:OFFSET"),
            ({"cursor": "0:1"}, "cursor: 0:1: expected BROKER:QUEUE:OFFSET"),
            ({"cursor": f"{'b' * 128}:0:1"}, "expected BROKER:QUEUE:OFFSET"),
            ({"cursor": f"broker-a:0:{2**63}"}, "expected BROKER:QUEUE:OFFSET"),
            ({"cursor": "broker-a:0:1,0:2"}, "cursor: queue broker-a:0 is there twice"),
            ({"cursor": ",".join(["broker-a:0:1"] * 1001)}, "cursor: it has more than 1000 queues"),
            ({"cursor": "broker-a:7:1"}, "broker-a"),
            ({"cursor": "nobody:0:1"}, "nobody"),
            ({"topic": "none"}, "none"),
        ):
            answer = await browser.get("/messages", **{"topic": "t", **fields})
            assert (answer.status_code, what in answer.text) == (400, True), fields


@pytest.mark.behaviour("CS-27")
async def test_a_search_ends_at_its_limit_says_so_and_goes_on(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(orbitmq_world, 30, queues=3)
    monkeypatch.setattr(search, "MOST_SHOWN", 7)
    async with opened(orbitmq_world) as browser:
        seen: list[int] = []
        path = "/messages?topic=t&from=first"
        for _ in range(30):
            seen += [int(one["body"]) for one in (await browser.json(path))["messages"]]
            page = await browser.text(path)
            if "Continue the search" not in page:
                break
            assert "There are more: a page shows 7." in page
            path = page.split('">Continue the search')[0].rsplit('href="', 1)[1].replace("&amp;", "&")
        assert sorted(seen) == list(range(30))


@pytest.mark.behaviour("CS-27")
async def test_a_message_says_which_groups_have_passed_it(orbitmq_world: World) -> None:
    ids = await sent(orbitmq_world, "t", b"0", b"1", queues=1)
    async with orbitmq_world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("t")
        async for message in consumer.messages(auto_ack=False):
            message.ack()
            break
    await orbitmq_world.sleep(2)
    async with opened(orbitmq_world) as browser:
        states = [
            (await browser.json(f"/messages/{message_id}", topic="t"))["groups"][0]["state"]
            for message_id in ids
        ]
        assert states == ["passed", "waiting"]


@pytest.mark.behaviour("CS-27")
async def test_many_searches_at_once_are_refused(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    async with opened(orbitmq_world) as browser:
        answers = await asyncio.gather(*(browser.get("/messages", topic="t") for _ in range(20)))
        codes = [one.status_code for one in answers]
        assert codes.count(200) >= MOST_SEARCHES
        assert codes.count(200) + sum("searches are under way" in one.text for one in answers) == 20
        assert (await browser.get("/messages", topic="t")).status_code == 200


@pytest.mark.behaviour("CS-27")
async def test_pages_of_a_topic_with_a_percent_sign_lead_on(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "%RETRY%g", b"1")
    async with opened(orbitmq_world) as browser:
        page = await browser.text("/topics/%25RETRY%25g")
        assert 'href="/messages?topic=%25RETRY%25g"' in page
        assert 'href="/topics/%25RETRY%25g/send"' not in page  # clients only read retry topics
        (row,) = (await browser.json("/messages", topic="%RETRY%g"))["messages"]
        assert (await browser.json(f"/messages/{row['message']}", topic="%RETRY%g"))["facts"]["size"] == 1


@pytest.mark.behaviour("CS-27")
async def test_the_newest_messages_can_be_followed(orbitmq_world: World) -> None:
    await numbered(orbitmq_world, 3)
    async with opened(orbitmq_world) as browser:
        page = await browser.text("/messages", topic="t", tail="1")
        assert '<meta http-equiv="refresh" content="2">' in page
        assert "refresh" not in await browser.text("/messages", topic="t")


def test_a_cursor_is_read_as_it_was_written() -> None:
    after = {
        MessageQueue("t", broker, queue): offset
        for broker, queue, offset in (("b", 0, 2**63 - 1), ("a:b", 3, 17), ("a:b", 2, 0))
    }
    cursor = search.cursor_of(after)
    assert cursor == f"a:b:2:0,3:17,b:0:{2**63 - 1}"
    assert search.places("t", cursor) == after


async def needles(browser: Browser, **query: str) -> tuple[list[int], list[int]]:
    """The messages that all pages of a search find, and the number that each page has read."""
    found: list[int] = []
    read: list[int] = []
    for _ in range(30):
        page = await browser.json("/messages", topic="t", **query)
        found += [int(one["body"]) for one in page["messages"]]
        read.append(int(page["sentence"].split("; ")[1].split()[0]))
        if "cursor" not in page:
            break
        query = {**query, "cursor": page["cursor"]}
    return found, read


@pytest.mark.behaviour("CS-53")
@pytest.mark.parametrize("begin", ["first", "newest"])
async def test_a_search_that_finds_nothing_for_long_ends_and_is_continued(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    await numbered(orbitmq_world, 30, queues=3)
    async with orbitmq_world.producer() as producer:
        await producer.send(Message("t", b"30", tags="needle"))
    monkeypatch.setattr(search, "MOST_READ", 8)
    async with opened(orbitmq_world) as browser:
        found, read = await needles(browser, **{"from": begin, "tag": "needle"})
        assert found == [30]
        assert len(read) > 1
        assert sum(read) == 31
        page = await browser.text("/messages", topic="t", **{"from": begin, "tag": "needle"})
        assert "The search ended after" in page
        assert "Continue the search" in page
    monkeypatch.setattr(search, "MOST_QUEUES", 2)
    async with opened(orbitmq_world) as browser:
        page = await browser.text("/messages", topic="t", **{"from": begin, "tag": "needle"})
        assert "too many queues to be continued (more than 2)" in page
        assert "Continue the search" not in page


class Slow(Reader):
    """A reader of a cluster that needs six seconds for one of its lists."""

    async def steps(self) -> AsyncGenerator[ReadStep, None]:
        async for step in super().steps():
            yield step
            await self._clock.sleep(6)


@pytest.mark.behaviour("CS-53")
async def test_a_search_that_takes_ten_seconds_ends_and_is_continued(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(orbitmq_world, 12, queues=6)
    monkeypatch.setattr(ways, "Reader", Slow)
    async with opened(orbitmq_world) as browser:
        page = await browser.text("/messages?topic=t&from=first")
        assert "The search ended after 10 s and 4 messages." in page
        found, read = await needles(browser, **{"from": "first"})
        assert sorted(found) == list(range(12))
        assert read[:3] == [4, 4, 4]


@pytest.mark.behaviour("CS-53")
async def test_a_search_that_the_browser_stopped_is_continued_with_what_it_had_found(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(orbitmq_world, 12, queues=6)
    async with opened(orbitmq_world) as browser:
        with monkeypatch.context() as patch:
            patch.setattr(ways, "Reader", Slow)
            async with leaving(browser, "/messages", "topic=t&from=first&tag=odd"):
                await orbitmq_world.sleep(8)
        page = await browser.text("/messages")
        link = page.split('">Continue the search that was stopped')[0].rsplit('href="', 1)[1]
        assert "cursor=broker-a" in link
        rest = await browser.json(link.replace("&amp;", "&"))
        assert [int(one["body"]) for one in rest["messages"]] == [1, 3, 5, 7, 9, 11]
        assert "that was stopped" not in await browser.text("/messages")


@pytest.mark.behaviour("CS-27")
async def test_messages_of_a_key_are_found_by_time(orbitmq_world: World) -> None:
    await sent(orbitmq_world, "t", b"1")
    await orbitmq_world.sleep(100)
    await sent(orbitmq_world, "t", b"2")
    await orbitmq_world.sleep(2)
    async with opened(orbitmq_world) as browser:
        assert await bodies(browser, key="k") == [1, 2]
        assert await bodies(browser, key="k", since="50s") == [2]
        assert await bodies(browser, key="k", until="50s") == [1]
        wrong = await browser.get("/messages", topic="t", key="k", since="soon")
        assert (wrong.status_code, "since: soon: expected a time" in wrong.text) == (400, True)


@pytest.mark.behaviour("CS-42")
async def test_a_member_consumes_a_message_from_its_page(orbitmq_world: World) -> None:
    handled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    (message_id,) = await sent(orbitmq_world, "t", b"1")
    consumer = orbitmq_world.consumer("g", consume_from=ConsumeFrom.FIRST)
    async with running(consumer, handle, "t"), opened(orbitmq_world, write=True) as browser:
        await orbitmq_world.sleep(5)
        [member] = (await browser.json("/groups/g"))["members"]
        page = await browser.text(f"/messages/{message_id}", topic="t")
        # The member is chosen from a list instead of typed.
        assert f"<option>g {member['member']}</option>" in page
        fields = {"id": message_id, "topic": "t", "member": f"g {member['member']}"}
        said = await browser.done("message-consume", fields)
        assert said == f"{member['member']} answers after 0.0 s: success"
        assert handled == [b"1", b"1"]
        for wrong, what in (("", "the field is empty"), ("g", "expected a group and the client id")):
            answer = await browser.send("message-consume", {**fields, "member": wrong})
            assert (answer.status_code, f"member: {what}" in answer.text) == (400, True)
        assert (await browser.json("/audit"))["changes"][2]["after"] == "g success"
    async with opened(orbitmq_world, write=True) as browser:
        await orbitmq_world.sleep(5)
        assert "No group that reads this queue has a member" in await browser.text(
            f"/messages/{message_id}", topic="t"
        )
