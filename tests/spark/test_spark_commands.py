"""Every command line of docs/spark-jobs.md, one after another, on a cluster that has what they name."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("moto.server", reason="needs moto[server]")

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from tests.docs.test_commands import documented, words_of
from tests.spark.test_spark_object_store import store

from orbitmq import ConsumeFrom, Message
from orbitmq.cli.main import main
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import running_cluster

__all__ = ["store"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]
ORDERS = 40
TIME = "%Y-%m-%dT%H:%M"


@pytest.fixture
def shop(store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster with orders that were billed, some of them not, and the folder of who keeps the books."""
    monkeypatch.chdir(tmp_path)
    fs.FileSystem.from_uri("s3://bucket?allow_bucket_creation=true")[0].create_dir("bucket")
    with running_cluster(str(tmp_path / "cluster"), settings={"traceTopicEnable": "true"}) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        for topic in ("orders", "orders-again", "orders-test", "payments"):
            assert main(["topic", "create", topic]) == 0
        with Producer("shop", name_servers=cluster.name_server, trace=True) as producer:
            sent = []
            for number in range(ORDERS):
                body = json.dumps({"number": number, "country": ("DE", "US")[number % 2]})
                sent.append(producer.send(Message("orders", body, tags=("eu", "us")[number % 2])).message_id)
            producer.send(Message("payments", b"1"))
        (tmp_path / "ids.txt").write_text("\n".join(sent))
        pq.write_table(pa.table({"message_id": sent}), tmp_path / "sent.parquet")
        with Consumer(
            "billing", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST, trace=True
        ) as consumer:
            consumer.subscribe("orders")
            for done, message in enumerate(consumer.messages(auto_ack=False), 1):
                match json.loads(message.body)["number"] % 10:
                    case 0:
                        message.reject("a timeout of the bank")
                    case 1:
                        message.retry()
                    case _:
                        message.ack()
                if done == ORDERS:
                    break
        assert main(["spark", "archive", "RMQ_SYS_TRACE_TOPIC", str(tmp_path / "data/trace-archive")]) == 0
        yield


def here(line: str, folder: Path) -> str:
    """The same command in the folder of a test, now, and ended by itself."""
    now = datetime.now(UTC)
    line = line.replace("/data/", f"{folder}/data/").replace("/var/lib/", f"{folder}/lib/")
    line = line.replace("--every 30s --continuous", "--every 1s --times 2")
    days = iter([now - timedelta(days=1), now + timedelta(days=1)])
    return re.sub(r"\b2026-\d\d-\d\d\b", lambda _: next(days).strftime(TIME), line)


@pytest.mark.usefixtures("shop")
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for page, line in documented() if page == "spark-jobs.md"]
    assert len(lines) > 20
    for line in lines:
        if "s3://" in line and "--checkpoint" not in line:
            continue  # Spark itself needs a file system for the store
        code = main(words_of(here(line, tmp_path)))
        told = capsys.readouterr()
        assert code == 0, f"{line}: {told.out[-1000:]}{told.err[-1000:]}"
        assert told.out.strip(), line
