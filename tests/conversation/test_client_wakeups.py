"""A client wakes for its routes when one is due, not five times a second."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.scripted import producer_of, until

from orbitmq import Message
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.routes import RouteCache


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which a client checked which routes are due."""
    looks: list[float] = []
    due = RouteCache.due

    def look(self: RouteCache, now_ms: float) -> list[str]:
        looks.append(now_ms)
        return due(self, now_ms)

    monkeypatch.setattr(RouteCache, "due", look)
    return looks


async def test_a_client_without_topics_sleeps(world: Any, looks: list[float]) -> None:
    client = ClientInstance(world.runtime, world.name_servers)
    await client.start()
    await world.runtime.clock.sleep(3600)
    await client.close()
    assert len(looks) == 1


@pytest.mark.behaviour("RT-05")
async def test_a_settled_route_wakes_the_client_every_30_s(world: Any, looks: list[float]) -> None:
    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1}
        await producer.send(Message("t", b"x"))
        await world.runtime.clock.sleep(60)
        asked, begun = len(world.route_queries), len(looks)
        await world.runtime.clock.sleep(3000)
        assert len(world.route_queries) - asked == pytest.approx(100, abs=1)
        # One check is when a route is due, one after its response, which might make it due earlier.
        assert len(looks) - begun <= 202


async def test_a_topic_watched_later_is_looked_for_at_once(world: Any) -> None:
    client = ClientInstance(world.runtime, world.name_servers)
    await client.start()
    await world.runtime.clock.sleep(100)
    world.topics["late"] = {"a": 1}
    client.watch("late")
    assert await until(world, lambda: client.route("late")) < 0.1
    # A broker that is gone is looked for twice a second, whatever the earlier plan.
    world.topics["t"] = {"a": 1}
    await client.find_route("t", for_send=True)
    await world.runtime.clock.sleep(60)
    asked = world.route_queries.count("t")
    client.suspect("t")
    await world.runtime.clock.sleep(5)
    assert world.route_queries.count("t") - asked == pytest.approx(10, abs=2)
    await client.close()
