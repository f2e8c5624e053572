"""A standalone cluster of a master and two workers: batch, stream, archive; an executor and a worker die.

ORBITMQ_SPARK_SHORT=1 does it with fewer rows.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.standalone import StandaloneCluster
from tests.spark.test_spark_format import FILE_MANAGER, Cluster, activate

from orbitmq.spark import jobs
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for executors in /proc"),
]

ROWS = 20_000 if os.environ.get("ORBITMQ_SPARK_SHORT") else 100_000
BATCHES = 20
LIMIT_S = 300
TOPICS = ("made", "copied")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    made = StandaloneCluster(tmp_path_factory.mktemp("standalone"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    for topic in TOPICS:
        request = UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        for address in made.brokers.values():
            with BlockingConnection(address, 10_000) as connection:
                assert not connection.request(request.command()).code
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark(standalone: StandaloneCluster) -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "standalone",
        master=standalone.url,
        spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1",
        spark__executor__memory="600m",
        spark__executor__cores=1,
        spark__cores__max=2,
        spark__sql__shuffle__partitions=4,
        spark__sql__streaming__checkpointFileManagerClass=FILE_MANAGER,
    )
    yield made
    made.stop()


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def numbers(spark: SparkSession, cluster: Cluster, topic: str) -> Counter[int]:
    """How often each number is in a topic, read by the executors."""
    frame = spark.read.format("rocketmq").option("nameServers", cluster.name_server).load(topic)
    rows = frame.selectExpr("CAST(CAST(body AS STRING) AS INT) AS number").collect()
    return Counter(row["number"] for row in rows)


def once_each(found: Counter[int]) -> bool:
    return len(found) == ROWS and set(found) == set(range(ROWS)) and set(found.values()) == {1}


def test_a_job_writes_and_reads_each_row_once(
    spark: SparkSession, cluster: Cluster, standalone: StandaloneCluster
) -> None:
    until(lambda: len(standalone.executors()) == 2, "an executor on each worker")
    activate(spark)
    frame = spark.range(0, ROWS, 1, 8).selectExpr("string(id) AS body")
    options = {"nameServers": cluster.name_server, "topic": "made"}
    frame.write.format("rocketmq").options(**options).mode("append").save()
    assert once_each(numbers(spark, cluster, "made"))


def test_a_stream_copies_each_row_once_though_an_executor_and_a_worker_are_killed(
    spark: SparkSession, cluster: Cluster, standalone: StandaloneCluster, tmp_path: Path
) -> None:
    activate(spark)
    stream = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .option("nameServers", cluster.name_server)
    )
    writer = (
        stream.option("maxRowsPerTrigger", ROWS // BATCHES)
        .load("made")
        .select("body")
        .repartition(3)
        .writeStream.format("rocketmq")
        .options(nameServers=cluster.name_server, topic="copied", checkpointLocation=str(tmp_path))
        .trigger(processingTime="1 second")
    )
    query = writer.start()

    def batch(number: int) -> None:
        until(
            lambda: (query.lastProgress or {}).get("batchId", -1) >= number or not query.isActive, str(number)
        )
        assert query.isActive, query.exception()

    try:
        batch(1)
        before = standalone.executors()
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        until(lambda: standalone.executors().keys() - before.keys(), "a new executor")
        batch((query.lastProgress or {})["batchId"] + 1)
        assert (query.lastProgress or {})["batchId"] < BATCHES - 1, "killed while it copied"
        next(iter(standalone.executors().values())).kill()
        batch(BATCHES - 1)
    finally:
        query.stop()
    assert once_each(numbers(spark, cluster, "copied"))


def test_an_archive_has_each_message(
    spark: SparkSession, cluster: Cluster, standalone: StandaloneCluster, tmp_path: Path
) -> None:
    standalone.add_worker()
    until(lambda: len(standalone.executors()) == 2, "an executor on the new worker")
    to = str(tmp_path / "archive")
    report = jobs.archive(spark, jobs.ArchiveJob(["made", "copied"], to, cluster.name_server))
    assert (report.ok, report.facts["messages"]) == (True, 2 * ROWS)
    checked = jobs.verify(to, footers=True)
    assert (checked.ok, checked.facts["messages"]) == (True, 2 * ROWS)
