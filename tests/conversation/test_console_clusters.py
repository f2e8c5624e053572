"""A console of several clusters: each has its own pages, and a form keeps to its cluster."""

from __future__ import annotations

import re

import pytest
from tests.conversation.console_browser import ORIGIN, TOKEN, console, opened, sent
from tests.conversation.test_console import EVERY, filled
from tests.conversation.test_console_changes import lagging

from orbitmq.console.app import Console
from orbitmq.console.entrance import Entrance
from orbitmq.console.places import Places
from orbitmq.testing import World

NAMES = ("prod", "staging")


@pytest.mark.behaviour("CS-34")
def test_a_path_names_its_cluster() -> None:
    places = Places(["prod", "a.b-c"])
    assert [places.base(name) for name in places.names] == ["", "/@a.b-c"]
    assert places.find("/topics/t") == ("prod", "/topics/t")
    assert places.find("/@a.b-c/topics/@t") == ("a.b-c", "/topics/@t")
    assert places.find("/@a.b-c") == ("a.b-c", "/")
    assert places.find("/api/v1/@a.b-c/topics") == ("a.b-c", "/api/v1/topics")
    assert places.find("/api/v1/topics") == ("prod", "/api/v1/topics")
    assert places.find("/@prod/topics") == ("prod", "/topics")
    for path in ("/@other/topics", "/@", "/@/topics", "/api/v1/@other/topics"):
        assert places.find(path) is None


@pytest.mark.behaviour("CS-34")
async def test_every_page_of_a_cluster_leads_to_pages_of_it(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True, names=NAMES) as browser:
        for path in EVERY:
            text = await browser.text(f"/@staging{path}")
            assert "- staging</title>" in text
            places = re.findall(r'(?:href|action)="(/[^"]*)"', text)
            own = [place for place in places if not place.startswith("/static/")]
            mine = ("/@staging/", "/api/v1/@staging/", "/leave")
            # One link of the switch leads to the other cluster, and one of the menu to the list of clusters.
            assert [place for place in own if not place.startswith(mine)] == [own_page(text), "/clusters"]
            assert f'<a href="{own_page(text)}">prod</a>' in text
        assert (await browser.get("/@other/topics")).status_code == 404
        assert (await browser.json("/@staging/topics"))["topics"] == (await browser.json("/topics"))["topics"]


def own_page(text: str) -> str:
    """The path in the other cluster that the menu of a page of staging marks as its current entry."""
    [found] = re.findall(r'<a href="/@staging(/[^"]*)" aria-current="page"', text)
    return str(found)


@pytest.mark.behaviour("CS-34")
async def test_a_change_is_made_in_the_cluster_of_its_form(orbitmq_world: World) -> None:
    """The second cluster has no name server, so the change fails there and does not happen in the first."""
    world, clock = orbitmq_world, orbitmq_world.runtime.clock
    await sent(world, "t", b"1")
    async with console(world, write=True) as browser:
        options = {"name_servers": world.name_server, "runtime": world.runtime}
        made = Console(
            {"prod": options, "gone": {**options, "name_servers": "127.0.0.1:1"}},
            clock.monotonic,
            clock.now_ms,
            entrance=Entrance(frozenset({"127.0.0.1:8082"})),
            write=True,
        )
        try:
            browser.http._transport.app = made.app  # type: ignore[attr-defined]
            assert (await browser.get("/", token=made.sessions.token)).status_code == 303
            for place, code in (("/@gone", 400), ("", 303)):
                token = TOKEN.search(await browser.text(f"{place}/audit"))
                assert token is not None
                form = {"form_token": token[1], "topic": "new", "queues": "1", "permission": "read+write"}
                answer = await browser.http.post(f"{place}/do/topic-save", data=form, headers=ORIGIN)
                assert answer.status_code == code, answer.text
            async with world.admin() as admin:
                assert "new" in await admin.topics.list()
            changes = (await browser.json("/audit"))["changes"]
            assert [(one["cluster"], one["change"]) for one in changes] == [
                ("prod", "topic-save"),
                ("gone", "topic-save"),
            ]
        finally:
            await made.close()


@pytest.mark.behaviour("CS-34")
async def test_a_reset_is_taken_back_in_its_cluster_only(orbitmq_world: World) -> None:
    await lagging(orbitmq_world)
    async with opened(orbitmq_world, write=True, names=NAMES) as browser:
        shown = await browser.text("/@staging/groups/g/reset", topic="t", to="last")
        plan, token = re.search(r'name="plan" value="([^"]+)"', shown), TOKEN.search(shown)
        assert plan is not None
        assert token is not None
        form = {"form_token": token[1], "plan": plan[1], "group": "g", "typed": "g"}
        answer = await browser.http.post("/@staging/do/group-reset", data=form, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/@staging/groups/g")
        [undo] = re.findall(
            r'href="(/@staging/groups/g/undo[^"]*)"', await browser.text("/@staging/groups/g")
        )
        assert "/undo" not in await browser.text("/groups/g")
        assert (await browser.get(undo)).status_code == 200
        assert (await browser.get(undo.removeprefix("/@staging"))).status_code == 400


@pytest.mark.behaviour("CS-40")
async def test_one_page_has_all_clusters(orbitmq_world: World) -> None:
    """The last of the clusters has no name server."""
    world, clock = orbitmq_world, orbitmq_world.runtime.clock
    await lagging(world)
    async with opened(world) as browser:
        assert (await browser.get("/clusters")).status_code == 404
        assert "/clusters" not in await browser.text("/")
        here = {"name_servers": world.name_server, "runtime": world.runtime}
        clusters = {"prod": here, "same": here, "gone": {**here, "name_servers": "127.0.0.1:1"}}
        entrance = Entrance(frozenset({"127.0.0.1:8082"}))
        made = Console(clusters, clock.monotonic, clock.now_ms, entrance=entrance)
        try:
            browser.http._transport.app = made.app  # type: ignore[attr-defined]
            assert (await browser.get("/", token=made.sessions.token)).status_code == 303
            page = await browser.json("/clusters")
            health = "The broker answers; group g is 6 messages behind."
            prod, same, gone = page["clusters"]
            assert [prod["cluster"], prod["state"], prod["health"]] == ["prod", "look", health]
            assert {**same, "cluster": "prod"} == prod
            assert (gone["state"], gone["lag"]) == ("trouble", None)
            assert "127.0.0.1:1" in gone["health"]
            assert page["lags"] == [{"cluster": name, "group": "g", "lag": 6} for name in ("prod", "same")]
            text = await browser.text("/clusters", lang="zh")
            for place in ("/@gone/", "/@same/groups/g", "/@prod/"):
                assert f'href="{place}"' in text
                assert place == "/@gone/" or (await browser.get(place)).status_code == 200
            assert 'href="/clusters" aria-current="page"' in text
            assert (await browser.get("/@same/clusters")).status_code == 404
        finally:
            await made.close()
