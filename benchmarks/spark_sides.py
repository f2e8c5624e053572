"""The systems that `make bench-spark` compares: a broker with the rows, and the Spark that reads from it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks import kafka, spark_rows
from benchmarks.page_cache import PageCache
from benchmarks.processes import MemoryWatch, machine_cpu_s, session_cpu_s, session_members
from benchmarks.remoting import Client
from benchmarks.servers import (
    ROOT,
    Apache,
    Ours,
    Server,
    apache_classpath,
    child_settings,
    wait_for_route,
)
from benchmarks.spark_cases import Case
from benchmarks.spark_rows import Rows

from orbitmq import Message, Producer

# A run is repeated if other load exceeds this share of all processors.
FOREIGN_LIMIT = 0.08
REPEATED = 2
# Before a run that stores rows, this multiple of their bodies is allocated as page cache.
TOUCHED = 1.25
FILL_BATCH = 64
FILL_IN_FLIGHT = 8


@dataclass(frozen=True)
class Run:
    """One run: core-seconds of Spark and broker, the most memory of Spark, the share of other load."""

    rows: int
    seconds: float
    spark_s: float
    broker_s: float
    rss_mb: float
    foreign: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def cores(self) -> float:
        """Core-seconds per million rows, including the broker's."""
        return (self.spark_s + self.broker_s) / self.rows * 1e6


class SparkEndedError(RuntimeError):
    """The process with a Spark session ended, for instance because a query failed."""


class Spark:
    """A process with a Spark session that carries out orders; see `spark_session`.

    Attributes:
        started_s: duration of the session's start in seconds.
        begun: the start of the process, by time.monotonic().
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self.begun = time.monotonic()
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            preexec_fn=child_settings,
        )
        begun = self._answer()
        self.version: str = begun["version"]
        self.started_s: float = begun["seconds"]

    @property
    def session(self) -> int:
        """The session id of its processes in the kernel."""
        return self._process.pid

    def order(self, query: str, **order: object) -> dict[str, Any]:
        """Give Spark an order; returns the answer, with the duration in ``seconds``.

        Raises:
            SparkEndedError: the process ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"query": query, **order}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        tail = "\n".join(Path(self._log.name).read_text(errors="replace").splitlines()[-15:])
        raise SparkEndedError(f"Spark ended, see {self._log.name}:\n{tail}")

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has already ended
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for pid, _ in list(session_members(self._process.pid)):
            with suppress(ProcessLookupError):  # the process has ended meanwhile
                os.kill(int(pid), signal.SIGKILL)
        self._log.close()


class Side:
    """A broker and its Spark.

    Args:
        source: the address at which clients begin.
        command: the command that starts `spark_session`.
    """

    def __init__(self, title: str, broker: Server, source: str, command: list[str], folder: Path) -> None:
        self.title = title
        self.source = source
        self.broker = broker
        self.command = command
        self.log = folder / "spark.log"
        self._page_cache = PageCache(folder)
        self.spark = Spark(command, self.log)

    def begin_anew(self) -> None:
        """Start another Spark process in place of this one, which is closed unless it has ended."""
        self.spark.close()
        self.spark = Spark(self.command, self.log)

    def close(self) -> None:
        """End the Spark process."""
        self.spark.close()

    def once(self, case: Case, rows: Rows) -> Run:
        """Run a case once, with a measurement.

        Raises:
            SparkEndedError: the query failed.
            RuntimeError: the query read a wrong number of rows; see `spark_session.rows_read`.
        """
        session = self.spark.session
        if case.writes:
            self._page_cache.touch(int(TOUCHED * (case.rows or rows.count) * rows.body) >> 20)
        self.spark.order("rows_read")
        before = session_cpu_s(session), self.broker.cpu_s(), machine_cpu_s(), time.process_time()
        begin = time.monotonic()
        with MemoryWatch(session) as watch:
            told = self.spark.order(case.query, topic=rows.topic, rows=case.rows)
        wall = time.monotonic() - begin
        after = session_cpu_s(session), self.broker.cpu_s(), machine_cpu_s(), time.process_time()
        spark_s, broker_s, all_s, own_s = (b - a for a, b in zip(before, after, strict=True))
        foreign = max(0.0, all_s - spark_s - broker_s - own_s) / wall / (os.cpu_count() or 1)
        wanted = case.rows or rows.count
        if (read := {"rows": wanted, **self.spark.order("rows_read"), **told}["rows"]) != wanted:
            raise RuntimeError(f"{self.title}, {case.title}: {read:,} rows were read, not {wanted:,}")
        self.spark.order("tidy")
        return Run(wanted, told["seconds"], spark_s, broker_s, watch.peak_mb, foreign)

    def quiet(self, case: Case, rows: Rows) -> Run:
        """A run with as little other load as possible."""
        runs = [self.once(case, rows)]
        while runs[-1].foreign > FOREIGN_LIMIT and len(runs) <= REPEATED:
            runs.append(self.once(case, rows))
        return min(runs, key=lambda run: run.foreign)

    def warm(self, case: Case, rows: Rows, at_most: int) -> None:
        """Run a case until its CPU per row stops falling."""
        last = self.once(case, rows).spark_s
        for _ in range(at_most - 1):
            now = self.once(case, rows).spark_s
            if now > 0.97 * last:
                return
            last = now


