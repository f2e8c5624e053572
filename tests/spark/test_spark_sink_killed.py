"""A query that writes through a shuffle is killed and started again with other cores and partitions.

One kill; ORBITMQ_SPARK_KILLS says how many.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.test_spark_format import Cluster

from orbitmq.message.columns import BODY
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import message_schema

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]

KILLS = int(os.environ.get("ORBITMQ_SPARK_KILLS", "1"))
ROWS = 60_000 + 40_000 * KILLS
START_LIMIT_S = 300


def bodies(cluster: Cluster, topic: str) -> Counter[int]:
    brokers = Brokers([cluster.name_server], 5000)
    ranges = [QueueRange(queue, 0, end) for queue, end in cluster.ends(topic).items() if end]
    reader = RangeReader(brokers, ReadOptions(topics=(topic,), name_servers=(cluster.name_server,)))
    found: Counter[int] = Counter()
    for batch in reader.batches(ranges, BatchMaker(message_schema([BODY]))):
        found.update(int(body) for body in batch.column(0).to_pylist())
    return found


def test_each_row_is_written_once_though_the_query_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("ORBITMQ_SEED", "1"))
    chance = random.Random(seed)
    cluster = Cluster(tmp_path / "cluster")
    try:
        cluster.send("killed-from", range(ROWS))
        cluster.send("killed-to", range(-1, 0))
        for kill in range(KILLS + 1):
            # Another number of both in each run.
            cores, parts = str(1 + (seed + kill) % 3), str(2 + (seed + kill) % 4)
            place = str(tmp_path / "checkpoint")
            job = [cluster.name_server, "killed-from", "killed-to", place, cores, parts]
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sink_job", *job], start_new_session=True
            )
            try:
                if kill < KILLS:
                    wait_for_rows(cluster, process, chance)
                else:
                    assert process.wait(START_LIMIT_S) == 0
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(30)
            print(f"seed {seed}: killed with {cores} cores, {parts} partitions: {stored(cluster)} rows")
        assert bodies(cluster, "killed-to") == Counter([-1, *range(ROWS)])
    finally:
        cluster.stop()


def stored(cluster: Cluster) -> int:
    return cluster.ends("killed-to").total() - 1


def wait_for_rows(cluster: Cluster, process: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Return when the query is in the middle of a batch."""
    wanted = stored(cluster) + chance.randrange(1, 40_000)
    deadline = time.monotonic() + START_LIMIT_S
    while stored(cluster) < wanted and process.poll() is None:
        assert time.monotonic() < deadline, "the query does not start"
        time.sleep(0.001)
