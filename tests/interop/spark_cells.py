"""The format ``rocketmq`` in a Spark session, against any broker."""

from __future__ import annotations

import asyncio
import atexit
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, Server, free_ports
from tests.interop.replica_cells import REGISTER_MS, caught_up
from tests.interop.sql_cells import allow
from tests.interop.world import CellError, Place, World, check, equal, wait_registered

from orbitmq import Producer
from orbitmq.message.model import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 4
ROUTE_S = 60.0
GET_ALL_TOPIC_CONFIG = 21


@lru_cache(maxsize=1)
def spark() -> SparkSession:
    """One session for all cells, ended with the program."""
    from orbitmq.spark.session import session

    made = session("interop", master="local[2]", spark__sql__shuffle__partitions=2)
    atexit.register(made.stop)
    return made


def send(ns: str, topic: str, numbers: range) -> None:
    """One message after the other; even and odd ones have tags, each has its number as a property."""

    async def work() -> None:
        async with Producer("spark_cells", name_servers=ns) as producer:
            for n in numbers:
                properties = {"n": str(n)}
                await producer.send(
                    Message(topic, str(n), tags=("even", "odd")[n % 2], keys=f"k{n}", properties=properties)
                )

    asyncio.run(work())


def table(ns: str, topic: str, **options: Any) -> DataFrame:
    return spark().read.format("rocketmq").options(nameServers=ns, **options).load(topic)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["body"])) for row in frame.select("body").collect())


def new_topic(world: World, place: Place, name: str) -> str:
    topic = world.fresh(name)
    with place.client() as client:
        client.create_topic(topic, QUEUES)
    return topic


def read(world: World, place: Place) -> None:
    """Every message with its columns; tags and single queues; in batches and as a stream."""
    topic = new_topic(world, place, "spark_read")
    send(place.ns, topic, range(200))
    rows = table(place.ns, topic, properties="map").collect()
    equal(sorted(int(bytes(row["body"])) for row in rows), list(range(200)), "bodies")
    for row in rows:
        n = str(int(bytes(row["body"])))
        found = (row["topic"], row["keys"], row["tags"], row["properties"]["n"])
        equal(found, (topic, f"k{n}", ("even", "odd")[int(n) % 2], n), "columns")
        check(row["store_timestamp"] >= row["born_timestamp"], "stored before it was born")
        equal(row["message_id"], row["properties"]["UNIQ_KEY"], "message id")
    places = {(row["queue_id"], row["queue_offset"]) for row in rows}
    equal(len(places), 200, "places")
    equal(numbers(table(place.ns, topic, tags="even")), list(range(0, 200, 2)), "tags")
    pushed = table(place.ns, topic, pushFilters="true").where("tags = 'odd' AND queue_id IN (0, 1)")
    wanted = sorted(
        int(bytes(row["body"])) for row in rows if row["tags"] == "odd" and row["queue_id"] in (0, 1)
    )
    equal(numbers(pushed), wanted, "filters that were taken over")


def by_time(world: World, place: Place) -> None:
    """Starts, ends and filters at a time mean that time, whatever the broker's search answers."""
    topic = new_topic(world, place, "spark_time")
    send(place.ns, topic, range(60))
    time.sleep(0.05)
    at_ms = int(time.time() * 1000)
    time.sleep(0.05)
    send(place.ns, topic, range(60, 120))
    equal(numbers(table(place.ns, topic, startingTimestamp=at_ms)), list(range(60, 120)), "from a time on")
    equal(numbers(table(place.ns, topic, endingTimestamp=at_ms)), list(range(60)), "up to a time")
    late = at_ms + 3_600_000
    equal(numbers(table(place.ns, topic, endingTimestamp=late)), list(range(120)), "up to a time to come")
    rows = table(place.ns, topic).select("body", "store_timestamp").collect()
    for row in sorted(rows, key=lambda row: row["store_timestamp"])[::17]:
        begin = int(row["store_timestamp"].timestamp() * 1000)
        wanted = sorted(int(bytes(r["body"])) for r in rows if r["store_timestamp"] >= row["store_timestamp"])
        equal(numbers(table(place.ns, topic, startingTimestamp=begin)), wanted, f"from {begin} on")
    moment = f"store_timestamp >= timestamp_millis({at_ms})"
    equal(numbers(table(place.ns, topic, pushFilters="true").where(moment)), list(range(60, 120)), "filter")


def sql(world: World, place: Place) -> None:
    """A broken expression is an error; RocketMQ would send everything."""
    topic = new_topic(world, place, "spark_sql")
    send(place.ns, topic, range(40))
    asyncio.run(allow(place))
    equal(numbers(table(place.ns, topic, sql="n > 29")), list(range(30, 40)), "an expression")
    try:
        table(place.ns, topic, sql="n > ").collect()
    except Exception as error:
        check("option sql='n >'" in str(error), f"a broken expression: {str(error)[:300]}")
    else:
        raise CellError("a broken expression was read with")


def stream(place: Place, topic: str, folder: Path, **options: Any) -> DataFrame:
    return (
        spark()
        .readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .options(nameServers=place.ns, **options)
        .load(topic)
    )


