"""Topics and groups are exported from one cluster and imported into another."""

from __future__ import annotations

import json

import pytest

from orbitmq import Message, ValidationError
from orbitmq.admin import Definitions, GroupSettings, IncompleteError, TopicSettings
from orbitmq.admin.definitions import RuleSettings, UserSettings, as_json, from_json
from orbitmq.testing import World

pytestmark = pytest.mark.orbitmq(brokers=2)


@pytest.mark.behaviour("CS-04")
async def test_the_topics_and_groups_of_users_are_exported(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        assert (await admin.definitions.export()).whole() == Definitions({}, {}, ())
        await admin.topics.create("orders", queues=4, attributes={"message.type": "FIFO"})
        await admin.topics.create("%DLQ%billing", queues=1)
        await admin.groups.create("billing", GroupSettings(max_retries=5, retry_delays=(1.0, 2.0)))
        async with orbitmq_world.producer(trace=True) as producer:
            await producer.send(Message("orders", b"x"))
        found = (await admin.definitions.export()).whole()
        assert found.topics == {"orders": TopicSettings(4, 6, False, {"message.type": "FIFO"})}
        assert found.groups == {"billing": GroupSettings(max_retries=5, retry_delays=(1.0, 2.0))}
        assert found.differing == ()
        await orbitmq_world.stop_broker("broker-b")
        await orbitmq_world.start_broker("broker-b")
        orbitmq_world.partition("broker-b")
        partial = await admin.definitions.export()
        assert [one.name for one in partial.left_out] == ["broker-b"]
        assert partial.found.topics == found.topics
        with pytest.raises(IncompleteError):
            await admin.definitions.plan(found)


@pytest.mark.behaviour("CS-05")
async def test_rules_are_not_planned_where_brokers_have_no_users(orbitmq_world: World) -> None:
    wanted = Definitions(
        users={"app": UserSettings(False, True)}, rules={"app Topic:orders": RuleSettings(("Pub",), (), True)}
    )
    async with orbitmq_world.admin() as admin:
        assert (await admin.definitions.export()).whole().differing == ()
        plan = await admin.definitions.plan(from_json(_text(wanted)))
        assert [change.text for change in plan] == [
            "create user app",
            "create rule app Topic:orders (allow Pub)",
        ]
        assert all("not offered by this broker (code 3005)" in change.problem for change in plan)


@pytest.mark.behaviour("CS-05")
async def test_an_import_makes_what_is_missing_and_then_has_nothing_to_do(orbitmq_world: World) -> None:
    wanted = Definitions(
        {"orders": TopicSettings(4, 6, False, {"message.type": "FIFO"}), "there": TopicSettings(2)},
        {"billing": GroupSettings(max_retries=5), "new": GroupSettings(retry_delays=(1.0, 2.0))},
    )
    async with orbitmq_world.admin() as admin:
        await admin.topics.create("there", queues=2)
        await admin.topics.create("other", queues=2)
        await admin.groups.create("billing")
        plan = await admin.definitions.plan(from_json(_text(wanted)))
        assert [change.text for change in plan] == [
            "create topic orders (4 queues)",
            "group billing: retries 16 -> 5",
            "create group new (retry delays 1/2 s, not default)",
        ]
        assert "orders" not in await admin.topics.list()
        for change in plan:
            assert await admin.definitions.make(change) == ["broker-a", "broker-b"]
        assert await admin.definitions.plan(wanted) == []
        assert "other" in await admin.topics.list()
        found = (await admin.definitions.export()).whole()
        assert found.groups == wanted.groups
        assert found.topics == {**wanted.topics, "other": TopicSettings(2)}


@pytest.mark.behaviour("CS-05")
async def test_a_topic_does_not_lose_queues(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        await admin.topics.create("orders", queues=4)
        [change] = await admin.definitions.plan(Definitions({"orders": TopicSettings(2)}, {}))
        assert change.text == "topic orders: queues 4 -> 2"
        assert "no consumer gets the messages in queues 2 to 3" in change.problem
        with pytest.raises(ValidationError, match="no consumer gets the messages"):
            await admin.definitions.make(change)


def _text(definitions: Definitions) -> str:
    return json.dumps(as_json(definitions))
