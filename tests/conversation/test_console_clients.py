"""The page of the clients at a broker without a list of all groups' consumers, such as Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.conversation.console_browser import opened, sent

from orbitmq import ValidationError
from orbitmq.admin import GroupSettings
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

GROUPS = 400


@contextmanager
def apache(world: World, *, wait_s: float, tables: bool = True) -> Iterator[None]:
    """Let brokers list no consumers beside the producers, and delay the response for each group.

    Args:
        tables: whether the brokers respond with their table of groups.
    """
    ask = ClusterClient.ask
    late = {RequestCode.GET_CONSUMER_CONNECTION_LIST: wait_s}
    if not tables:
        late[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = 60

    async def heard(cluster: ClusterClient, to: str, command: Command, **options: Any) -> Command:
        command.ext.pop("consumers", None)
        await world.sleep(late.get(RequestCode(command.code), 0))
        return await ask(cluster, to, command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterClient, "ask", heard)
        yield


@pytest.mark.behaviour("CS-54")
async def test_clients_that_came_in_time_are_shown_and_the_missing_groups_counted(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await sent(world, "t", b"1")
    async with world.admin() as admin:
        for number in range(GROUPS):
            await admin.groups.create(f"z{number}", GroupSettings())
    async with (
        world.consumer("a-first") as first,
        world.consumer("zz-last") as last,
        opened(world) as browser,
    ):
        for consumer in (first, last):
            consumer.subscribe("t")
        await world.sleep(5)
        with apache(world, wait_s=0.1):
            begin = world.runtime.clock.monotonic()
            page = await browser.json("/clients")
            assert world.runtime.clock.monotonic() - begin <= 2
            assert not page["late"]
            assert [one["group"] for one in page["clients"] if one["role"] == "consumer"] == ["a-first"]
            (missing,) = page["left_out"]
            assert missing.startswith("broker-a at ")
            assert missing.endswith("of 402 groups were not asked about within 1.5 s")
            for group in ("zz-last", "zz*"):
                page = await browser.json("/clients", group=group)
                assert page["left_out"] == []
                assert {one["group"] for one in page["clients"]} == {"zz-last"}
            assert 'name="group" value="zz*"' in await browser.text("/clients", group="zz*")
            address = world.brokers["broker-a"].address
            broker = await browser.json(f"/brokers/{address}")
            assert [one["group"] for one in broker["connections"]] == ["a-first"]
            assert broker["facts"]["connections"] is None
            assert "groups were not asked about" in broker["left_out"][0]
        with apache(world, wait_s=0, tables=False):
            await world.sleep(3)
            page = await browser.json("/clients")
            assert page["left_out"][0].endswith("its groups were not listed within 1.5 s")
        # A broker of OrbitMQ lists all consumers in one response, and the same ones.
        await world.sleep(3)
        page = await browser.json("/clients", group="z*")
        assert {one["group"] for one in page["clients"]} == {"zz-last"}
    async with world.admin() as admin:
        with pytest.raises(ValidationError, match="within must be"):
            await admin.clients.list(within=0)
