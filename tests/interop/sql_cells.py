"""SQL92 expressions: Apache's Java client and ours, at any broker that filters."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.interop.java_cells import expected, same_messages
from tests.interop.python_cells import as_content, messages, send
from tests.interop.world import Place, World, check, equal
from tests.sql_evaluator import Tree, matches, render

from orbitmq import Consumer
from orbitmq.admin import Admin
from orbitmq.client.model import ConsumeFrom
from orbitmq.errors import BrokerError
from orbitmq.message.model import Message, ReceivedMessage

EXPRESSION = "TAGS = 'even' AND colour <> 'blå 2' AND KEYS IS NOT NULL OR colour IN ('blå 3')"
BROKEN = "colour = "
COUNT = 40
SECONDS = 30
# What the brokers must agree about, with each other and with the rules as the tests evaluate them.
VALUES = ["1", "05", "10", "0.5", "10.5f", " 7", "x", "2147483648", "NaN", "true", "TRUE"]
A, B, C, D = (("property", name) for name in "abcd")
AGREED: list[Tree] = [
    ("compare", "<", A, ("value", 10)),
    ("compare", "<", A, ("value", 10.0)),
    ("compare", ">", A, ("value", 2147483647)),
    ("compare", ">", A, ("value", 2147483648)),
    ("between", A, ("value", 1), ("value", 7.5), False),
    ("compare", "=", A, ("value", True)),
    ("compare", "<>", A, ("value", "1")),
    ("or", ("not", ("compare", ">", A, ("value", 5))), ("compare", "=", B, ("value", "y"))),
    ("or", ("compare", "=", B, ("value", "y")), ("compare", ">", A, ("value", 5))),
    ("in", A, ["1", "x"], True),
    ("and", ("text", "CONTAINS", A, "0", False), ("text", "ENDSWITH", A, "5", True)),
    ("and", ("null", C, False), ("null", A, True)),
    ("compare", "=", C, D),
    ("compare", "<>", ("value", "x"), C),
    ("and", ("compare", ">", A, ("value", -5)), ("compare", "<", A, ("value", 0.1e2))),
    ("not", A),
]


def wanted() -> set[tuple[str, str, str, str, str]]:
    found = expected("sync", COUNT)
    return {one for one in found if (one[1] == "even" and one[4] != "blå 2") or one[4] == "blå 3"}


async def allow(place: Place) -> None:
    """Apache's default is off."""
    async with Admin(place.ns) as admin:
        for broker in await admin.brokers.list():
            await admin.brokers.change_settings(broker.address, {"enablePropertyFilter": "true"})


def java(world: World, place: Place) -> None:
    """Apache's push consumer with an expression."""
    topic = world.fresh("java_sql")
    world.facts("Send", ns=place.ns, topic=topic, how="sync", count=COUNT)
    asyncio.run(allow(place))
    facts = world.facts(
        "Receive",
        ns=place.ns,
        topic=topic,
        group=world.fresh("java_group"),
        sql=EXPRESSION,
        count=len(wanted()),
    )
    same_messages(facts, wanted())
    facts = world.facts(
        "Receive", ns=place.ns, topic=topic, group=world.fresh("java_group"), sql=BROKEN, count=1, seconds=5
    )
    check(any(fact["fact"] == "not started" for fact in facts), f"a broken expression: {facts}")


def python(world: World, place: Place) -> None:
    """Our consumer with an expression, and what it hears of a broken one."""
    topic = world.fresh("python_sql")

    async def main() -> list[ReceivedMessage]:
        await allow(place)
        await send(place, messages(topic, "sync", COUNT), "sync")
        got = await received(place, world.fresh("python_group"), topic, EXPRESSION, len(wanted()))
        async with Consumer(world.fresh("python_group"), name_servers=place.ns) as consumer:
            try:
                await consumer.subscribe(topic, sql=BROKEN)
            except BrokerError as error:
                equal(error.code, 23, "code of a broken expression")
            else:
                check(False, "a broken expression is accepted")
        return got

    found = asyncio.run(main())
    equal(Counter(map(as_content, found)), Counter(wanted()), "messages")


def values(world: World, place: Place) -> None:
    """Which messages pass: the same ones at every broker as our rules say."""
    topic = world.fresh("sql_values")

    async def main() -> None:
        await allow(place)
        all_ = [{"a": value, "b": "y" if n % 2 else "x"} for n, value in enumerate(VALUES)]
        await send(place, [Message(topic, p["a"].encode(), properties=p) for p in all_], "sync")
        for tree in AGREED:
            if place.kind.endswith("4.9") and "CONTAINS" in render(tree):
                continue  # a word of 5.x
            answer = sorted(p["a"] for p in all_ if matches(tree, p))
            got = await received(place, world.fresh("python_group"), topic, render(tree), len(answer))
            equal(sorted(message.body.decode() for message in got), answer, render(tree))

    asyncio.run(main())


async def received(
    place: Place, group: str, topic: str, expression: str, count: int
) -> list[ReceivedMessage]:
    """What a new consumer gets: ``count`` messages, and what comes within a second more."""
    found: list[ReceivedMessage] = []
    async with Consumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic, sql=expression)
        task = asyncio.create_task(consumer.run(found.append))
        async with asyncio.timeout(SECONDS):
            while len(found) < count:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        task.cancel()
    return found
