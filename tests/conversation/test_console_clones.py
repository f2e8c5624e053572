"""The console copies the offsets of one group to another, after showing the changes."""

from __future__ import annotations

import pytest
from tests.conversation.console_browser import ORIGIN, Browser, opened, sent
from tests.conversation.test_console_risks import asks

from orbitmq import ConsumeFrom
from orbitmq.testing import World


async def places(browser: Browser, group: str) -> dict[str, int]:
    """The sum of the group's offsets, by topic."""
    found: dict[str, int] = {}
    for one in (await browser.json(f"/groups/{group}"))["queues"]:
        found[one["topic"]] = found.get(one["topic"], 0) + one["committed"]
    return found


async def read(world: World, group: str, *topics: str) -> None:
    """A group that has read all messages of the topics."""
    async with world.consumer(group, consume_from=ConsumeFrom.LAST) as consumer:
        for topic in topics:
            consumer.subscribe(topic)
        await world.sleep(10)
    async with world.admin() as admin:
        for topic in topics:
            await admin.groups.move(group, (await admin.groups.plan_to_last(group, topic)).whole())


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-57")
async def test_offsets_are_given_to_a_group_shown_first_and_undone(orbitmq_world: World) -> None:
    world = orbitmq_world
    for topic in "tu":
        await sent(world, topic, *[b"1"] * 8)
    await read(world, "g", "t", "u")
    await read(world, "h", "t", "u")
    async with opened(world, write=True) as browser, world.admin() as admin:
        for topic in "tu":
            await admin.groups.move("h", (await admin.groups.plan_to_first("h", topic)).whole())
        await world.sleep(3)
        assert 'href="/groups/g/clone">Give its offsets to a group</a>' in await browser.text("/groups/g")
        form = await browser.text("/groups/g/clone")
        assert "<option>t</option><option>u</option>" in form
        assert "%RETRY%g" not in form
        page = await browser.json("/groups/g/clone", target="h", topic="t")
        assert page["sentence"] == "h would get these offsets of g. Nothing has been changed yet."
        assert {(one["topic"], one["from"]) for one in page["moves"]} == {("t", 0)}
        assert sum(one["to"] for one in page["moves"]) == 8
        assert await places(browser, "h") == {"t": 0, "u": 0}
        fields = {"group": "g", "target": "h", "topic": "t"}
        await asks(browser, "group-clone", fields, "h")
        assert await places(browser, "h") == {"t": 0, "u": 0}
        said = await browser.done("group-clone", {**fields, "typed": "h"})
        assert said == "Group h has the offsets of g on broker-a, broker-b."
        assert await places(browser, "h") == {"t": 8, "u": 0}
        entry = browser.console.audit.entries()[0]
        assert (entry.target, entry.outcome) == ("h", "done")
        assert "t broker-a:0 0" in entry.before
        assert entry.after.startswith("from g: t broker-a:0 ")
        text = await browser.text("/groups/h")
        assert "Undo the move of" in text
        undo = text.split('href="/groups/h/undo?of=')[1].partition('"')[0]
        plan = await browser.text(f"/groups/h/undo?of={undo}")
        name = plan.split('name="plan" value="')[1].partition('"')[0]
        await browser.done("group-reset", {"group": "h", "plan": name, "typed": "h"})
        assert await places(browser, "h") == {"t": 0, "u": 0}
        await browser.done("group-clone", {**fields, "topic": "", "typed": "h"})
        assert await places(browser, "h") == {"t": 8, "u": 8}


@pytest.mark.behaviour("CS-57")
async def test_a_clone_to_a_new_group_to_members_and_what_cannot_be_meant(orbitmq_world: World) -> None:
    world = orbitmq_world
    await sent(world, "t", *[b"1"] * 4)
    await read(world, "g", "t")
    async with opened(world, write=True) as browser, world.admin() as admin:
        page = await browser.text("/groups/g/clone", target="new")
        assert "No broker knows the group new" in page
        await admin.groups.create("empty")
        page = await browser.text("/groups/empty/clone", target="new")
        assert "there is nothing to give" in page
        assert 'action="/do/' not in page
        for path, what in (
            ("/groups/g/clone?target=g", "target: expected another group than g"),
            ("/groups/none/clone?target=g", "no broker has the group none"),
        ):
            answer = await browser.get(path)
            assert (answer.status_code, what in answer.text) == (400, True), path
        form = {"form_token": (await browser.json("/session"))["form_token"], "group": "g", "target": "new"}
        answer = await browser.http.post(
            "/api/v1/do/group-clone", data={**form, "typed": "new"}, headers=ORIGIN
        )
        assert answer.json() == {
            "done": "Group new has the offsets of g on broker-a.",
            "page": "/groups/g",
        }
        assert sum(one.committed for one in (await admin.groups.lag("new")).whole()) == 4
        for wrong, what in (
            ({"group": "empty"}, "group empty has committed no offset"),
            ({"target": "g"}, "target: expected another group than g"),
            ({"target": ""}, "target: the field is empty"),
            ({"topic": "none"}, "g"),
        ):
            fields = {"group": "g", "target": "new", "typed": "new", **wrong}
            answer = await browser.send("group-clone", {**fields, "typed": fields["target"]})
            assert (answer.status_code, what in answer.text) == (400, True), wrong
        async with world.consumer("new") as consumer:
            consumer.subscribe("t")
            await world.sleep(10)
            assert "1 member of new is online" in await browser.text("/groups/g/clone", target="new")
    async with opened(world) as browser:
        assert "/groups/g/clone" not in await browser.text("/groups/g")
        assert 'action="/do/' not in await browser.text("/groups/g/clone", target="new")