async def fill(name_server: str, rows: Rows) -> None:
    """Send the rows like any producer."""

    def messages(first: int) -> list[Message]:
        made = []
        for number, body in enumerate(spark_rows.bodies(first, FILL_BATCH, rows.body), first):
            named = dict(zip(spark_rows.PROPERTIES, spark_rows.properties(number), strict=True))
            made.append(Message(rows.topic, body, keys=spark_rows.key(number), properties=named))
        return made[: rows.count - first]

    numbers = iter(range(0, rows.count, FILL_BATCH))

    async def work(producer: Producer) -> None:
        for first in numbers:
            await producer.send_batch(messages(first))

    async with Producer("bench_spark", name_servers=name_server) as producer, asyncio.TaskGroup() as group:
        for _ in range(FILL_IN_FLIGHT):
            group.create_task(work(producer))


@dataclass(frozen=True)
class Peer:
    """The programs for Kafka's side.

    Attributes:
        python: the Python with the connector's PySpark, for both sides.
        broker, connector: class paths.
    """

    python: Path
    broker: str
    connector: str


def find_peer() -> Peer:
    """Find the peer's programs, and fetch missing ones.

    Raises:
        PeerUnavailableError: the programs are not available here.
    """
    jars = kafka.broker_classpath()
    connector = ",".join(kafka.connector_jars())
    return Peer(kafka.connector_python(), jars, connector)


class Sending(Protocol):
    """A running sender of rows of 1 KiB to a topic at a steady rate."""

    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class System(Protocol):
    """A broker without Spark: creates and fills its topics."""

    side: Side

    def make(self, rows: Rows) -> None:
        """Create a topic with its rows, and the topic that sinks write to."""

    def make_empty(self, topic: str) -> None:
        """Create an empty topic, for rows that arrive later."""

    def send_steadily(self, topic: str, per_second: int, seconds: int) -> Sending:
        """Start a steady sender."""


class RocketMQ:
    """The servers of OrbitMQ or Apache RocketMQ, and Spark with the format ``rocketmq``.

    Args:
        more: further settings of the broker.
    """

    def __init__(
        self, servers: Ours | Apache, python: Path, folder: Path, running: ExitStack, **more: Any
    ) -> None:
        self._name_server = servers.name_server(folder)
        running.callback(self._name_server.stop)
        self._broker = servers.broker(folder, self._name_server.address, **more)
        running.callback(self._broker.stop)
        source = self._name_server.address
        command = [str(python), "-m", "benchmarks.spark_session", "ours", source, str(folder)]
        self.side = Side(servers.title, self._broker, source, command, folder)
        running.callback(self.side.close)

    def make(self, rows: Rows) -> None:
        with Client(self._broker.port, timeout_s=30) as client:
            client.create_topic(rows.topic, rows.queues)
            client.create_topic(f"{rows.topic}-sink", rows.queues)
        wait_for_route(self._name_server, rows.topic)
        asyncio.run(fill(self._name_server.address, rows))

    def make_empty(self, topic: str) -> None:
        with Client(self._broker.port, timeout_s=30) as client:
            client.create_topic(topic, spark_rows.QUEUES)
        wait_for_route(self._name_server, topic)

    def send_steadily(self, topic: str, per_second: int, seconds: int) -> Sending:
        given = [self._name_server.address, topic, str(per_second), str(seconds)]
        command = [sys.executable, "-m", "benchmarks.spark_sender", *given]
        return subprocess.Popen(command, cwd=ROOT, preexec_fn=child_settings)


class Kafka:
    """Kafka's broker, and Spark with its connector."""

    def __init__(self, peer: Peer, folder: Path, running: ExitStack) -> None:
        self._jars = peer.broker
        self._broker = kafka.start_broker(folder, peer.broker, queues=spark_rows.QUEUES)
        running.callback(self._broker.stop)
        source = self._broker.address
        command = [str(peer.python), "-m", "benchmarks.spark_session", "kafka", source, str(folder)]
        self.side = Side(f"Kafka {kafka.VERSION}", self._broker, source, [*command, peer.connector], folder)
        running.callback(self.side.close)

    def make(self, rows: Rows) -> None:
        if rows.queues != spark_rows.QUEUES:
            kafka.create_topic(self._jars, self._broker.address, rows.topic, rows.queues)
        self.side.spark.order("fill", topic=rows.topic, rows=rows.count, body=rows.body)

    def make_empty(self, topic: str) -> None:
        kafka.create_topic(self._jars, self._broker.address, topic, spark_rows.QUEUES)

    def send_steadily(self, topic: str, per_second: int, seconds: int) -> Sending:
        return kafka.send_steadily(self._jars, self._broker.address, topic, per_second, seconds)


def apache() -> Apache:
    """Apache RocketMQ's servers.

    Raises:
        PeerUnavailableError: they are not available here.
    """
    return Apache(apache_classpath())
