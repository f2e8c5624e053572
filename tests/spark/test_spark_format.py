"""The format ``rocketmq`` in a real Spark session, against a real cluster of processes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import functools
import operator

import pyspark

from orbitmq import Message, Producer
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.spark import versions
from orbitmq.spark.cluster.brokers import Brokers, max_offset
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.progress import watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

_STREAMING = "org.apache.spark.sql.execution.streaming"
FILE_MANAGER = (
    f"{_STREAMING}.{'' if versions.version_of(pyspark.__version__) < (4, 1) else 'checkpointing.'}"
    "FileSystemBasedCheckpointFileManager"
)
# How often to start a limited run until nothing is left.
ONE_RUN = 1 if versions.HAS_READ_LIMITS else 2
needs_limits = pytest.mark.skipif(
    not versions.HAS_READ_LIMITS, reason="another version of PySpark: 4.2 or later"
)
needs_filters = pytest.mark.skipif(
    not versions.HAS_FILTERS, reason="another version of PySpark: 4.1 or later"
)

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class Cluster:
    """A cluster of processes, driven from tests that are not asynchronous."""

    def __init__(self, root: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.processes = ProcessCluster(brokers=2, root=str(root))
        self.run(self.processes.start())
        self.name_server = self.processes.name_server
        self.brokers = self.processes.brokers

    def pid(self, name: str) -> int:
        return self.processes.processes[name].pid

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(180)

    def send(
        self, topic: str, bodies: range, tags: tuple[str, ...] = ("red", "blue"), body: str = "{n}"
    ) -> None:
        async def work() -> None:
            async with Producer("spark_tests", name_servers=self.name_server) as producer:
                for first in range(bodies.start, bodies.stop, 20):
                    numbers = range(first, min(first + 20, bodies.stop))
                    batch = [
                        Message(topic, body.format(n=n), tags=tags[n % len(tags)], keys=f"k{n}")
                        for n in numbers
                    ]
                    await producer.send_batch(batch)

        self.run(work())

    def ends(self, topic: str) -> Offsets:
        brokers = Brokers([self.name_server], 5000)
        return Offsets(brokers.offsets(brokers.readable([topic]), max_offset))

    def stop(self) -> None:
        self.run(self.processes.stop())
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
        spark__sql__streaming__checkpointFileManagerClass=FILE_MANAGER,
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


@needs_filters
def test_filters_are_taken_over(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("filtered", range(200))
    whole = table(spark, cluster, "filtered")
    rows = whole.collect()
    at = sorted(row["store_timestamp"] for row in rows)[120]
    moment = f"timestamp_micros({round(at.timestamp() * 1_000_000)})"
    for condition, keep in (
        ("tags = 'red'", lambda row: row["tags"] == "red"),
        (
            "tags IN ('red', 'green') AND queue_id = 1",
            lambda row: (row["tags"], row["queue_id"]) == ("red", 1),
        ),
        (
            "broker = 'broker-b' AND queue_offset > 3",
            lambda r: r["broker"] == "broker-b" and r["queue_offset"] > 3,
        ),
        (f"store_timestamp >= {moment}", lambda row: row["store_timestamp"] >= at),
        (f"store_timestamp < {moment}", lambda row: row["store_timestamp"] < at),
        ("topic = 'other'", lambda row: False),
    ):
        found = whole.where(condition)
        assert numbers(found.collect()) == sorted(int(bytes(row["body"])) for row in rows if keep(row)), (
            condition
        )
    plan = plan_of(whole.where("tags = 'red' AND queue_id = 1 AND keys LIKE 'k1%'"))
    pushed = next(line for line in plan.splitlines() if "PushedFilters" in line)
    assert "EqualTo(tags,red)" in pushed
    assert "EqualTo(queue_id,1)" in pushed
    assert "keys" not in pushed
    off = table(spark, cluster, "filtered", pushFilters="false").where("tags = 'red'")
    assert off.count() == 100
    assert "EqualTo(tags" not in plan_of(off)


def plan_of(frame: DataFrame) -> str:
    """What EXPLAIN FORMATTED prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain("formatted")
    return printed.getvalue()


