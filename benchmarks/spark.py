"""`make bench-spark`: topics read and written by Spark, OrbitMQ beside Kafka 4.0.0 and Spark's connector.

Both systems hold the same rows (`spark_rows`), serve a Spark of the same version and settings from the same
processors, and run each case in turn; which one begins changes from run to run. Before a case is measured it
runs until its CPU per row stops falling. Kafka and the connector come from Maven Central, the PySpark of the
connector from PyPI; without them only ours is measured, with the PySpark that is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import kafka, spark_rows
from benchmarks.measure import keep, machine, record, table
from benchmarks.peer import in_turn, ratio
from benchmarks.remoting import Client
from benchmarks.servers import ROOT, Ours, PeerUnavailableError, Server, child_settings
from benchmarks.spark_rows import QUEUES, SINK_ROWS, Rows

from orbitmq import Message, Producer

TICKS: int = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.2
# A run beside so much foreign load, as a share of all processors, is repeated.
FOREIGN_LIMIT = 0.08
REPEATED = 2
FILL_BATCH = 64
FILL_IN_FLIGHT = 8


@dataclass(frozen=True)
class Case:
    """One query.

    Attributes:
        name: of the function in `spark_session`.
        rate, cores: rows/s and core-seconds per million rows that are the aim; 0 for none.
        peer: whether the other system can do it.
    """

    title: str
    name: str
    rate: int = 0
    cores: float = 0.0
    peer: bool = True


CASES = (
    Case("default columns -> noop", "default", 700_000, 2.4),
    Case("with properties / headers", "wide", 500_000, 4.0),
    Case("count", "count"),
    Case("count, columns=queue_offset", "count_pruned", 900_000, peer=False),
    Case("sum(length(body))", "length"),
    Case("sum(body_size), columns=body_size", "length_pruned", 900_000, peer=False),
    Case("stream, 500,000 a trigger -> noop", "stream", 500_000, 3.0),
    Case("archive to Parquet zstd, batch", "archive", 350_000, 5.0),
    Case("archive to Parquet zstd, stream", "archive_stream", 350_000, 5.0),
    Case("sink, defaults", "sink", 350_000),
    Case("the same rows from Parquet -> noop", "parquet", peer=False),
)
SMALL_CASES = (
    Case("default columns -> noop", "default", 1_500_000),
    Case("with properties / headers", "wide", 1_000_000),
)
SHORT_NAMES = ("default", "wide", "count_pruned", "parquet")


@dataclass(frozen=True)
class Effort:
    """How many rows, and how often: at most ``warmups`` runs before the measured ``repeats``."""

    rows: tuple[Rows, ...]
    warmups: int
    repeats: int


FULL = Effort((Rows(3_000_000, 1024), Rows(10_000_000, 128)), 4, 5)
SHORT = Effort((Rows(200_000, 1024),), 2, 2)


@dataclass(frozen=True)
class Run:
    """One run: core-seconds of Spark and broker, most memory of Spark, share of foreign load."""

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
        """Core-seconds per million rows, the broker's too."""
        return (self.spark_s + self.broker_s) / self.rows * 1e6


@dataclass
class Figure:
    """The measured runs of a case on one side."""

    runs: list[Run] = field(default_factory=list)

    def rates(self) -> str:
        rates = [run.rate for run in self.runs]
        return f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"

    def median(self, name: str) -> float:
        return statistics.median(float(getattr(run, name)) for run in self.runs)


# -- what processes use ----------------------------------------------------------------------------------


def _stat(pid: str) -> list[str]:
    """The fields of /proc/PID/stat behind the name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def session_members(session: int) -> Iterator[tuple[str, list[str]]]:
    """The processes of a session, and their fields."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = _stat(entry.name)
            if fields and int(fields[3]) == session:
                yield entry.name, fields


def session_cpu_s(session: int) -> float:
    """User and system time of a session's processes, ended ones that were waited for included."""
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in session_members(session))
    return ticks / TICKS


def session_rss_mb(session: int) -> float:
    """Memory of a session's processes of their own, without files and what they share by forking."""
    total = 0
    for pid, _ in session_members(session):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon"))
    return total / 1024


