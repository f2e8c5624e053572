"""The Spark sink without Spark against servers of both kinds: delays, and state kept in the brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.types import StringType, StructType
from tests.interop.world import Place, World, check, equal
from tests.spark.sink_query import Context, Query, bodies, write

from orbitmq.admin import Admin
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.sink import BatchWriter


def new_topic(world: World, place: Place, name: str) -> str:
    topic = world.fresh(name)

    async def create() -> None:
        async with Admin(name_servers=place.ns) as admin:
            await admin.create_topic(topic, 4)

    asyncio.run(create())
    return topic


def options(topic: str, place: Place, location: str, delivery: str) -> WriteOptions:
    return WriteOptions(topic=topic, name_servers=(place.ns,), state_location=location, delivery=delivery)


def state_in_brokers(world: World, place: Place) -> None:
    """Replays in other partitions, with nothing kept but offsets."""
    topic = new_topic(world, place, "sink_stateless")
    query = Query(options(topic, place, "cluster", "exactly-once"))
    query.run(0, [bodies(range(60))])
    query.run(1, [bodies(range(10))], commit=False)
    for _ in range(2):
        query.run(1, [bodies(range(5, 20)), bodies(range(5))])
        equal(query.bodies(1), list(range(20)), "copies after a replay")


def delayed(world: World, place: Place) -> None:
    """A replay finds delayed messages where the broker keeps them, delivered or not."""
    topic = new_topic(world, place, "sink_delayed")
    folder = world.folder / world.fresh("sink-delayed")
    query = Query(options(topic, place, str(folder), "exactly-once"), ("body", "delay_level"))
    rows = {"body": [str(n) for n in range(30)], "delay_level": pa.array([18, 0, 1] * 10, pa.int32())}
    query.run(3, [rows], commit=False)
    deadline = time.monotonic() + 30
    while len(query.bodies(3)) < 20:
        check(time.monotonic() < deadline, "what is due is not delivered")
        time.sleep(0.2)
    (again,) = query.run(3, [rows])
    equal((again.metrics.rows, again.earlier), (0, 30), "sent again, found")


def job(world: World, place: Place) -> None:
    """A stage of a batch job that is tried again finds by a mark in the brokers that it is not the first."""
    topic = new_topic(world, place, "sink_job")
    options = WriteOptions(topic=topic, name_servers=(place.ns,))
    first, other = (
        BatchWriter(options, StructType().add("body", StringType()), overwrite=False) for _ in "12"
    )
    rows = bodies(range(40))
    for number, (writer, sent, earlier) in enumerate([(first, 40, 0), (first, 0, 40), (other, 40, 0)]):
        done = write(writer, Context(0, 0, number), rows)
        equal((done.metrics.rows, done.earlier), (sent, earlier), f"sent and found by attempt {number}")


PLACE_CELLS: dict[str, Callable[[World, Place], None]] = {
    "spark sink state in brokers": state_in_brokers,
    "spark sink delayed": delayed,
    "spark sink job": job,
}
