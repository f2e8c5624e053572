"""Millions of messages archived while their topic lives: retention, new queues, a new broker, restarts.

    python -m tests.spark.archive_run --messages 10000000

The job is killed and goes on with another number of cores, several times. At the end the cluster is gone, and
the archive alone must hold each number once. Needs Java, and a disk for the archive.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq import Message
from orbitmq.admin import Admin
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.spark.jobs import verify
from orbitmq.spark.jobs.folder import Folder
from orbitmq.sync import Producer
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "archived-run"
BODY = 1024
DIGITS = 16
BATCH = 200
# Before the next part is sent the archive has the one before: then retention may take it.
PARTS = 10
# With how many cores the job is started, and again before these parts.
CORES = {0: 2, 4: 1, 6: 3, 8: 2}
# Expired files are those that were full some hours ago; here at once.
SETTINGS = {"fileReservedTime": "0", "deleteWhen": "04"}
LIMIT_S = 1800.0
READY_S = 300.0
PATIENCE_MS = 120_000
_FILLER = np.random.default_rng(1).integers(97, 123, 1 << 20, dtype=np.uint8).tobytes()


def body(number: int) -> bytes:
    """The number and letters, 1 KiB."""
    at = number * 7919 % (len(_FILLER) - BODY)
    return b"%0*d" % (DIGITS, number) + _FILLER[at : at + BODY - DIGITS]


def send(name_server: str, numbers: range) -> None:
    with Producer("archive-run", name_servers=name_server) as producer:
        for first in range(numbers.start, numbers.stop, BATCH):
            some = range(first, min(first + BATCH, numbers.stop))
            producer.send_batch(
                [Message(TOPIC, body(number), tags="t") for number in some], timeout=PATIENCE_MS / 1000
            )


class Job:
    """``orbitmq spark archive --continuous`` as a user starts it."""

    def __init__(self, name_server: str, to: Path, log: Path) -> None:
        self._command = [
            sys.executable, "-m", "orbitmq", "spark", "archive", TOPIC, str(to), "-n", name_server,
            "--continuous", "--trigger", "2 seconds", "--properties", "none",
        ]  # fmt: skip
        self._log = log.open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Folder(str(to))

    def start(self, cores: int) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self._process = subprocess.Popen(
            [*self._command, "--master", f"local[{cores}]"],
            cwd=ROOT, env=env, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()

    def archived(self) -> int:
        return sum(file.rows for file in self._folder.archive_files())

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.archived() < count:
            assert self._process is not None
            if self._process.poll() is not None:
                raise SystemExit(f"the job ended with {self._process.returncode}: see its log")
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.archived()} of {count} messages are archived after {LIMIT_S:g} s")
            time.sleep(0.5)


async def topic(name_server: str, queues: int) -> None:
    async with Admin(name_servers=name_server) as admin:
        await admin.topics.create(TOPIC, queues=queues)


def delete_expired(addresses: list[str]) -> None:
    for address in addresses:
        with BlockingConnection(address, 10_000) as connection:
            connection.request(Command(RequestCode.DELETE_EXPIRED_COMMITLOG))


def log_files(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("broker-*/commitlog/*"))


async def run(messages: int, folder: Path) -> None:
    """Send and archive part by part, with something happening before each."""
    began = time.monotonic()
    root, to = folder / "cluster", folder / "archive"
    async with ProcessCluster(brokers=2, root=str(root), settings=SETTINGS, ready_seconds=READY_S) as cluster:
        await cluster.stop_broker("broker-b")
        await topic(cluster.name_server, 4)
        job = Job(cluster.name_server, to, folder / "job.log")
        try:
            part = -(-messages // PARTS)
            for number in range(PARTS):
                told = await happens(number, cluster, job, root)
                numbers = range(number * part, min((number + 1) * part, messages))
                await asyncio.to_thread(send, cluster.name_server, numbers)
                await asyncio.to_thread(job.wait_for, numbers.stop)
                seconds = time.monotonic() - began
                print(f"{seconds:7.1f} s: {numbers.stop} archived; before: {told}", flush=True)
        finally:
            await asyncio.to_thread(job.kill)


async def happens(number: int, cluster: ProcessCluster, job: Job, root: Path) -> str:
    """What changes before a part."""
    if number == 2:
        await topic(cluster.name_server, 6)
        return "two new queues"
    if number == 3:
        await cluster.start_broker("broker-b")
        await topic(cluster.name_server, 6)
        return "a new broker"
    if number in CORES:
        cores = CORES[number]
        job.kill()
        job.start(cores)
        return f"killed and started with local[{cores}]" if number else f"started with local[{cores}]"
    before = log_files(root)
    delete_expired([cluster.brokers[name] for name in cluster.brokers if name in cluster.processes])
    await asyncio.sleep(3)
    return f"retention took {len(set(before) - set(log_files(root)))} of {len(before)} log files"


def check(folder: Path, messages: int) -> bool:
    """Whether the archive alone has each message once: by names, by footers, and by what is in it."""
    names = verify(str(folder / "archive"), footers=True)
    print(names.summary)
    counts = np.zeros(messages, dtype=np.uint8)
    for path in sorted((folder / "archive").glob("topic=*/**/*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["body"]):
            numbers = pc.cast(pc.binary_slice(batch.column(0), 0, DIGITS), pa.string())
            np.add.at(counts, pc.cast(numbers, pa.int64()).to_numpy(), 1)
    lost, doubled = int((counts == 0).sum()), int((counts > 1).sum())
    print(f"{messages} messages sent: {lost} lost, {doubled} doubled in the archive")
    return names.ok and not lost and not doubled


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.spark.archive_run", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the data goes; removed at the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-archive-", dir=options.folder) as name:
        began = time.monotonic()
        asyncio.run(run(options.messages, Path(name)))
        good = check(Path(name), options.messages)
        print(f"{time.monotonic() - began:.0f} s in all; {'complete' if good else 'NOT complete'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