def machine_cpu_s() -> float:
    """What all processors have worked so far."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft = map(int, fields[:7])
    return (user + nice + system + irq + soft) / TICKS


class MemoryWatch:
    """The most memory of a session while it is open."""

    def __init__(self, session: int) -> None:
        self.peak_mb = 0.0
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, session_rss_mb(self._session))
            if self._stop.wait(SAMPLE_S):
                return


# -- the two sides ---------------------------------------------------------------------------------------


class Side:
    """A broker and the Spark that talks to it.

    Args:
        source: the address that clients begin at.
        command: starts `spark_session`.
    """

    def __init__(self, title: str, broker: Server, source: str, command: list[str], folder: Path) -> None:
        self.title = title
        self.source = source
        self.broker = broker
        self._log = (folder / f"{title.split()[0]}-spark.log").open("wb")
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

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"Spark for {self.title} ended, see {self._log.name}:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(Path(self._log.name).read_text(errors="replace").splitlines()[-15:])

    def order(self, **order: object) -> float:
        """Have Spark do something; how long it took, in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def once(self, case: Case, rows: Rows) -> Run:
        """One run, measured."""
        session = self._process.pid
        before = session_cpu_s(session), self.broker.cpu_s(), machine_cpu_s(), time.process_time()
        begin = time.monotonic()
        with MemoryWatch(session) as watch:
            seconds = self.order(case=case.name, topic=rows.topic)
        wall = time.monotonic() - begin
        after = session_cpu_s(session), self.broker.cpu_s(), machine_cpu_s(), time.process_time()
        spark_s, broker_s, all_s, own_s = (b - a for a, b in zip(before, after, strict=True))
        foreign = max(0.0, all_s - spark_s - broker_s - own_s) / wall / (os.cpu_count() or 1)
        count = SINK_ROWS if case.name == "sink" else rows.count
        return Run(count, seconds, spark_s, broker_s, watch.peak_mb, foreign)

    def quiet(self, case: Case, rows: Rows) -> Run:
        """A run beside as little foreign load as can be had."""
        runs = [self.once(case, rows)]
        while runs[-1].foreign > FOREIGN_LIMIT and len(runs) <= REPEATED:
            runs.append(self.once(case, rows))
        return min(runs, key=lambda run: run.foreign)

    def warm(self, case: Case, rows: Rows, at_most: int) -> None:
        """Run it until its CPU per row stops falling."""
        last = self.once(case, rows).spark_s
        for _ in range(at_most - 1):
            now = self.once(case, rows).spark_s
            if now > 0.97 * last:
                return
            last = now

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for pid, _ in list(session_members(self._process.pid)):
            os.kill(int(pid), signal.SIGKILL)
        self._log.close()


async def fill(name_server: str, rows: Rows) -> None:
    """Send the rows as any producer would."""

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
    """What is needed for Kafka's side.

    Attributes:
        python: with the PySpark of the connector, for both sides.
        broker, connector: class paths.
    """

    python: Path
    broker: str
    connector: str


def find_peer() -> Peer:
    """Fetch what is missing.

    Raises:
        PeerUnavailableError: that is not possible here.
    """
    jars = kafka.broker_classpath()
    connector = ",".join(kafka.connector_jars())
    return Peer(kafka.connector_python(), jars, connector)


def our_side(python: Path, folder: Path, effort: Effort, running: ExitStack) -> Side:
    """Our servers with the rows, and Spark."""
    servers = Ours()
    name_server = servers.name_server(folder)
    running.callback(name_server.stop)
    broker = servers.broker(folder, name_server.address)
    running.callback(broker.stop)
    with Client(broker.port, timeout_s=30) as client:
        for rows in effort.rows:
            client.create_topic(rows.topic, QUEUES)
            client.create_topic(f"{rows.topic}-sink", QUEUES)
    for rows in effort.rows:
        asyncio.run(fill(name_server.address, rows))
    command = [str(python), "-m", "benchmarks.spark_session", "ours", name_server.address, str(folder)]
    side = Side("OrbitMQ", broker, name_server.address, command, folder)
    running.callback(side.close)
    side.order(case="save_parquet", topic=effort.rows[0].topic)
    return side


def kafka_side(peer: Peer, folder: Path, effort: Effort, running: ExitStack) -> Side:
    """Kafka with the rows, and Spark."""
    broker = kafka.start_broker(folder, peer.broker, queues=QUEUES)
    running.callback(broker.stop)
    command = [str(peer.python), "-m", "benchmarks.spark_session", "kafka", broker.address, str(folder)]
    side = Side(f"Kafka {kafka.VERSION}", broker, broker.address, [*command, peer.connector], folder)
    running.callback(side.close)
    for rows in effort.rows:
        side.order(case="fill", rows=rows.count, body=rows.body)
    return side


# -- the comparison --------------------------------------------------------------------------------------


def compare(sides: list[Side], cases: list[Case], rows: Rows, effort: Effort) -> list[list[Figure]]:
    """Each case on each side, in turn."""
    figures = []
    for number, case in enumerate(cases):
        taking = [side for side in sides if case.peer or side is sides[0]]
        print(f"measuring {case.title}, {rows.title}", flush=True)
        found = {side.title: Figure() for side in sides}
        for side in taking:
            side.warm(case, rows, effort.warmups)
        for turn in range(effort.repeats):
            for side in in_turn(taking, number + turn):
                found[side.title].runs.append(side.quiet(case, rows))
        figures.append([found[side.title] for side in sides])
    return figures


