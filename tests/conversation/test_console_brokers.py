"""The page of a broker: its replicas, its connections, and its settings with a form for each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.console_browser import opened, sent
from tests.replicas import MASTER, SLAVE, same_end

from orbitmq import Message, ValidationError
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.console import brokers
from orbitmq.testing import World
from orbitmq.wire.command import Command


@pytest.mark.orbitmq(replicas=2)
@pytest.mark.behaviour("CS-45")
async def test_the_page_of_a_broker_has_its_master_and_replicas(orbitmq_world: World) -> None:
    world = orbitmq_world
    await sent(world, "t", b"1", b"2")
    await world.until(lambda: same_end(world))
    await world.sleep(1)
    master, slave = world.brokers[MASTER].address, world.brokers[SLAVE].address
    async with opened(world) as browser:
        for address, role in ((master, "master"), (slave, "slave")):
            page = await browser.json(f"/brokers/{address}")
            assert page["facts"]["role"] == role
            rows = [(one["address"], one["id"], one["role"], one["sync"]) for one in page["replicas"]]
            assert rows == [(master, 0, "master", ""), (slave, 1, "slave", "in_sync")]
            assert page["replicas"][1]["behind"] == 0
            assert page["replicas"][0]["log_end"] == page["replicas"][1]["log_end"]
        assert "in sync" in await browser.text(f"/brokers/{master}")
        world.partition(SLAVE)
        await sent(world, "t", b"3")
        await world.sleep(10)
        late = (await browser.json(f"/brokers/{master}"))["replicas"]
        assert [one["sync"] for one in late if one["address"] == slave] in (["silent"], ["not_in_sync"], [])


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-45")
async def test_the_page_of_a_broker_has_its_own_connections(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)
        async with (
            world.producer("shop") as producer,
            world.consumer("billing") as consumer,
            opened(world) as browser,
        ):
            consumer.subscribe("t")
            await producer.send(Message("t", b"1"))
            await world.sleep(40)
            for name in ("broker-a", "broker-b"):
                address = world.brokers[name].address
                page = await browser.json(f"/brokers/{address}")
                found = {(one["role"], one["group"], one["brokers"]) for one in page["connections"]}
                assert ("consumer", "billing", name) in found
                assert page["facts"]["connections"] == len(page["connections"])
            assert "/clients/billing?id=" in await browser.text(f"/brokers/{address}")
            assert any(one["group"] == "shop" for one in page["connections"])
            monkeypatch.setattr(brokers, "MOST_CONNECTIONS", 1)
            await world.sleep(2)
            assert "The first 1 connections are shown" in await browser.text(f"/brokers/{address}")
        with pytest.raises(ValidationError, match=r"no broker is registered at 10\.9\.9\.9:1"):
            await admin.clients.list(address="10.9.9.9:1")


@pytest.mark.behaviour("CS-45", "CS-51")
async def test_each_setting_says_when_a_change_counts_and_live_ones_lead_to_a_form(
    orbitmq_world: World,
) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        address = orbitmq_world.brokers["broker-a"].address
        rows = {one["name"]: one for one in (await browser.json(f"/brokers/{address}"))["settings"]}
        assert (rows["maxMsgsNumBatch"]["takes_effect"], rows["maxMsgsNumBatch"]["editable"]) == (
            "at_once",
            True,
        )
        assert (rows["listenPort"]["takes_effect"], rows["listenPort"]["editable"]) == (
            "after_restart",
            False,
        )
        page = await browser.text(f"/brokers/{address}?find=listenPort")
        assert "after a restart" in page
        assert "key=listenPort" not in page
        link = f"/brokers/{address}?key=maxMsgsNumBatch#change_setting"
        assert f'href="{link}"' in await browser.text(f"/brokers/{address}?find=maxMsgs")
        form = form_of(await browser.text(f"/brokers/{address}", key="maxMsgsNumBatch"))
        assert 'name="key" value="maxMsgsNumBatch"' in form
        assert 'name="value" value="64"' in form
        assert "changes maxMsgsNumBatch at once" in form
        assert "typed" not in form
        restart = form_of(await browser.text(f"/brokers/{address}", key="listenPort"))
        assert "It needs a restart" in restart
        assert "<button" not in restart
        choice = form_of(await browser.text(f"/brokers/{address}"))
        assert "<option>maxMsgsNumBatch</option>" in choice
        assert "listenPort" not in choice
        assert "has no setting none" in form_of(await browser.text(f"/brokers/{address}", key="none"))


@pytest.mark.behaviour("CS-51")
async def test_a_broker_that_names_no_live_settings_is_asked_about_each(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's brokers ignore the field of the request, and change most of their settings live."""
    ask = ClusterClient.ask

    async def of_apache(cluster: ClusterClient, to: str, command: Command, **options: Any) -> Command:
        command.ext.pop("liveKeys", None)
        return await ask(cluster, to, command, **options)

    monkeypatch.setattr(ClusterClient, "ask", of_apache)
    async with opened(orbitmq_world, write=True) as browser:
        address = orbitmq_world.brokers["broker-a"].address
        rows = {one["name"]: one for one in (await browser.json(f"/brokers/{address}"))["settings"]}
        assert {one["takes_effect"] for one in rows.values()} == {None}
        page = await browser.text(f"/brokers/{address}", key="maxMsgsNumBatch")
        assert "does not say which settings it can change" in page
        assert "A change counts" not in page
        assert f"Type “{address}” to confirm" in form_of(page)
        change = {"address": address, "key": "maxMsgsNumBatch", "value": "32"}
        asked = await browser.send("broker-setting", change)
        assert (asked.status_code, f"Type “{address}” to confirm" in asked.text) == (200, True)
        assert rows["maxMsgsNumBatch"]["value"] == "64"
        said = await browser.done("broker-setting", {**change, "typed": address})
        assert said == f"maxMsgsNumBatch is 32 at {address}."


def form_of(page: str) -> str:
    """The form for changing a setting."""
    return page.split('id="change_setting"')[1].partition("</form>")[0]
