"""The console drains a broker before it is stopped, and undoes the drain."""

from __future__ import annotations

import pytest
from tests.conversation.console_browser import ORIGIN, Browser, opened, sent
from tests.conversation.test_console_risks import asks

from orbitmq import ConsumeFrom, Message
from orbitmq.admin import Admin
from orbitmq.console import draining
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World


async def writable(admin: Admin, topic: str) -> dict[str, bool]:
    """Whether clients may send to a topic, by broker."""
    return {one.broker_name: one.writable for one in await admin.topics.route(topic)}


async def unread(world: World) -> None:
    """Create a topic on both brokers, and a group that has read none of its eight messages."""
    await sent(world, "t", *[b"1"] * 8, queues=1)
    async with world.consumer("g", consume_from=ConsumeFrom.LAST) as consumer:
        consumer.subscribe("t")
        await world.sleep(10)
    async with world.admin() as admin:
        await admin.groups.move("g", (await admin.groups.plan_to_first("g", "t")).whole())


async def told(browser: Browser, path: str) -> str:
    sentence: str = (await browser.json(path))["sentence"]
    return sentence


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-56")
async def test_a_broker_is_drained_and_the_drain_is_undone(orbitmq_world: World) -> None:
    world = orbitmq_world
    await unread(world)
    address = world.brokers["broker-a"].address
    path = f"/brokers/{address}/drain"
    async with (
        opened(world, write=True) as browser,
        world.admin() as admin,
        world.producer() as late,
    ):
        assert f'href="{path}">Drain the broker</a>' in await browser.text(f"/brokers/{address}")
        page = await browser.json(path)
        assert page["sentence"] == "Clients send to broker-a."
        assert page["facts"]["writes"] == "yes"
        (reader,) = page["readers"]
        assert (reader["group"], reader["members"], reader["lag"]) == ("g", 0, page["facts"]["unread"])
        assert reader["lag"] >= 4
        asked = await asks(browser, "broker-drain", {"broker": "broker-a"}, "broker-a")
        assert "Clients send to the other brokers" in asked
        assert await writable(admin, "t") == {"broker-a": True, "broker-b": True}
        said = await browser.done("broker-drain", {"broker": "broker-a", "typed": "broker-a"})
        assert said.startswith("The write permission of broker-a is taken, for ")
        assert await writable(admin, "t") == {"broker-a": False, "broker-b": True}
        entry = browser.console.audit.entries()[0]
        assert (entry.target, entry.before, entry.outcome) == ("broker-a", "read+write", "done")
        assert entry.after.startswith("read, ")
        # A producer that names the queue can still send there, which restarts the ten seconds.
        await world.sleep(8)
        text = await browser.text(path)
        assert "Wait until no message has arrived for 10 s" in text
        assert '<meta http-equiv="refresh"' in text
        await late.send(Message("t", b"late"), queue=MessageQueue("t", "broker-a", 0))
        await world.sleep(3)
        assert (await browser.json(path))["facts"]["quiet_for"] < 10
        await world.sleep(12)
        page = await browser.json(path)
        assert page["facts"]["writes"] == "no"
        left = page["facts"]["unread"]
        assert page["sentence"] == (
            f"No messages arrive at broker-a any more; {left} messages there are not read yet."
        )
        text = await browser.text(path)
        assert '<meta http-equiv="refresh"' not in text
        assert "已无消息到达" in await browser.text(path, lang="zh")
        await browser.text(path, lang="en")
        await admin.groups.move("g", (await admin.groups.plan_to_last("g", "t")).whole())
        await world.sleep(3)
        assert await told(browser, path) == (
            "No messages arrive at broker-a any more, and no group has unread messages there: "
            "it can be stopped."
        )
        said = await browser.done("broker-drain-undo", {"broker": "broker-a"})
        assert said.startswith("The write permission of broker-a is given back, for ")
        assert await writable(admin, "t") == {"broker-a": True, "broker-b": True}
        assert await told(browser, path) == "Clients send to broker-a."
        assert [one.change for one in browser.console.audit.entries()[:2]] == [
            "broker-drain-undo",
            "broker-drain",
        ]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-56")
async def test_a_program_drains_a_broker_and_a_wrong_name_is_refused(orbitmq_world: World) -> None:
    await unread(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser, orbitmq_world.admin() as admin:
        for change in ("broker-drain", "broker-drain-undo"):
            for name, what in (("none", "no broker none is registered"), ("", "broker: the field is empty")):
                answer = await browser.send(change, {"broker": name, "typed": name})
                assert (answer.status_code, what in answer.text) == (400, True), (change, name)
        form = {"broker": "broker-b", "typed": "broker-b"}
        token = (await browser.json("/session"))["form_token"]
        answer = await browser.http.post(
            "/api/v1/do/broker-drain", data={**form, "form_token": token}, headers=ORIGIN
        )
        assert answer.json()["page"] == f"/brokers/{orbitmq_world.brokers['broker-b'].address}/drain"
        assert await writable(admin, "t") == {"broker-a": True, "broker-b": False}
        assert "No broker is registered" in await browser.text("/brokers/10.9.9.9:1/drain")


@pytest.mark.behaviour("CS-56")
async def test_the_page_of_a_drain_says_what_it_does_not_know(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    address = world.brokers["broker-a"].address
    path = f"/brokers/{address}/drain"
    async with opened(world, write=True) as browser:
        page = await browser.text(path)
        assert "broker-a has no topic that clients may write" in page
        assert "broker-a is the only broker of its cluster: no client can send then." in page
        assert 'action="/do/broker-drain"' in page
        assert 'action="/do/broker-drain-undo"' in page
        await unread(world)
        await world.sleep(3)
        await browser.done("broker-drain", {"broker": "broker-a", "typed": "broker-a"})
        monkeypatch.setattr(draining, "READERS_S", 0.0)
        await browser.text(path)
        await world.sleep(12)
        page = await browser.text(path)
        assert "No messages arrive at broker-a any more: no send will fail when it is stopped." in page
        assert "Which groups read it could not be found out in time." in page
    async with opened(world) as browser:
        assert f'href="{path}"' not in await browser.text(f"/brokers/{address}")
        assert 'action="/do/' not in await browser.text(path)


def test_a_count_that_changes_and_a_permission_that_changes_begin_the_quiet_anew() -> None:
    arrivals = draining.Arrivals()
    assert arrivals.quiet_s(1_000, "a", "7", True) == 0
    assert arrivals.quiet_s(5_000, "a", "7", True) == 4
    assert arrivals.quiet_s(6_000, "a", "7", False) == 0
    assert arrivals.quiet_s(8_000, "a", "8", False) == 0
    assert arrivals.quiet_s(9_500, "a", "8", False) == 1.5
    for number in range(draining.MOST_BROKERS):
        arrivals.quiet_s(10_000, f"b{number}", "1", True)
    assert arrivals.quiet_s(20_000, "a", "8", False) == 0, "it was forgotten: its place is limited"
