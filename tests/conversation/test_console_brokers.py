"""The page of a broker: its replicas, its connections, and its settings with a form for each."""

from __future__ import annotations

import pytest
from tests.conversation.console_browser import opened, sent
from tests.replicas import MASTER, SLAVE, same_end

from orbitmq import Message, ValidationError
from orbitmq.console import brokers
from orbitmq.testing import World


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


@pytest.mark.behaviour("CS-45")
async def test_each_setting_leads_to_a_form_with_its_value(orbitmq_world: World) -> None:
    async with opened(orbitmq_world, write=True) as browser:
        address = orbitmq_world.brokers["broker-a"].address
        link = f"/brokers/{address}?key=maxMsgsNumBatch#change_setting"
        assert f'href="{link}"' in await browser.text(f"/brokers/{address}")
        page = await browser.text(f"/brokers/{address}", key="maxMsgsNumBatch")
        form = page.split('id="change_setting"')[1].partition("</form>")[0]
        assert 'name="key" value="maxMsgsNumBatch"' in form
        assert 'name="value" value="64"' in form
        assert 'name="value" value=""' in await browser.text(f"/brokers/{address}", key="none")
