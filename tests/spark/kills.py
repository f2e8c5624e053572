"""kill -9 of worker, driver, broker and name server while a stream copies a topic, with an audit at the end.

    python -m tests.spark.kills --kills 100 --seed 1

A line for each kill says what died and when. At the end every message of the one topic must be in the other
one exactly once. Needs Java.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from orbitmq import Message
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import OrbitError
from orbitmq.spark.cluster.brokers import Brokers, max_offset
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read.arrow import BatchMaker
from orbitmq.spark.read.partitions import QueueRange
from orbitmq.spark.read.pull import RangeReader
from orbitmq.spark.schema import message_schema
from orbitmq.sync import Producer

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("worker", "driver", "broker-a", "nameserver", "worker", "broker-b")
JOBS = ("plain", "shuffle")
BATCH = 20
SEND_PAUSE_S = 0.05
START_S = 120.0
DRAIN_S = 300.0


class Feeder:
    """Sends messages until it is stopped; what fails was sent or not, which the audit does not mind."""

    def __init__(self, name_server: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(name_server,), daemon=True)
        self._thread.start()

    def _run(self, name_server: str) -> None:
        number = 0
        with Producer("kills", name_servers=name_server) as producer:
            while not self._stop.wait(SEND_PAUSE_S):
                with contextlib.suppress(OrbitError):
                    producer.send_batch([Message("kills-in", str(n)) for n in range(number, number + BATCH)])
                number += BATCH

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class Driver:
    """The job in a process of its own, started again whenever it ended."""

    def __init__(self, name_server: str, folder: Path, kind: str) -> None:
        self._command = [sys.executable, "-m", "tests.spark.kill_job", name_server, str(folder / "ck"), kind]
        self._log = (folder / "driver.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=env, stdout=self._log, stderr=self._log, start_new_session=True
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            children = [pid for pid, _, _ in descendants(self._process.pid)]
            for pid in (self._process.pid, *children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        """Kill one of Spark's Python workers: they are forked from the daemon of the same name."""
        assert self._process is not None
        found = {
            pid: parent for pid, parent, name in descendants(self._process.pid) if "pyspark.daemon" in name
        }
        workers = sorted(pid for pid, parent in found.items() if parent in found)
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return True


