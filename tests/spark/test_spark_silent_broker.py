"""A broker that is frozen or gone beside one that answers: an archive leaves it out, a stream goes on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.test_spark_format import FILE_MANAGER, Cluster, activate

from orbitmq import Message
from orbitmq.spark import jobs
from orbitmq.spark.cluster.brokers import Brokers, max_offset
from orbitmq.sync import Producer
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

SHORT = {"offsetTimeout": "3s", "requestTimeout": "1s"}
LIMIT_S = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers with the topic ``kept``; broker-b alone has ``lone``."""
    made = Cluster(tmp_path / "cluster")
    for topic, broker in (("kept", "broker-a"), ("kept", "broker-b"), ("lone", "broker-b")):
        request = UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        with BlockingConnection(made.brokers[broker], 10_000) as connection:
            assert not connection.request(request.command()).code
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "silence", master="local[2]", spark__sql__streaming__checkpointFileManagerClass=FILE_MANAGER
    )
    yield made
    made.stop()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def of(cluster: Cluster, topic: str, broker: str) -> int:
    return sum(end for queue, end in cluster.ends(topic).items() if queue.broker_name == broker)


def test_an_archive_leaves_a_silent_broker_to_the_next_run(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    to = str(tmp_path / "archive")
    # Long enough that the broker that goes on is not left out, too, on a busy machine.
    options = {"offsetTimeout": "10s", "requestTimeout": "5s"}
    job = jobs.ArchiveJob(["kept", "lone"], to, cluster.name_server, options=options)
    told: list[str] = []
    cluster.send("kept", range(160))
    cluster.send("lone", range(20))
    report = jobs.archive(spark, job)
    assert (report.ok, report.facts["messages"], report.facts["left_out"]) == (True, 180, [])

    before = of(cluster, "kept", "broker-a")
    cluster.send("kept", range(160, 320))
    cluster.send("lone", range(20, 40))
    new = of(cluster, "kept", "broker-a") - before
    assert 0 < new < 160
    os.kill(cluster.pid("broker-b"), signal.SIGSTOP)
    try:
        report = jobs.archive(spark, job, progress=told.append)
        # Without its checkpoint the job keeps the place of queues that it cannot ask for.
        (checkpoint,) = (tmp_path / "archive" / "_orbitmq").glob("archive-*")
        shutil.rmtree(checkpoint)
        again = jobs.archive(spark, job)
    finally:
        os.kill(cluster.pid("broker-b"), signal.SIGCONT)
    assert (report.ok, report.facts["messages"]) == (False, new)
    assert [one["broker"] for one in report.facts["left_out"]] == ["broker-b"]
    assert any(line.startswith("broker-b is left to the next run: ") for line in told)
    assert "; broker-b is left to the next run: " in report.summary
    assert (again.ok, again.facts["messages"]) == (False, 0)
    assert jobs.verify(to, ["kept", "lone"]).ok, "nothing is missing between what is there"

    # Name servers forget a broker, and a topic with its last broker.
    cluster.run(cluster.processes.stop_broker("broker-b"))
    report = jobs.archive(spark, job)
    assert [one["topic"] for one in report.facts["left_out"]] == ["lone"]
    assert [one["broker"] for one in report.facts["not_shown"]] == ["broker-b"]
    assert not report.ok
    cluster.run(cluster.processes.start_broker("broker-b"))
    report = jobs.archive(spark, job)
    assert (report.ok, report.facts["messages"]) == (True, 180 - new)
    checked = jobs.verify(to, footers=True)
    assert (checked.ok, checked.facts["messages"]) == (True, 360)


def test_a_stream_goes_on_without_the_only_broker_of_a_topic(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.send("kept", range(20))
    cluster.send("lone", range(20))
    rows: list[tuple[str, int]] = []
    stream = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .options(nameServers=cluster.name_server, **SHORT)
    )
    query = (
        stream.load("kept,lone")
        .writeStream.foreachBatch(
            lambda batch, _: rows.extend((row["topic"], int(bytes(row["body"]))) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )

    def there(count: int) -> None:
        until(lambda: len(rows) == count or not query.isActive, f"{count} rows")
        assert query.isActive, query.exception()

    try:
        there(40)
        cluster.run(cluster.processes.stop_broker("broker-b"))
        began, number = time.monotonic(), 20
        while time.monotonic() - began < 8:  # more than twice the time-out
            cluster.send("kept", range(number, number + 20))
            number += 20
            there(number + 20)
        cluster.run(cluster.processes.start_broker("broker-b"))
        cluster.send("lone", range(20, 40))
        there(number + 40)
    finally:
        query.stop()
    assert sorted(n for topic, n in rows if topic == "lone") == list(range(40))
    assert sorted(n for topic, n in rows if topic == "kept") == list(range(number))


@pytest.mark.behaviour("SP-11")
def test_a_stream_from_topic_to_topic_goes_on_without_name_servers(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """The name server is away for three time-outs; later it is back and knows no broker yet."""
    cluster.send("kept", range(20))
    cluster.send("copied", range(-1, 0))
    activate(spark)
    stream = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .options(nameServers=cluster.name_server, offsetTimeout="2s", requestTimeout="1s")
    )
    query = (
        stream.load("kept")
        .select("body")
        .writeStream.format("rocketmq")
        .options(nameServers=cluster.name_server, topic="copied", requestTimeout="1s", retryTimeout="2s")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    ends = Brokers([cluster.name_server], 5000)
    ends.route("copied")

    def copied(count: int) -> None:
        until(
            lambda: (
                sum(ends.offsets(ends.readable(["copied"]), max_offset).values()) == count + 1
                or not query.isActive
            ),
            f"{count} rows",
        )
        assert query.isActive, query.exception()

    with Producer("made", name_servers=cluster.name_server) as producer:

        def send(first: int) -> None:
            for number in range(first, first + 20):
                producer.send(Message("kept", str(number).encode()))

        try:
            send(20)
            copied(40)
            cluster.run(cluster.processes.stop_broker("nameserver", kill=True))
            began, number = time.monotonic(), 40
            while time.monotonic() - began < 6:
                send(number)
                number += 20
                copied(number)
            cluster.run(cluster.processes.start_broker("nameserver"))
            send(number)
            copied(number + 20)
        finally:
            query.stop()
    rows = spark.read.format("rocketmq").option("nameServers", cluster.name_server).load("copied").collect()
    assert sorted(int(bytes(row["body"])) for row in rows) == list(range(-1, number + 20))


def test_a_query_that_committed_nothing_yet_waits_for_the_only_broker_of_a_topic(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Its checkpoint names the topic; a query that begins with such a name does not know it."""
    cluster.send("kept", range(20))
    cluster.send("lone", range(20))
    rows: list[tuple[str, int]] = []
    fails = True

    def take(batch: Any, number: int) -> None:
        if fails:
            raise ValueError("not yet")
        rows.extend((row["topic"], int(bytes(row["body"]))) for row in batch.collect())

    def start(checkpoint: str) -> Any:
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .options(nameServers=cluster.name_server, **SHORT)
        )
        writer = stream.load("kept,lone").writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()

    query = start("checkpoint")
    until(lambda: not query.isActive, "the end of the query")
    assert "not yet" in str(query.exception())
    fails = False
    cluster.run(cluster.processes.stop_broker("broker-b"))
    began = time.monotonic()
    other = start("another")
    until(lambda: not other.isActive, "the end of a query that begins")
    assert "topic 'lone' is not known to the name servers" in str(other.exception())
    query = start("checkpoint")
    try:
        while time.monotonic() - began < 8:  # more than twice the time-out
            assert query.isActive, query.exception()
            time.sleep(0.2)
        assert not rows, "the batch needs both"
        cluster.run(cluster.processes.start_broker("broker-b"))
        until(lambda: len(rows) == 40 or not query.isActive, "40 rows")
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert sorted(rows) == sorted((topic, n) for topic in ("kept", "lone") for n in range(20))
