"""The JSON form of the jobs on Spark, against one golden file each; see tests/sockets/test_cli_json.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.sockets.conftest import Command, command
from tests.sockets.test_cli_json import check

from orbitmq import Message
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster

__all__ = ["command"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]


def test_the_jobs(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = str(tmp_path / "archive")

    def spark(*words: str) -> str:
        return command("spark", *words, "--master", "local[1]", "--json").replace(str(tmp_path), "FOLDER")

    with running_cluster(str(tmp_path / "cluster")) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        for topic in ("orders", "again", "%DLQ%billing"):
            command("topic", "create", topic, "--queues", "1")
        with Producer("shop", name_servers=cluster.name_server) as producer:
            for number in range(3):
                producer.send(Message("orders", f"order {number}"))
            producer.send(Message("%DLQ%billing", "dead", properties={"DLQ_ORIGIN_TOPIC": "orders"}))
        check("spark-archive-dry-run", spark("archive", "orders", archive, "--dry-run"))
        check("spark-archive", spark("archive", "orders", archive))
        check("spark-replay-dry-run", spark("replay", archive, "again", "--dry-run"))
        check("spark-replay", spark("replay", archive, "again"))
        check("spark-audit", spark("audit", "orders", "--archive", archive))
        check("spark-dlq", spark("dlq", "billing"))
        check("spark-redrive-dry-run", spark("redrive", "billing", "--dry-run"))
        check("spark-redrive", spark("redrive", "billing"))
