"""The Spark sink without Spark against servers of both kinds: delayed rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pyarrow as pa
from tests.interop.world import Place, World, check, equal
from tests.spark.sink_query import Query

from orbitmq.admin import Admin
from orbitmq.spark.options import WriteOptions


def new_topic(world: World, place: Place, name: str) -> str:
    topic = world.fresh(name)

    async def create() -> None:
        async with Admin(name_servers=place.ns) as admin:
            await admin.topics.create(topic, queues=4)

    asyncio.run(create())
    return topic


def delayed(world: World, place: Place) -> None:
    """A replay finds delayed messages where the broker keeps them, delivered or not."""
    topic = new_topic(world, place, "sink_delayed")
    folder = world.folder / world.fresh("sink-delayed")
    options = WriteOptions(topic=topic, name_servers=(place.ns,), state_location=str(folder))
    query = Query(options, ("body", "delay_level"))
    rows = {"body": [str(n) for n in range(30)], "delay_level": pa.array([18, 0, 1] * 10, pa.int32())}
    query.run(3, [rows], commit=False)
    deadline = time.monotonic() + 30
    while len(query.bodies(3)) < 20:
        check(time.monotonic() < deadline, "what is due is not delivered")
        time.sleep(0.2)
    (again,) = query.run(3, [rows])
    equal((again.metrics.rows, len(again.matched) // 8), (0, 30), "sent again, found")


PLACE_CELLS: dict[str, Callable[[World, Place], None]] = {
    "spark sink delayed": delayed,
}