def page(sides: list[Side], cases: list[Case], figures: list[list[Figure]]) -> str:
    """Rates, core-seconds per million rows and memory of both."""
    headings = ["case", "rows/s ours", "aim"]
    if len(sides) > 1:
        headings += ["Kafka", "ratio"]
    headings += ["core-s/M ours", "(broker)", "aim"]
    if len(sides) > 1:
        headings += ["Kafka", "(broker)"]
    headings += ["MB ours", *(["Kafka"] if len(sides) > 1 else []), "foreign %"]
    lines = []
    for case, (ours, *others) in zip(cases, figures, strict=True):
        theirs = others[0] if others and others[0].runs else None
        line = [case.title, ours.rates(), f"{case.rate:,}" if case.rate else ""]
        if others:
            line += (
                [theirs.rates(), ratio(ours.median("rate"), theirs.median("rate"))] if theirs else ["", ""]
            )
        line += [*_cores(ours), f"{case.cores:g}" if case.cores else ""]
        if others:
            line += _cores(theirs) if theirs else ["", ""]
        line.append(f"{ours.median('rss_mb'):,.0f}")
        if others:
            line.append(f"{theirs.median('rss_mb'):,.0f}" if theirs else "")
        worst = max(run.foreign for figure in (ours, *others) for run in figure.runs)
        lines.append([*line, f"{100 * worst:.0f}"])
    return table(headings, lines)


def _cores(figure: Figure) -> list[str]:
    broker = statistics.median(run.broker_s / run.rows * 1e6 for run in figure.runs)
    return [f"{figure.median('cores'):.2f}", f"{broker:.2f}"]


def reader_alone(name_server: str, rows: Rows, repeats: int) -> dict[str, Any]:
    """The reader without Spark, one process; what it says of itself."""
    command = [sys.executable, "-m", "benchmarks.spark_reader", name_server, rows.topic]
    done = subprocess.run(
        [*command, "--repeat", str(repeats + 1)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    outcome: dict[str, Any] = json.loads(done.stdout)
    outcome["runs"] = outcome["runs"][1:]
    return outcome


def reader_text(outcome: dict[str, Any], rows: Rows) -> str:
    rate = statistics.median(run["rows"] / run["seconds"] for run in outcome["runs"])
    cpu = statistics.median(run["cpu_s"] / run["rows"] * 1e6 for run in outcome["runs"])
    return (
        f"The reader without Spark, one process, default columns, {rows.title}: "
        f"{rate:,.0f} rows/s, {cpu:.2f} us CPU a row, {outcome['peak_mb']:,.0f} MB."
    )


def run(folder: Path, *, short: bool, only: tuple[str, ...], rows_of: int) -> tuple[str, dict[str, Any]]:
    """Measure; the page and what is kept as JSON.

    Args:
        only: the names of some cases; none for the usual ones.
        rows_of: another number of the first kind of rows, and only these; 0 for the usual ones.
    """
    effort = SHORT if short else FULL
    if rows_of:
        effort = replace(effort, rows=(replace(effort.rows[0], count=rows_of),))
    about = machine()
    parts: list[str] = []
    content: dict[str, Any] = {
        "record": record(short=short, effort=asdict(effort), order="alternating"),
        "machine": about,
    }
    peer = None
    try:
        peer = find_peer()
    except PeerUnavailableError as error:
        print(f"without Kafka: {error}", flush=True)
        content["without"] = str(error)
    python = peer.python if peer is not None else Path(sys.executable)
    with ExitStack() as running:
        print("filling our topics", flush=True)
        sides = [our_side(python, folder / "ours", effort, running)]
        if peer is not None:
            print("filling Kafka's", flush=True)
            sides.append(kafka_side(peer, folder / "kafka", effort, running))
        for rows, all_cases in zip(effort.rows, (CASES, SMALL_CASES), strict=False):
            wanted = only or (SHORT_NAMES if short else tuple(case.name for case in all_cases))
            cases = [case for case in all_cases if case.name in wanted]
            figures = compare(sides, cases, rows, effort)
            parts += [f"\n## {rows.title}\n", page(sides, cases, figures)]
            content[rows.topic] = {
                case.name: {side.title: f.runs for side, f in zip(sides, found, strict=True)}
                for case, found in zip(cases, figures, strict=True)
            }
        alone = reader_alone(sides[0].source, effort.rows[0], effort.repeats)
        parts.append("\n" + reader_text(alone, effort.rows[0]))
        content["reader"] = alone
        head = _head(sides, about, effort, content["record"]["kind"])
    return "\n".join([*head, *parts]), content


def _head(sides: list[Side], about: dict[str, Any], effort: Effort, kind: str) -> list[str]:
    versions = "; ".join(f"{side.title} with Spark {side.version}" for side in sides)
    place = f"{about['cpu']}, {about['cpus']} CPUs, {about['taken']}"
    return [
        f"# Spark: OrbitMQ and Kafka on {place}, {kind} record\n",
        f"{versions}; local[2], broker on the same CPUs, {QUEUES} queues, 16-byte keys, 3 properties.",
        f"Medians of {effort.repeats} runs (least-most) in turn, each case warmed until its CPU per row",
        "stopped falling. core-s/M: core-seconds of Spark and broker for a million rows. MB: most memory of",
        "Spark's processes.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rows and cases, in three minutes")
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--rows", type=int, default=0, help="another number of rows")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where data is kept meanwhile (default: /tmp)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and folders are tidied up then
    only = tuple(name for name in options.only.split(",") if name)
    with tempfile.TemporaryDirectory(prefix="orbitmq-spark-", dir=options.folder) as folder:
        text, content = run(Path(folder), short=options.short, only=only, rows_of=options.rows)
    print(text)
    print(f"\nkept in {keep('spark', text, content)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
