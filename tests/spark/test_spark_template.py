"""The Spark Declarative Pipelines project that ``orbitmq spark template`` writes, run twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="needs pyspark[pipelines]")

from orbitmq import Message
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]


def test_a_pipeline_goes_on_in_its_second_run(tmp_path: Path) -> None:
    from orbitmq.spark.jobs import write_template
    from orbitmq.spark.jobs.folder import Folder

    folder = tmp_path / "pipeline"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with running_cluster(str(tmp_path / "cluster")) as cluster:
        write_template(str(folder), "piped", cluster.name_server)
        rows = []
        for numbers in (range(30), range(30, 50)):
            with Producer("jobs", name_servers=cluster.name_server) as producer:
                for number in numbers:
                    producer.send(Message("piped", str(number), tags="x"))
            done = subprocess.run(
                ["sh", str(folder / "run.sh")],
                capture_output=True,
                text=True,
                env={**os.environ, "PATH": path},
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            import pyarrow.dataset as ds

            files = Folder(str(folder)).files("warehouse")
            parquet = [
                str(folder / name) for name in files if "messages" in name and name.endswith(".parquet")
            ]
            rows.append(
                sorted(int(bytes(body)) for body in ds.dataset(parquet).to_table().column("body").to_pylist())
            )
    assert rows == [list(range(30)), list(range(50))]