def progress(world: World, place: Place) -> None:
    """Apache's tool shows how far a query is: its lag falls to 0."""
    topic, group = new_topic(world, place, "spark_progress"), world.fresh("spark_group")
    send(place.ns, topic, range(100))
    folder = world.folder / world.fresh("spark-progress")

    def run() -> None:
        frame = stream(place, topic, folder, groupId=group, maxRowsPerTrigger=40)
        query = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
        check(query.trigger(availableNow=True).start().awaitTermination(120), "the query did not end")

    run()
    shown(world, place, topic, group, 0)
    send(place.ns, topic, range(100, 130))
    shown(world, place, topic, group, 30)
    run()
    shown(world, place, topic, group, 0)


def shown(world: World, place: Place, topic: str, group: str, lag: int) -> None:
    """Brokers of RocketMQ tell of new offsets at once, but count messages a moment later."""
    deadline = time.monotonic() + 20
    while True:
        # The tool of 5.x asks brokers of 4.9 for what they do not know.
        with world.old_clients() if place.kind.endswith("4.9") else nullcontext():
            (said,) = world.admin([["consumerProgress", "-n", place.ns, "-g", group]])
        if (topic in said and f"Diff Total: {lag}" in said) or time.monotonic() > deadline:
            break
        time.sleep(1)
    check(topic in said and f"Diff Total: {lag}" in said, f"consumerProgress, wanted {lag}: {said}")


def replay(world: World, place: Place) -> None:
    """A batch that neither Spark nor the sink could note is played again: each row is there once."""
    source, target = new_topic(world, place, "spark_from"), new_topic(world, place, "spark_to")
    send(place.ns, source, range(150))
    folder = world.folder / world.fresh("spark-replay")
    # Writers look for the format through the thread's session.
    spark().createDataFrame([(1,)], "number INT")

    def run() -> None:
        frame = stream(place, source, folder, maxRowsPerTrigger=100).select("body", "tags", "keys")
        writer = frame.writeStream.format("rocketmq").options(nameServers=place.ns, topic=target)
        query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        check(query.awaitTermination(120), "the query did not end")

    run()
    equal(numbers(table(place.ns, target)), list(range(150)), "copies")
    last = max((p for p in (folder / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    for record in (folder / "orbitmq-sink").glob(f"**/{last.name}/commit*"):
        record.unlink()
    run()
    equal(numbers(table(place.ns, target)), list(range(150)), "copies after a replay")


PLACE_CELLS: dict[str, Callable[[World, Place], None]] = {
    "spark read": read,
    "spark time": by_time,
    "spark sql": sql,
    "spark progress": progress,
    "spark sink replay": replay,
}


def slave_reads(make: Callable[[World], Ours | Apache]) -> Callable[[World], None]:
    """The cell for a master and a slave of this kind."""

    def cell(world: World) -> None:
        folder = world.folder / world.fresh("spark-slave")
        maker = make(world)
        with world.server_stopped(world.ours.name_server(folder / "ns")) as name_server:
            first = free_ports(10)
            running: dict[str, Server] = {}
            try:
                running["master"] = member(maker, folder, name_server.address, "master", first + 2)
                wait_registered(name_server.port)
                with Client(running["master"].port) as client:
                    client.create_topic("spark_slave", QUEUES)
                send(name_server.address, "spark_slave", range(200))
                running["slave"] = member(maker, folder, name_server.address, "slave", first + 7)
                _slave_reads(name_server, running)
            finally:
                for server in running.values():
                    server.kill()

    return cell


def member(maker: Ours | Apache, folder: Path, ns: str, name: str, port: int) -> Server:
    role = {"brokerId": "1", "brokerRole": "SLAVE"} if name == "slave" else {"brokerRole": "ASYNC_MASTER"}
    more = {"brokerIP2": "127.0.0.1", "flushDiskType": "ASYNC_FLUSH", "slaveReadEnable": "true", **role}
    return maker.broker(folder / name, ns, port=port, registerNameServerPeriod=REGISTER_MS, **more)


def wait_for_topic(port: int) -> None:
    """A slave of RocketMQ asks its master for topics now and then; until then it refuses to be read."""
    deadline = time.monotonic() + ROUTE_S
    while time.monotonic() < deadline:
        with Client(port) as client:
            if b"spark_slave" in client.request(GET_ALL_TOPIC_CONFIG).body:
                return
        time.sleep(0.5)
    raise CellError("the slave does not know the topic")


def _slave_reads(name_server: Server, running: dict[str, Server]) -> None:
    caught_up(running["master"], running["slave"], "the slave")
    wait_for_topic(running["slave"].port)
    running.pop("master").kill()
    wanted = json.dumps({"spark_slave": {"broker-a": list(range(QUEUES))}})
    deadline = time.monotonic() + ROUTE_S
    while True:
        frame = spark().read.format("rocketmq").options(nameServers=name_server.address, assign=wanted)
        try:
            found = numbers(frame.option("offsetTimeout", "20s").load())
        except Exception as error:
            if time.monotonic() > deadline:
                raise CellError(f"the slave is not read: {str(error)[:300]}") from error
            time.sleep(1)
            continue
        if len(found) == 200 or time.monotonic() > deadline:
            break
        time.sleep(1)  # RocketMQ's slave makes its queues a moment after its log
    equal(found, list(range(200)), "what a slave gives without its master")


SLAVE_CELLS: dict[str, Callable[[World], None]] = {
    "spark reads a slave of ours": slave_reads(lambda world: world.ours),
    "spark reads a slave of apache 5.5.0": slave_reads(lambda world: world.apache("5.5.0")),
    "spark reads a slave of apache 4.9.7": slave_reads(lambda world: world.apache("4.9.7")),
}