@pytest.mark.skipif(versions.HAS_FILTERS, reason="another version of PySpark: before 4.1")
def test_filters_that_a_version_lacks_are_refused(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("unfiltered", range(10))
    assert table(spark, cluster, "unfiltered").where("tags = 'red'").count() == 5
    with pytest.raises(Exception, match=r"option pushFilters=true needs PySpark 4\.1 or later"):
        table(spark, cluster, "unfiltered", pushFilters="true").count()


def test_an_expression_is_shown_to_the_brokers_first(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("expressed", range(40))
    assert table(spark, cluster, "expressed", sql="TAGS = 'red' AND KEYS <> 'k4'").count() == 19
    with pytest.raises(
        Exception, match=r"option sql='TAGS =': 127\.0\.0\.1:\d+ cannot filter by it: .*column"
    ):
        table(spark, cluster, "expressed", sql="TAGS = ").count()


def test_a_view_keeps_its_options_and_a_table_is_refused(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("viewed", range(50))
    options = f"nameServers '{cluster.name_server}', topic 'viewed'"
    spark.sql(f"CREATE TEMPORARY VIEW viewed USING rocketmq OPTIONS ({options}, properties 'map')")
    query = "SELECT count(*), min(properties['KEYS']) FROM viewed WHERE tags = 'blue'"
    assert tuple(spark.sql(query).first() or ()) == (25, "k1")
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE tabled USING rocketmq OPTIONS ({options})")


def test_bodies_are_values(spark: SparkSession, cluster: Cluster) -> None:
    cluster.send("valued", range(20), body='{{"id": {n}, "half": {n}.5}}')
    cluster.send("valued", range(20, 22))
    frame = table(spark, cluster, "valued", columns="body")
    values = frame.selectExpr("from_json(CAST(body AS STRING), 'id INT, half DOUBLE') AS value")
    rows = values.where("value.id IS NOT NULL").selectExpr("value.id", "value.half").collect()
    assert sorted((row["id"], row["half"]) for row in rows) == [(n, n + 0.5) for n in range(20)]
    text = table(spark, cluster, "valued", valueFormat="string", columns="body")
    assert text.where("body = '21'").count() == 1


def test_a_wrong_column_is_told_before_any_task(spark: SparkSession, cluster: Cluster) -> None:
    reader = spark.read.format("rocketmq").options(nameServers="127.0.0.1:1", topic="t")
    with pytest.raises(Exception, match="column body has type int, must be binary or string"):
        reader.schema("body INT").load().count()


def test_a_group_shows_how_far_a_query_is(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("watched", range(100))
    # Older versions do not ask again after the last batch of a run; the next run tells where it ended.
    for _ in range(ONE_RUN + (ONE_RUN > 1)):
        query = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .options(
                nameServers=cluster.name_server, topic="watched", groupId="watchers", maxRowsPerTrigger="50"
            )
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


def test_what_a_stream_cannot_have_is_the_last_line_of_its_error(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    reader = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .options(nameServers=cluster.name_server, endingOffsets="latest")
    )
    writer = reader.load("table").writeStream.format("noop")
    with pytest.raises(Exception, match="option endingOffsets has no effect on a stream") as told:
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert "UnboundLocalError" not in str(told.value)


@needs_limits
def test_a_stream_goes_on_where_it_was(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("stream", range(500))
    batches: list[list[int]] = []

    def run() -> None:
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("nameServers", cluster.name_server)
        )
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
        query.awaitTermination(300)

    run()
    assert [len(batch) for batch in batches] == [200, 200, 100]
    assert sorted(functools.reduce(operator.iadd, batches, [])) == list(range(500))
    batches.clear()
    cluster.send("stream", range(500, 550))
    run()
    assert batches == [list(range(500, 550))]


@pytest.mark.skipif(versions.HAS_READ_LIMITS, reason="another version of PySpark: before 4.2")
def test_a_limited_run_of_an_older_spark_is_started_again(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.send("older", range(500))
    batches: list[list[int]] = []
    for _ in range(4):
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("nameServers", cluster.name_server)
        )
        query = (
            stream.option("maxRowsPerTrigger", 200)
            .load("older")
            .writeStream.foreachBatch(lambda batch, _: batches.append(numbers(batch.collect())))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
    assert [len(batch) for batch in batches] == [200, 200, 100]
    assert sorted(functools.reduce(operator.iadd, batches, [])) == list(range(500))


def test_a_run_without_limits_reads_everything(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    counts: list[int] = []
    for count in (100, 30, 0):
        cluster.send("everything", range(count))
        query = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("nameServers", cluster.name_server)
            .load("everything")
            .writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
    assert [count for count in counts if count] == [100, 30]


def test_a_line_in_the_log_tells_how_far_a_query_is(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.spark")
    cluster.send("listened", range(300))
    listener = watch(spark)
    stream = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .option("nameServers", cluster.name_server)
        .load("listened")
    )
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .queryName("listened")
        .trigger(availableNow=True)
        .start()
    )
    line = "query listened, batch 0: 300 rows; behind by 0 rows"
    try:
        assert query.awaitTermination(300)
        deadline = time.monotonic() + 60
        while line not in caplog.messages:
            assert time.monotonic() < deadline, caplog.messages
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)


def activate(spark: SparkSession) -> None:
    """Make the session the active one of the JVM's thread, where writers look for the format.

    The first thread of a session has it by itself; under pytest, calls arrive on another.
    """
    spark.createDataFrame([(1,)], "number INT")


def test_a_replayed_batch_is_written_once(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.send("from", range(400))
    cluster.send("to", range(1))

    def run(partitions: int) -> None:
        activate(spark)
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("nameServers", cluster.name_server)
        )
        query = (
            stream.option("topic", "from")
            .option("maxRowsPerTrigger", 250)
            .load()
            .repartition(partitions)
            .selectExpr("'to' as topic", "body", "tags", "keys", "map('copy', 'yes') as properties")
            .writeStream.format("rocketmq")
            .option("nameServers", cluster.name_server)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)

    for _ in range(ONE_RUN):
        run(3)
    copies = table(spark, cluster, "to", properties="map").where("properties['copy'] = 'yes'")
    assert numbers(copies.collect()) == list(range(400))
    # The last batch was sent, but neither Spark nor the sink could note it: it is played again, shuffled
    # into other partitions.
    commits = sorted(p for p in (tmp_path / "commits").iterdir() if not p.name.startswith("."))
    commits[-1].unlink()
    record = next(iter((tmp_path / "orbitmq-sink").glob(f"*/{commits[-1].name}/commit-*.json")))
    assert json.loads(record.read_text())["rows"] == 150
    record.unlink()
    run(2)
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