def descendants(root: int) -> Iterator[tuple[int, int, str]]:
    """Process, parent and command of everything that ``root`` started."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(entry.name)] = int(stat[1]), command
    known = {root}
    while True:
        more = {pid for pid, (parent, _) in parents.items() if parent in known} - known
        if not more:
            break
        known |= more
    yield from ((pid, *parents[pid]) for pid in sorted(known - {root}) if pid in parents)


def rows(name_server: str, topic: str) -> int:
    """How many messages the topic has, as far as its brokers answer."""
    brokers = Brokers([name_server], 3000)
    try:
        return sum(brokers.offsets(brokers.readable([topic]), max_offset).values())
    except OrbitError:
        return -1


def bodies(name_server: str, topic: str) -> Iterator[tuple[str, str]]:
    """Place and body of every message."""
    brokers = Brokers([name_server], 10_000)
    ends = brokers.offsets(brokers.readable([topic]), max_offset)
    ranges = [QueueRange(queue, 0, end) for queue, end in sorted(ends.items())]
    reader = RangeReader(brokers, ReadOptions(topics=(topic,), name_servers=(name_server,)))
    for batch in reader.batches(
        ranges, BatchMaker(message_schema(["broker", "queue_id", "queue_offset", "body"]))
    ):
        for row in batch.to_pylist():
            yield f"{row['broker']}/{row['queue_id']}/{row['queue_offset']}", row["body"].decode()


async def until(condition: object, limit_s: float) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(0.5)
    return False


async def freeze(cluster: ProcessCluster, name: str, seconds: float) -> None:
    """A broker that neither answers nor closes: stopped, and told to go on."""
    pid = cluster.processes[name].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


async def run(kind: str, options: argparse.Namespace, folder: Path) -> bool:
    """One job with its kills; whether nothing was lost or doubled."""
    kills, seed = options.kills, options.seed
    rng = random.Random(f"{seed} {kind}")
    async with ProcessCluster(brokers=2, root=str(folder / "cluster")) as cluster:
        with Producer("kills", name_servers=cluster.name_server) as producer:
            for topic in ("kills-in", "kills-out"):
                await asyncio.to_thread(producer.send, Message(topic, "0/0/first"))
        before = rows(cluster.name_server, "kills-out")
        feeder = Feeder(cluster.name_server)
        driver = Driver(cluster.name_server, folder, kind)
        try:
            driver.keep_running()
            if not await until(lambda: rows(cluster.name_server, "kills-out") > before, START_S):
                print(f"kills: {kind}: nothing was copied; see {folder / 'driver.log'}")
                return False
            began = time.monotonic()
            victims: list[str] = []
            for number in range(1, kills + 1):
                await asyncio.sleep(rng.uniform(0.5, 5.0))
                driver.keep_running()
                if not victims:
                    victims = rng.sample(VICTIMS, len(VICTIMS))
                victim = victims.pop()
                await strike(victim, cluster, driver, rng)
                copied, at = rows(cluster.name_server, "kills-out"), time.monotonic() - began
                where = f"kill {number} of {kills}, {kind}, seed {seed}"
                print(f"{where}: {victim} at {at:.1f} s, {copied} rows copied", flush=True)
            for number, seconds in enumerate(options.freeze):
                name = VICTIMS[(2, 5)[number % 2]]
                await freeze(cluster, name, seconds)
                print(f"{name} frozen for {seconds:g} s, {kind}, seed {seed}", flush=True)
            await asyncio.to_thread(feeder.stop)

            def drained() -> bool:
                driver.keep_running()
                return (
                    rows(cluster.name_server, "kills-out") - before
                    >= rows(cluster.name_server, "kills-in")
                    > 0
                )

            complete = await until(drained, DRAIN_S)
            await asyncio.sleep(3)
        finally:
            await asyncio.to_thread(feeder.stop)
            await asyncio.to_thread(driver.kill)
        return await asyncio.to_thread(audit, kind, cluster.name_server, driver.starts, complete)


async def strike(victim: str, cluster: ProcessCluster, driver: Driver, rng: random.Random) -> None:
    if victim == "worker":
        await asyncio.to_thread(driver.kill_worker, rng)
    elif victim == "driver":
        await asyncio.to_thread(driver.kill)
        driver.keep_running()
    else:
        await cluster.stop_broker(victim, kill=True)
        await asyncio.sleep(rng.choice((0.0, 1.0, 6.0)))
        await cluster.start_broker(victim)


def audit(kind: str, name_server: str, starts: int, complete: bool) -> bool:
    """Whether each message of the one topic is in the other once; says so in one line."""
    sent = {place for place, _ in bodies(name_server, "kills-in")}
    copied = Counter(body for _, body in bodies(name_server, "kills-out") if body != "0/0/first")
    lost = len(sent - copied.keys())
    doubled = sum(count - 1 for count in copied.values())
    strange = len(copied.keys() - sent)
    print(
        f"kills: {kind}: {len(sent)} messages, {starts} drivers; {lost} lost, {doubled} doubled, "
        f"{strange} unknown{'' if complete else '; it did not end in time'}",
        flush=True,
    )
    return complete and not (lost or doubled or strange)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.spark.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of each job")
    parser.add_argument(
        "--freeze", nargs="*", type=float, default=[], help="a broker for so many seconds each"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="with or without a shuffle")
    parser.add_argument("--keep", type=Path, help="a folder for data and logs that stays")
    options = parser.parse_args()
    good = True
    for kind in options.jobs:
        with contextlib.ExitStack() as stack:
            folder = options.keep and options.keep / kind
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-kills-")))
            folder.mkdir(parents=True, exist_ok=True)
            good = asyncio.run(run(kind, options, folder)) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
