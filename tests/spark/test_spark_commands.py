"""Every command line of the pages about jobs, one after another, on a cluster that has what they name."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("moto.server", reason="needs moto[server]")

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from tests.docs.test_commands import FENCED, documented, words_of
from tests.docs.test_job_pages import pages
from tests.docs.test_readme import ROOT
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
ORDERS, LATER = 40, 8
ASKED_CODE = "; echo $?"
TIME = "%Y-%m-%dT%H:%M"


@pytest.fixture
def shop(store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster with orders that were billed, some of them not, and the folder of who keeps the books."""
    monkeypatch.chdir(tmp_path)
    fs.FileSystem.from_uri("s3://bucket?allow_bucket_creation=true")[0].create_dir("bucket")
    with running_cluster(str(tmp_path / "cluster")) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        for topic in ("orders", "orders-again", "orders-test", "payments"):
            assert main(["topic", "create", topic, "-q", "2"]) == 0
        with Producer("shop", name_servers=cluster.name_server) as producer:
            sent = []
            for number in range(ORDERS):
                if number == ORDERS - LATER:
                    producer.send(Message("payments", b"1"))
                    archive = str(tmp_path / "data/archive")
                    assert main(["spark", "archive", "orders,payments", archive]) == 0
                body = json.dumps({"number": number, "country": ("DE", "US")[number % 2]})
                sent.append(producer.send(Message("orders", body, tags=("eu", "us")[number % 2])).message_id)
        (tmp_path / "ids.txt").write_text("\n".join(sent))
        (tmp_path / "promised.txt").write_text("\n".join([*sent, "0" * 32]))
        pq.write_table(pa.table({"message_id": sent}), tmp_path / "sent.parquet")
        with Consumer(
            "billing", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST
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
        yield


def here(line: str, folder: Path) -> str:
    """The same command in the folder of a test, now, and ended by itself."""
    now = datetime.now(UTC)
    line = line.replace("/data/", f"{folder}/data/").replace("/var/lib/", f"{folder}/lib/")
    days = iter([now - timedelta(days=1), now + timedelta(days=1)])
    return re.sub(r"\b2026-\d\d-\d\d\b", lambda _: next(days).strftime(TIME), line)


@pytest.mark.usefixtures("shop")
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = ["spark-jobs.md", *pages()]
    lines = [line for wanted in order for page, line in documented() if page == wanted]
    expected = outputs(order)
    assert len(lines) > 20
    assert set(expected) <= set(lines)
    assert len(expected) >= 10
    for line in lines:
        if "s3://" in line and "--checkpoint" not in line:
            continue  # Spark itself needs a file system for the store
        code = main(words_of(here(line, tmp_path)))
        told = capsys.readouterr()
        if ASKED_CODE in line:
            told = told._replace(out=f"{told.out}{code}\n")
        elif "--help" not in line:
            assert code == 0, f"{line}: {told.out[-1000:]}{told.err[-1000:]}"
        assert told.out.strip(), line
        if line in expected:
            assert shape(told.out.replace(str(tmp_path), "")) == shape(expected[line]), line


def outputs(names: Sequence[str]) -> dict[str, str]:
    """What the pages say that lines behind a ``$`` print."""
    found = {}
    for name in names:
        for block in FENCED.findall((ROOT / "docs" / name).read_text(encoding="utf-8")):
            for part in re.split(r"^\$ orbitmq ", block, flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                found[line] = output
    return found


def shape(output: str) -> list[str]:
    """An output without what differs from run to run: numbers, units, names of replays, the order of rows."""
    output = re.sub(r"(run \d+-)\w+", r"\1", output)
    output = re.sub(r"(\d) (?:s|min|h|k?B|MB)\b", r"\1", output)
    return sorted(
        re.sub(r"\s+", " ", re.sub(r"[\d.,:-]*\d", "0", line)) for line in output.strip().splitlines()
    )
