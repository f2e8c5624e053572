"""kill -9 of worker, driver, broker and name server while streams copy a topic, with an audit at the end.

    python -m tests.spark.kills --kills 200 --freeze 30 --cut 180 --seed 1

One driver runs all jobs, so that each of them meets each kill of a driver and of a server: the topic to a
topic, through a shuffle to a topic, to an archive. A line for each kill says what died and when. At the end
every message of the topic must be in each copy, and in the archive, exactly once. SIGTERM ends the kills
early, and the audit follows. Needs Java.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.faults.relay import End, Link
from tests.spark.kill_job import SOURCE, copies

from orbitmq import Message
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import OrbitError
from orbitmq.spark.cluster.brokers import Brokers, max_offset
from orbitmq.spark.jobs import verify
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import message_schema
from orbitmq.sync import Producer

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("worker", "driver", "broker-a", "nameserver", "worker", "broker-b")
JOBS = ("plain", "shuffle", "archive")
ARCHIVE = JOBS[2]
FIRST = "0/0/first"
# Brokers listen on the one and announce the other, where a relay can cut them off.
BEHIND, ANNOUNCED = "127.0.0.2", "127.0.0.3"
BATCH = 20
SEND_PAUSE_S = 0.1
# On a machine that does much else, processes start slowly.
READY_S = 300.0
START_S = 600.0
DRAIN_S = 900.0


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
                    producer.send_batch([Message(SOURCE, str(n)) for n in range(number, number + BATCH)])
                number += BATCH

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class Relays:
    """A way to each broker that can be cut; they run in a thread of their own, since much here blocks."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._links = {}
        for name, address in addresses.items():
            port = int(address.rpartition(":")[2])
            self._links[name] = Link(name, End(ANNOUNCED, port), End(BEHIND, port))
            asyncio.run_coroutine_threadsafe(self._links[name].start(), self._loop).result(10)

    def cut(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._links[name].cut)

    def heal(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._links[name].heal)

    def stop(self) -> None:
        for link in self._links.values():
            asyncio.run_coroutine_threadsafe(link.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)


