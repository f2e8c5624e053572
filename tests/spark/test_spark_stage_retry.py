"""A stage of ``df.write`` that Spark runs again, since a shuffle's files are gone: nothing is sent twice."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.test_spark_format import Cluster

from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

ROWS = 40_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    request = UpdateAndCreateTopicRequest(
        topic="stages", default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    for address in made.brokers.values():
        with BlockingConnection(address, 10_000) as connection:
            assert not connection.request(request.command()).code
    yield made
    made.stop()


@pytest.fixture
def local() -> Iterator[Path]:
    """Where Spark keeps shuffles, and sockets, whose names must be short."""
    with tempfile.TemporaryDirectory(prefix="spark-") as folder:
        yield Path(folder)


@pytest.fixture
def spark(local: Path) -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "stages", master="local[2]", spark__local__dir=str(local),
        spark__log__level="OFF", spark__sql__execution__arrow__maxRecordsPerBatch="1000",
    )  # fmt: skip
    yield made
    made.stop()


def test_a_stage_that_is_run_again_sends_nothing_twice(
    cluster: Cluster, spark: SparkSession, local: Path, tmp_path: Path
) -> None:
    once = tmp_path / "once"

    def lose_the_shuffle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """After some rows the files that hold the others are gone."""
        for number, batch in enumerate(batches):
            if number == 4 and not once.exists():
                once.touch()
                for file in local.rglob("shuffle_*.data"):
                    file.unlink()
            yield batch

    rows = spark.range(0, ROWS, 1, 4).selectExpr("concat(string(id), repeat('x', 1000)) AS body")
    rows.repartition(2).mapInArrow(lose_the_shuffle, "body STRING").write.format("rocketmq").options(
        nameServers=cluster.name_server, topic="stages", stateLocation=str(tmp_path / "state")
    ).mode("append").save()
    tracker = spark.sparkContext.statusTracker()
    stages = filter(None, (tracker.getStageInfo(stage) for stage in range(4)))
    assert max(stage.currentAttemptId for stage in stages) > 0, "Spark ran a stage again"
    found = spark.read.format("rocketmq").option("nameServers", cluster.name_server).load("stages")
    bodies = Counter(bytes(row["body"]).rstrip(b"x") for row in found.select("body").collect())
    assert len(bodies) == ROWS
    assert set(bodies.values()) == {1}
