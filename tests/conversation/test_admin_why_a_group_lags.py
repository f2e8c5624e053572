"""The reasons why a group is behind, collected from brokers and members."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.scripted import running as consuming

from orbitmq import Message, ReceivedMessage
from orbitmq.testing import World

pytestmark = pytest.mark.behaviour("CS-07")


async def fill(world: World, count: int, topic: str = "orders") -> None:
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


async def test_nobody_is_online_and_then_a_member_stands_still(orbitmq_world: World) -> None:
    world = orbitmq_world
    blocked = asyncio.Event()

    async def stands(message: ReceivedMessage) -> None:
        await blocked.wait()

    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
        await admin.groups.create("billing")
        await fill(world, 20)
        await admin.groups.move("billing", (await admin.groups.plan_to_first("billing", "orders")).whole())
        found = (await admin.groups.why("billing")).whole()
        assert (found.lag, [one.kind for one in found.causes]) == (20, ["offline"])
        async with consuming(world.consumer("billing"), stands, "orders"):
            await world.sleep(30)
            found = (await admin.groups.why("billing")).whole()
            [cause] = found.causes
            assert cause.kind == "one queue"
            assert "20 of them in orders, queue broker-a:0, whose member " in cause.text
            assert cause.text.endswith("in hand and finished none in 1 s")
            blocked.set()
            await world.sleep(30)
        assert (await admin.groups.why("billing")).whole().text == "billing is not behind."