class Driver:
    """The jobs in a process of their own, started again whenever it ended."""

    def __init__(self, name_server: str, folder: Path, kinds: Sequence[str]) -> None:
        self._name_server, self._kinds, self._archive = name_server, kinds, folder / "archive"
        self._command = [sys.executable, "-m", "tests.spark.kill_job", name_server, str(folder), *kinds]
        self._log = (folder / "driver.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._done_at_start = dict.fromkeys(kinds, 0)

    def done(self) -> dict[str, int]:
        """How many messages each job has copied or archived, as far as it can be seen; -1: not at all now."""
        return {kind: self._done(kind) for kind in self._kinds}

    def _done(self, kind: str) -> int:
        if kind != ARCHIVE:
            return rows(self._name_server, copies(kind)) - 1
        return sum(file.rows for file in Folder(str(self._archive)).archive_files())

    def is_at_work(self) -> bool:
        """Whether all jobs have got on since it was started."""
        self.keep_running()
        return all(self._done(kind) > before for kind, before in self._done_at_start.items())

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            for kind, done in self.done().items():
                self._done_at_start[kind] = max(self._done_at_start[kind], done)
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
        self.keep_running()
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


async def cut_off(relays: Relays, name: str, seconds: float) -> None:
    """A broker that cannot be reached; its name server still hears it."""
    relays.cut(name)
    try:
        await asyncio.sleep(seconds)
    finally:
        relays.heal(name)


async def run(options: argparse.Namespace, folder: Path) -> bool:
    """All jobs with their kills; whether nothing was lost or doubled."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    settings = {"bindAddress": BEHIND, "brokerIP1": ANNOUNCED}
    async with ProcessCluster(
        brokers=2, root=str(folder / "cluster"), settings=settings, ready_seconds=READY_S
    ) as cluster:
        relays = Relays(dict(cluster.brokers))
        with Producer("kills", name_servers=cluster.name_server) as producer:
            for topic in (SOURCE, *(copies(kind) for kind in options.jobs if kind != ARCHIVE)):
                await asyncio.to_thread(producer.send, Message(topic, FIRST))
        feeder = Feeder(cluster.name_server)
        driver = Driver(cluster.name_server, folder, options.jobs)
        try:
            if not await until(driver.is_at_work, START_S):
                print(f"kills: nothing was copied; see {folder / 'driver.log'}")
                return False
            kills = await disturb(options, cluster, relays, driver, ended)
            await asyncio.to_thread(feeder.stop)

            def drained() -> bool:
                driver.keep_running()
                sent = rows(cluster.name_server, SOURCE)
                return sent > 0 and all(done >= sent for done in driver.done().values())

            complete = kills is not None and await until(drained, DRAIN_S)
            await asyncio.sleep(3)
        finally:
            await asyncio.to_thread(feeder.stop)
            await asyncio.to_thread(driver.kill)
        try:
            good = await asyncio.to_thread(audit, cluster.name_server, folder, options)
        finally:
            await asyncio.to_thread(relays.stop)
    late = "" if complete else "; it did not end in time"
    print(f"kills: {kills} kills, seed {options.seed}: {driver.starts} drivers{late}", flush=True)
    return complete and good


def audit(name_server: str, folder: Path, options: argparse.Namespace) -> bool:
    """A line for each job; whether nothing was lost or doubled in any."""
    good = True
    for kind in options.jobs:
        told, fine = (
            audit_archive(name_server, folder) if kind == ARCHIVE else audit_copies(name_server, kind)
        )
        print(f"kills: {kind}, seed {options.seed}: {told}", flush=True)
        good = good and fine
    return good


async def disturb(
    options: argparse.Namespace,
    cluster: ProcessCluster,
    relays: Relays,
    driver: Driver,
    ended: asyncio.Event,
) -> int | None:
    """All kills, then the freezes and the cuts: how many kills; ``None``: the jobs did not get on again."""
    rng = random.Random(options.seed)
    began = time.monotonic()
    victims: list[str] = []

    def told(what: str) -> None:
        done = ", ".join(f"{count} {kind}" for kind, count in driver.done().items())
        print(f"{what}, seed {options.seed}, at {time.monotonic() - began:.1f} s: {done} done", flush=True)

    number = 0
    while number < options.kills and not ended.is_set():
        number += 1
        await asyncio.sleep(rng.uniform(0.5, 3.0))
        victims = victims or rng.sample(VICTIMS, len(VICTIMS))
        victim = victims.pop()
        if not await strike(victim, cluster, driver, rng):
            print(f"kills: seed {options.seed}: the jobs do not get on before kill {number}", flush=True)
            return None
        await asyncio.to_thread(told, f"kill {number} of {options.kills}: {victim}")
    for seconds in options.freeze:
        await freeze(cluster, "broker-a", seconds)
        await asyncio.to_thread(told, f"broker-a frozen for {seconds:g} s")
    for seconds in options.cut:
        await cut_off(relays, "broker-b", seconds)
        await asyncio.to_thread(told, f"broker-b cut off for {seconds:g} s")
    return number


async def strike(victim: str, cluster: ProcessCluster, driver: Driver, rng: random.Random) -> bool:
    """Kill one; of a job that was just started there is nothing worth killing until it got on."""
    if victim in ("worker", "driver"):
        if not await until(driver.is_at_work, START_S):
            return False
        if victim == "driver":
            await asyncio.to_thread(driver.kill)
            await asyncio.to_thread(driver.keep_running)
            return True
        return await until(lambda: driver.kill_worker(rng), START_S)
    await cluster.stop_broker(victim, kill=True)
    await asyncio.sleep(rng.choice((0.0, 1.0, 6.0)))
    await cluster.start_broker(victim)
    return True


def audit_copies(name_server: str, kind: str) -> tuple[str, bool]:
    """Whether each message of the one topic is in the other once, and the words for it."""
    sent = {place for place, _ in bodies(name_server, SOURCE)}
    copied = Counter(body for _, body in bodies(name_server, copies(kind)) if body != FIRST)
    lost = len(sent - copied.keys())
    doubled = sum(count - 1 for count in copied.values())
    strange = len(copied.keys() - sent)
    told = f"{len(sent)} messages; {lost} lost, {doubled} doubled, {strange} unknown"
    return told, not (lost or doubled or strange)


def audit_archive(name_server: str, folder: Path) -> tuple[str, bool]:
    """What the job ``audit`` says of the topic and its archive, and ``archive --verify`` of the names."""
    to = str(folder / "archive")
    command = ["spark", "audit", SOURCE, "--archive", to, "-n", name_server, "--master", "local[2]"]
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = verify(to, footers=True)
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]])[-1]
    return f"{last}; {names.summary}", done.returncode == 0 and names.ok


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.spark.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    for name in ("--freeze", "--cut"):
        parser.add_argument(name, nargs="*", type=float, default=[], help="a broker for so many seconds each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="what runs meanwhile")
    parser.add_argument("--keep", type=Path, help="a folder for data and logs that stays")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-kills-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if asyncio.run(run(options, folder)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
