"""The format ``rocketmq`` in a real Spark session, against a real cluster of processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import functools
import operator

from orbitmq import Message, Producer
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.spark.brokers import Brokers, max_offset
from orbitmq.spark.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class Cluster:
    """A cluster of processes, driven from tests that are not asynchronous."""

    def __init__(self, root: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._processes = ProcessCluster(brokers=2, root=str(root))
        self.run(self._processes.start())
        self.name_server = self._processes.name_server

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def send(self, topic: str, bodies: range, tags: tuple[str, ...] = ("red", "blue")) -> None:
        async def work() -> None:
            async with Producer("spark_tests", name_servers=self.name_server) as producer:
                for first in range(bodies.start, bodies.stop, 20):
                    numbers = range(first, min(first + 20, bodies.stop))
                    batch = [Message(topic, str(n), tags=tags[n % len(tags)], keys=f"k{n}") for n in numbers]
                    await producer.send_batch(batch)

        self.run(work())

    def ends(self, topic: str) -> Offsets:
        brokers = Brokers([self.name_server], 5000)
        return Offsets(brokers.offsets(brokers.readable([topic]), max_offset))

    def stop(self) -> None:
        self.run(self._processes.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "tests",
        master="local[2]",
        spark__sql__shuffle__partitions=2,
        # Two thirds of a micro-batch are checkpoint files; tests do without their safety.
        spark__sql__streaming__checkpointFileManagerClass=(
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    )
    yield made
    made.stop()


def table(spark: SparkSession, cluster: Cluster, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServers", cluster.name_server).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(bytes(row["body"])) for row in rows)


def test_a_topic_is_a_table(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("table", range(300))
    rows = table(spark, cluster, "table", properties="map").collect()
    assert numbers(rows) == list(range(300))
    for row in rows:
        number = int(bytes(row["body"]))
        assert row["topic"] == "table"
        assert row["tags"] == ("red", "blue")[number % 2]
        assert row["keys"] == f"k{number}"
        assert row["properties"]["KEYS"] == f"k{number}"
        assert row["properties"]["UNIQ_KEY"] == row["message_id"]
        assert row["store_timestamp"] >= row["born_timestamp"]
    places = {(row["broker"], row["queue_id"], row["queue_offset"]) for row in rows}
    assert len(places) == 300
    assert {place[0] for place in places} == {"broker-a", "broker-b"}

    few = table(spark, cluster, "table", columns="queue_offset,body", tags="red")
    assert few.columns == ["queue_offset", "body"]
    assert numbers(few.collect()) == list(range(0, 300, 2))

    ends = cluster.ends("table")
    queue = next(iter(ends))
    start = Offsets({q: end - 1 if q == queue else end for q, end in ends.items()})
    last = table(spark, cluster, "table", startingOffsets=start.text()).collect()
    assert [(row["broker"], row["queue_id"]) for row in last] == [(queue.broker_name, queue.queue_id)]


def test_what_is_read_can_be_chosen(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("choice-1", range(100))
    cluster.send("choice-2", range(100, 150))
    reader = spark.read.format("rocketmq").option("nameServers", cluster.name_server)
    both = reader.option("topicPattern", "choice-[0-9]").option("columns", "topic,broker,queue_id,body")
    rows = both.load().collect()
    assert numbers(rows) == list(range(150))
    some = {(row["broker"], row["queue_id"]) for row in rows if row["topic"] == "choice-1"}
    broker, queue_id = min(some)
    assigned = json.dumps({"choice-1": {broker: [queue_id]}})
    one = spark.read.format("rocketmq").option("nameServers", cluster.name_server).option("assign", assigned)
    expected = [
        row
        for row in rows
        if (row["topic"], row["broker"], row["queue_id"]) == ("choice-1", broker, queue_id)
    ]
    assert numbers(one.load().collect()) == numbers(expected)
    newer = table(spark, cluster, "choice-1", startingTimestamp="2020-01-01T00:00:00Z", maxRowsPerTask="10")
    assert newer.count() == 100


def test_a_group_shows_how_far_a_query_is(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("watched", range(100))
    query = (
        spark.readStream.format("rocketmq")
        .options(nameServers=cluster.name_server, topic="watched", groupId="watchers", maxRowsPerTrigger="40")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    brokers = Brokers([cluster.name_server], 5000)
    assert brokers.committed("watchers", brokers.readable(["watched"])) == dict(cluster.ends("watched"))
    assert brokers.readable(["%RETRY%watchers"]), "tools find a group by its retry topic"


def test_a_wrong_option_is_explained(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(Exception, match=r"unknown option 'maxrows'.*did you mean maxRowsPer"):
        table(spark, cluster, "table", maxRows=5).collect()


def test_a_stream_goes_on_where_it_was(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("stream", range(500))
    batches: list[list[int]] = []

    def run() -> None:
        stream = spark.readStream.format("rocketmq").option("nameServers", cluster.name_server)
        query = (
            stream.option("topic", "stream")
            .option("maxRowsPerTrigger", 200)
            .option("columns", "body")
            .load()
            .writeStream.foreachBatch(lambda batch, _: batches.append(numbers(batch.collect())))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(90)

    run()
    assert [len(batch) for batch in batches] == [200, 200, 100]
    assert sorted(functools.reduce(operator.iadd, batches, [])) == list(range(500))
    batches.clear()
    cluster.send("stream", range(500, 550))
    run()
    assert batches == [list(range(500, 550))]


def activate(spark: SparkSession) -> None:
    """Make the session the active one of the JVM's thread, where writers look for the format.

    The first thread of a session has it by itself; under pytest, calls arrive on another.
    """
    spark.createDataFrame([(1,)], "number INT")


def test_a_replayed_batch_is_written_once(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("from", range(400))
    cluster.send("to", range(1))

    def run() -> None:
        activate(spark)
        stream = spark.readStream.format("rocketmq").option("nameServers", cluster.name_server)
        query = (
            stream.option("topic", "from")
            .option("maxRowsPerTrigger", 250)
            .load()
            .selectExpr("'to' as topic", "body", "tags", "keys", "map('copy', 'yes') as properties")
            .writeStream.format("rocketmq")
            .option("nameServers", cluster.name_server)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(90)

    run()
    copies = table(spark, cluster, "to", properties="map").where("properties['copy'] = 'yes'")
    assert numbers(copies.collect()) == list(range(400))
    # The last batch was sent, but neither Spark nor the sink could note it: it is played again.
    commits = sorted(p for p in (tmp_path / "commits").iterdir() if not p.name.startswith("."))
    commits[-1].unlink()
    record = next(iter((tmp_path / "orbitmq-sink").glob(f"*/{commits[-1].name}/commit-*.json")))
    assert json.loads(record.read_text())["rows"] == 150
    record.unlink()
    run()
    again = table(spark, cluster, "to", properties="map").where("properties['copy'] = 'yes'").collect()
    assert numbers(again) == list(range(400))
    assert len({row["message_id"] for row in again}) == 400
    assert list(record.parent.glob("commit-*.json")), "by another run"


def test_a_data_frame_is_sent_once(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("sent", range(1))
    activate(spark)
    frame = spark.range(1, 120, numPartitions=3).selectExpr("string(id) as body", "array('a', 'b') as keys")
    writer = frame.write.format("rocketmq").option("nameServers", cluster.name_server).option("topic", "sent")
    writer.mode("append").save()
    rows = table(spark, cluster, "sent").collect()
    assert numbers(rows) == list(range(120))
    assert {row["keys"] for row in rows} == {"k0", "a b"}
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="column 'id' cannot be written; known: topic, body"):
        spark.range(3).write.format("rocketmq").option("topic", "sent").mode("append").save()
