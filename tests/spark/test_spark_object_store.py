"""State and archive in an object store: S3 as moto serves it, reached with pyarrow alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("moto.server", reason="needs moto[server]")

import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer
from pyarrow import fs
from tests.spark.sink_query import QUERY, Query, bodies

from orbitmq import Message
from orbitmq.spark.jobs import compact, verify
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.sink_state import FolderState
from orbitmq.sync import Producer
from orbitmq.testing import RunningCluster, running_cluster

BUCKET = "orbitmq"


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """The environment in which pyarrow finds the store."""
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    filesystem, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true")
    filesystem.create_dir(BUCKET)
    yield environment
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    served.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), brokers=2) as running:
        yield running


def send(cluster: RunningCluster, topic: str, numbers: range) -> None:
    with Producer("objects", name_servers=cluster.name_server) as producer:
        for number in numbers:
            producer.send(Message(topic, str(number)))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_sink_keeps_its_state_there(store: Any, cluster: RunningCluster, scheme: str) -> None:
    topic, location = f"objects-{scheme}", f"{scheme}://{BUCKET}/{scheme}/state"
    send(cluster, topic, range(-1, 0))
    options = WriteOptions(topic=topic, name_servers=(cluster.name_server,), state_location=location)
    query = Query(options)
    query.run(7, [bodies(range(50)), bodies(range(50, 60))], commit=False)
    query.run(7, [bodies(range(20, 60)), bodies(range(20))])
    assert query.bodies(7) == list(range(60))
    record = FolderState(location).commit_record(QUERY, 7)
    assert record is not None
    assert (record["rows"], record["sent"]) == (60, 0)
    query.run(7, [bodies(range(60))])
    assert query.bodies(7) == list(range(60)), "committed, and Spark did not note it"


@pytest.mark.spark
@pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java")
def test_an_archive_is_written_verified_and_merged_there(
    store: dict[str, str], cluster: RunningCluster, tmp_path: Path
) -> None:
    to = f"s3://{BUCKET}/archive"
    command = [
        sys.executable, "-m", "orbitmq", "spark", "archive", "objects-kept", to, "-n", cluster.name_server,
        "--checkpoint", str(tmp_path / "checkpoint"), "--json", "--master", "local[2]",
    ]  # fmt: skip
    for numbers in (range(60), range(60, 80)):
        send(cluster, "objects-kept", numbers)
        done = subprocess.run(
            command, env=os.environ | store, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert json.loads(done.stdout)["messages"] == len(numbers)
    report = verify(to, footers=True)
    assert (report.ok, report.facts["messages"]) == (True, 80)
    merged = compact(to)
    assert merged.facts["files_after"] < merged.facts["files_before"]
    folder = Folder(to)
    found: Counter[int] = Counter()
    for file in folder.archive_files():
        with folder.open(file.path) as source:
            found.update(int(body) for body in pq.read_table(source).column("body").to_pylist())
    assert found == Counter(range(80))
    assert verify(to, footers=True).ok
