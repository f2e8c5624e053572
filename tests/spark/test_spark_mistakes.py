"""Mistakes that the driver finds: one sentence, with the command that helps, and no task runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.test_spark_format import FILE_MANAGER, Cluster, activate

import orbitmq
from orbitmq.errors import OrbitError
from orbitmq.spark import jobs
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

NOBODY = "127.0.0.1:1"
NO_ANSWER = "no name server gave an answer (cannot connect to 127.0.0.1:1: "
PACKAGE = Path(orbitmq.__file__).parent


def create(cluster: Cluster, topic: str, perm: int) -> None:
    request = UpdateAndCreateTopicRequest(
        topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=perm,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    for address in cluster.brokers.values():
        with BlockingConnection(address, 10_000) as connection:
            assert not connection.request(request.command()).code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    for topic, perm in (("there", 6), ("read-only", 4), ("write-only", 2)):
        create(made, topic, perm)
    made.send("there", range(20))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "mistakes", master="local[2,4]", spark__sql__streaming__checkpointFileManagerClass=FILE_MANAGER
    )
    yield made
    made.stop()


def failed(spark: SparkSession, action: Callable[[], Any]) -> tuple[str, int, int]:
    """The error that the user reads, the number of Spark's jobs, and the number of failed tasks."""
    group = "mistake"
    activate(spark)
    spark.sparkContext.setJobGroup(group, group)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(group))
    with pytest.raises(Exception, match="orbitmq") as told:
        action()
    jobs = set(tracker.getJobIdsForGroup(group)) - before
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
    return str(told.value), len(jobs), sum(stage.numFailedTasks for stage in stages if stage)


def sentence(text: str) -> str:
    """The line of the error with the cause."""
    (line,) = {line for line in text.splitlines() if line.startswith("orbitmq.")}
    return line.partition(": ")[2]


def unknown(cluster: Cluster) -> str:
    return (
        f"topic 'nowhere' is not known to the name servers {cluster.name_server}: create it with "
        f"`orbitmq topic create nowhere -n '{cluster.name_server}'`, or correct its name"
    )


def changed(cluster: Cluster, topic: str) -> str:
    return f"with `orbitmq topic create {topic} --queues 2 --permission 6 -n '{cluster.name_server}'`"


@pytest.mark.behaviour("SP-12")
def test_a_write_that_cannot_be_begins_no_task(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("string(id) AS body")

    def told(**options: str) -> str:
        given = {"nameServers": cluster.name_server, **options}
        text, jobs, _ = failed(
            spark, lambda: frame.write.format("rocketmq").options(**given).mode("append").save()
        )
        assert not jobs
        assert text.count('File "') <= 1, "no trace of our own"
        return sentence(text)

    assert told(topic="nowhere") == unknown(cluster)
    assert told(topic="nowhere", delivery="at-least-once") == unknown(cluster)
    assert (
        told(topic="read-only")
        == f"topic 'read-only' can only be read: allow both {changed(cluster, 'read-only')}"
    )
    # Only exactly-once reads.
    unread = told(topic="write-only", stateLocation=str(tmp_path))
    assert unread.startswith("topic 'write-only' can only be written: ")
    assert told(topic="there", nameServers=NOBODY).startswith(NO_ANSWER)
    assert told(topic="no topic").startswith("option topic='no topic' cannot name a topic: ")
    assert told(topic="there", delivery="twice").startswith(
        "option delivery='twice' is not at-least-once or "
    )
    assert told(topic="there", tpoic="x").startswith(
        "unknown option 'tpoic' for writing topics: did you mean"
    )


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize("topic", ["nowhere", "read-only", "a b"])
def test_a_wrong_topic_in_a_column_is_final_at_once(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    """The session would try each task four times."""
    frame = spark.range(0, 2_000, 1, 2).selectExpr(
        f"if(id = 7, '{topic}', 'there') AS topic", "string(id) AS body"
    )
    writer = frame.write.format("rocketmq").option("nameServers", cluster.name_server).mode("append")
    text, jobs, failures = failed(spark, writer.save)
    assert (jobs, failures) == (1, 0)
    assert repr(topic) in sentence(text)
    assert topic != "nowhere" or sentence(text) == unknown(cluster)


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize("column", [False, True], ids=["option", "column"])
def test_a_stream_into_no_topic_ends_with_the_sentence(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, column: bool
) -> None:
    activate(spark)
    stream = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .option("nameServers", cluster.name_server)
        .load("there")
    )
    columns = ["body", "'nowhere' AS topic"] if column else ["body"]
    writer = stream.selectExpr(*columns).writeStream.format("rocketmq")
    writer = writer.options(nameServers=cluster.name_server, **({} if column else {"topic": "nowhere"}))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    text, _, failures = failed(spark, lambda: query.awaitTermination(300))
    assert sentence(text) == unknown(cluster)
    assert not failures


@pytest.mark.behaviour("SP-12")
def test_a_replay_that_cannot_be_begins_no_task(spark: SparkSession, cluster: Cluster) -> None:
    def told(to: str) -> str:
        with pytest.raises(OrbitError) as error:
            jobs.replay(spark, jobs.ReplayJob("there", to, cluster.name_server))
        return str(error.value)

    assert told("nowhere") == unknown(cluster)
    assert told("read-only").endswith(f"can only be read: allow both {changed(cluster, 'read-only')}")
    assert told("%RETRY%nobody").endswith("no message of group 'nobody' was retried, or its name is wrong")


@pytest.mark.behaviour("SP-12")
@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_a_read_that_cannot_be_begins_no_task(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, is_stream: bool
) -> None:
    def read(**options: str) -> Any:
        given = {"nameServers": cluster.name_server, "offsetTimeout": "2s", **options}
        if not is_stream:
            return spark.read.format("rocketmq").options(**given).load().count()
        writer = spark.readStream.format("rocketmq").options(**given).load().writeStream.format("noop")
        where = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        return writer.option("checkpointLocation", where).start().awaitTermination(300)

    def told(**options: str) -> str:
        text, jobs, _ = failed(spark, lambda: read(**options))
        assert not jobs
        assert text.count(f"{PACKAGE}/") <= 1, "no trace of our own"
        return sentence(text)

    assert told(topic="nowhere") == unknown(cluster)
    assert told(topic="there,nowhere") == unknown(cluster)
    assert told(topic="write-only").startswith("topic 'write-only' can only be written: ")
    assert told(topic="there", nameServers=NOBODY).startswith(NO_ANSWER)
    assert told(topic="no topic").startswith("option topic='no topic' cannot name a topic: ")
    assert told(topic="there", startingOffsets="first").startswith("option startingOffsets='first' is not ")
