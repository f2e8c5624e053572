"""One row a trigger for an hour, topic to topic: memory, files, threads and connections must not grow.

    python -m tests.spark.trigger_run --minutes 60 --every 0.5

A line a minute. The first tenth of the time is warm-up; what the last tenth has more than the one after the
warm-up is growth. SIGTERM ends the run early; it judges what it has. Needs Java.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.spark.kills import descendants, rows

from orbitmq import Message
from orbitmq.spark.session import session
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster

# A machine that does much else is no fault.
PATIENCE_MS = 120_000
# By so much of its first value, and so much more, a figure may differ without having grown.
SLACK = {"heap_mb": (0.25, 20), "python_mb": (0.05, 10), "files": (0.1, 20), "threads": (0.1, 8)}
SLACK |= {"descriptors": (0.1, 20), "connections": (0.0, 4)}


def figures(spark: Any, folder: Path) -> dict[str, float]:
    """Of the driver, Java's heap after a collection, and of Spark's Python processes."""
    jvm = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    found = {
        "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        "python_mb": 0.0, "threads": 0.0, "descriptors": 0.0, "connections": 0.0,
        "files": float(sum(len(names) for _, _, names in os.walk(folder / "query"))),
    }  # fmt: skip
    for pid, _, command in descendants(os.getpid()):
        if "orbitmq.cli.main" in command:
            continue  # the cluster
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            links = list(_links(pid))
            python_mb = 0.0 if "java" in command.partition(" ")[0] else _resident_mb(pid)
            found["threads"] += threads
            found["descriptors"] += len(links)
            found["connections"] += sum(link.startswith("socket:") for link in links)
            found["python_mb"] += python_mb
    return found


def _links(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield os.readlink(entry)
        except OSError:
            continue


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def grown(series: list[dict[str, float]]) -> list[str]:
    """The figures that are higher at the end than after the warm-up."""
    tenth = max(1, len(series) // 10)
    first, last = series[tenth : 2 * tenth + 1], series[-tenth - 1 :]
    faults = []
    for name, (share, more) in SLACK.items():
        before, after = median(one[name] for one in first), median(one[name] for one in last)
        if after > before * (1 + share) + more:
            faults.append(f"{name} from {before:.0f} to {after:.0f}")
    return faults


def run(minutes: int, every_s: float, folder: Path, ended: threading.Event) -> bool:
    with (
        running_cluster(str(folder / "cluster")) as cluster,
        Producer("triggers", name_servers=cluster.name_server) as producer,
    ):
        for topic in ("triggers-from", "triggers-to"):
            producer.send(Message(topic, b"first"), timeout=PATIENCE_MS / 1000)
        spark = session("triggers", master="local[2]")
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("nameServers", cluster.name_server)
        )
        writer = stream.load("triggers-from").select("body").writeStream.format("rocketmq")
        query = (
            writer.option("nameServers", cluster.name_server)
            .option("topic", "triggers-to")
            .option("checkpointLocation", str(folder / "query"))
            .trigger(processingTime=f"{int(every_s * 1000)} milliseconds")
            .start()
        )
        series: list[dict[str, float]] = []
        began, sent = time.monotonic(), 1
        while (minute := len(series)) < minutes and not ended.is_set():
            while time.monotonic() - began < 60 * (minute + 1) and query.isActive and not ended.is_set():
                producer.send(Message("triggers-from", str(sent)), timeout=PATIENCE_MS / 1000)
                sent += 1
                # One row a trigger: the next one when this one is in the other topic.
                while query.isActive and rows(cluster.name_server, "triggers-to") <= sent:
                    time.sleep(every_s / 5)
            if not query.isActive:
                print(f"the query ended: {query.exception()}")
                return False
            series.append(figures(spark, folder))
            told = ", ".join(f"{name} {value:.0f}" for name, value in series[-1].items())
            print(f"minute {minute + 1}: {sent} rows, batch {last_batch(query)}: {told}", flush=True)
        batches = last_batch(query) + 1
        query.stop()
        count = spark.read.format("rocketmq").option("nameServers", cluster.name_server).load("triggers-to")
        copied = count.select("queue_offset").count() - 1
        spark.stop()
    faults = grown(series)
    print(
        f"{copied} of {sent} rows copied in {batches} batches and {len(series)} of {minutes} minutes; "
        + ("; ".join(faults) or "no growth")
    )
    return copied == sent and not faults


def last_batch(query: Any) -> int:
    return int(query.lastProgress["batchId"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.spark.trigger_run", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--every", type=float, default=0.2, help="seconds between two triggers")
    options = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="orbitmq-triggers-") as folder:
        return 0 if run(options.minutes, options.every, Path(folder), ended) else 1


if __name__ == "__main__":
    sys.exit(main())
