"""The format through Spark Connect: a server of the installed PySpark, and a client without a JVM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pandas", reason="needs pyspark[connect], which make test-spark installs: no pandas")
pytest.importorskip("grpc", reason="needs pyspark[connect], which make test-spark installs: no grpc")
pytest.importorskip("grpc_status", reason="needs pyspark[connect], which make test-spark installs: no status")

from tests.spark.standalone import CHECKOUT, Server
from tests.spark.test_spark_format import Cluster

from orbitmq.runtime.ports import free_ports, release
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

ROWS = 1_000
LIMIT_S = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    for topic in ("connected", "streamed"):
        request = UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        for address in made.brokers.values():
            with BlockingConnection(address, 10_000) as connection:
                assert not connection.request(request.command()).code
    yield made
    made.stop()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server."""
    folder = tmp_path / "server"
    folder.mkdir()
    ports = free_ports(1)
    command = [
        "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={ports[0]}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "spark-internal",
    ]  # fmt: skip
    server = Server("connect", folder, command, "Spark Connect server started at", "600m")
    try:
        server.serves()
        yield f"sc://127.0.0.1:{ports[0]}"
    finally:
        server.stop()
        release(ports)


def test_a_client_of_spark_connect_writes_streams_and_reads(
    cluster: Cluster, remote: str, tmp_path: Path
) -> None:
    words = [remote, cluster.name_server, str(tmp_path / "checkpoint"), str(ROWS)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert not ended.returncode, ended.stderr[:4000]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["found"] == {topic: list(range(ROWS)) for topic in ("connected", "streamed")}
    assert "topic 'nowhere' is not known to the name servers" in told["told"]
    assert f"orbitmq topic create nowhere -n '{cluster.name_server}'" in told["told"]
