"""The cases to measure, their repetitions and targets; and the printing and recording of results."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.page_cache import PageCache
from benchmarks.remoting import Client
from benchmarks.servers import ROOT, Server, child_settings
from benchmarks.verdict import times_worse

QUEUES = 8
_FRESH = itertools.count(1)
SQL = "a > 5 AND b = 'x'"
PULL_BATCHES = 8000
"""Batches of 32 messages that fill the topic for pulls: 256,000 messages."""
MOST_IN_A_PULL = 1024
DISPATCH_LIMIT_S = 120


@dataclass(frozen=True)
class Target:
    """Bounds from the project's goals; a bound that is None is not judged. Latencies in microseconds."""

    rate_min: float | None = None
    cpu_us_max: float | None = None
    p50_us_max: float | None = None
    p99_us_max: float | None = None
    p999_us_max: float | None = None

    def text(self) -> str:
        parts = [
            (self.rate_min, ">= {:,.0f}/s"),
            (self.cpu_us_max, "<= {:g} us CPU"),
            (self.p50_us_max, "p50 <= {:,.0f} us"),
            (self.p99_us_max, "p99 <= {:,.0f} us"),
            (self.p999_us_max, "p99.9 <= {:,.0f} us"),
        ]
        return ", ".join(shape.format(value) for value, shape in parts if value is not None)

    def judged(self) -> bool:
        return bool(self.text())

    def times(self, figure: Figure) -> float:
        """How many times worse than its goal the worst bound is; at most 1 if all bounds hold."""
        if figure.failed:
            return math.inf
        pairs = (
            (self.cpu_us_max, figure.cpu_us),
            (self.p50_us_max, figure.p50_us),
            (self.p99_us_max, figure.p99_us),
            (self.p999_us_max, figure.p999_us),
        )
        bounds = [times_worse(value, most=most) for most, value in pairs]
        return max(times_worse(figure.rate, least=self.rate_min), *bounds)

    def met(self, figure: Figure) -> bool:
        """Whether every bound holds and no request failed."""
        return self.times(figure) <= 1


@dataclass(frozen=True)
class Case:
    """One load: a mode of the generator and its shape. `rate` 0 saturates; `durable` is SYNC_FLUSH.

    With `sql` a pull is filtered by :data:`SQL`, which all messages of its topic match. With `max_bytes` a
    pull gets as many messages as fit.
    """

    mode: str = "send"
    connections: int = 16
    window: int = 16
    body: int = 128
    header: str = "json"
    rate: int = 0
    durable: bool = False
    sql: bool = False
    max_bytes: int = 0
    target: Target = field(default_factory=Target)

    @property
    def title(self) -> str:
        pulled = f"pull of {self.max_bytes >> 10} KiB of" if self.max_bytes else "pull of 32 x"
        what = {"pull": pulled, "deliver": "send to receive", "batch": "batch of 32 x"}.get(
            self.mode, self.mode
        )
        paced = f" at {self.rate:,}/s" if self.rate else ""
        flush = "" if self.mode in ("pull", "echo") else " SYNC" if self.durable else " ASYNC"
        shape = f"{self.connections} x {self.window}{', by SQL92' if self.sql else ''}"
        return f"{what} {self.body} B, {shape}{', binary' if self.header != 'json' else ''}{flush}{paced}"


@dataclass
class Figure:
    """The medians of a case's repetitions. Rates and CPU are per operation: a pull, a batch, a send."""

    title: str
    rate: float
    messages: float
    """Messages per second: each operation of a pull or batch has 32."""
    cpu_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    failed: int
    runs: int
    spread: float = 0.0
    """(fastest - slowest) / median of the rates."""


def speaks_tls() -> bool:
    """Whether the generator is compiled with TLS, for which OpenSSL's headers must be installed (Debian:
    libssl-dev).
    """
    test = ["gcc", "-E", "-include", "openssl/ssl.h", "-x", "c", os.devnull]
    return subprocess.run(test, capture_output=True).returncode == 0


class Generator:
    """The compiled load generator, which is built if its source is newer than the binary.

    Args:
        cpus: the processors for it; None for all.
    """

    def __init__(self, cpus: set[int] | None = None) -> None:
        self.cpus = cpus
        source = ROOT / "benchmarks" / "loadgen.c"
        self.path = ROOT / "build" / "loadgen"
        if not self.path.exists() or self.path.stat().st_mtime < source.stat().st_mtime:
            self.path.parent.mkdir(exist_ok=True)
            tls = ["-DWITH_TLS", "-lssl", "-lcrypto"] if speaks_tls() else []
            subprocess.run(["gcc", "-O2", "-Wall", "-o", str(self.path), str(source), *tls], check=True)

    def run(self, mode: str, **options: object) -> dict[str, Any]:
        """Run the generator once; option names as on its command line, with `_` for `-`."""
        arguments = [str(self.path), mode]
        for name, value in options.items():
            arguments += ["--" + name.replace("_", "-"), str(value)]
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=lambda: child_settings(self.cpus),
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        outcome: dict[str, Any] = json.loads(done.stdout)
        return outcome

    @contextmanager
    def echo_server(self, cpus: set[int] | None = None) -> Iterator[int]:
        """Run a bare echo server in C, which shows what the machine itself does under a load. Yields its
        port.
        """
        command = [str(self.path), "serve", "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, preexec_fn=lambda: child_settings(cpus)
        ) as process:
            assert process.stdout is not None
            try:
                yield int(json.loads(process.stdout.readline())["port"])
            finally:
                process.kill()


@dataclass(frozen=True)
class Effort:
    """Duration in seconds and number of runs of each case."""

    warmup_s: float
    duration_s: float
    repeats: int
    long_s: float = 0.0
    """Duration of one more run of a saturating load, without allocating the page cache's memory before it."""


class Bench:
    """Runs cases against server processes, one after the other.

    Args:
        page_cache: memory to be touched before each run of a saturating load.
    """

    def __init__(self, generator: Generator, effort: Effort, page_cache: PageCache | None = None) -> None:
        self.generator = generator
        self.effort = effort
        self.page_cache = page_cache

    def prepare(self, server: Server) -> None:
        """Create the topics, and fill the one for pulls."""
        with Client(server.port, timeout_s=30) as client:
            client.create_topic("bench", QUEUES)
            client.create_topic("bench_pull", QUEUES)
            self._fill(server, client, "bench_pull")

    def measure(self, server: Server, case: Case) -> Figure:
        """Run the case as often as the effort requires; returns the medians of every column."""
        runs = [self.once(server, case) for _ in range(self.effort.repeats)]
        return summary(case.title, runs)

    def measure_long(self, server: Server, case: Case) -> Figure:
        """One run of `effort.long_s`. Earlier writes are on the disk; nothing else is prepared."""
        os.sync()
        effort = replace(self.effort, duration_s=self.effort.long_s)
        run = Bench(self.generator, effort).once(server, case)
        return summary(f"{case.title}, {effort.duration_s:g} s", [run])

    def warm(self, server: Server, case: Case, seconds: float) -> None:
        """Run the load for this long without a measurement."""
        Bench(self.generator, Effort(0.0, seconds, 1)).once(server, case)

    def echo(self, case: Case, cpus: set[int] | None) -> Figure:
        """The same load against a bare echo server, which shows the machine's own noise."""
        plain = replace(case, mode="echo")
        with self.generator.echo_server(cpus) as port:
            runs = [self._generate(port, 0, plain, "bench", {}) for _ in range(self.effort.repeats)]
        return summary(
            f"bare echo {case.body} B, {case.connections} x {case.window} at {case.rate:,}/s", runs
        )

    def once(self, server: Server, case: Case) -> dict[str, Any]:
        """Run the case once; returns the generator's report."""
        topic = "bench"
        if case.sql:
            return self._once_by_sql(server, case)
        if case.mode == "pull":
            return self._once_pulling(server, case)
        if case.mode == "deliver":
            topic = f"bench_deliver_{next(_FRESH)}"
            with Client(server.port, timeout_s=30) as client:
                client.create_topic(topic, QUEUES)
        if self.page_cache is not None and case.mode != "pull" and not case.rate:
            self.page_cache.touch()
        return self._generate(server.port, server.pid, case, topic, {})

    def _once_pulling(self, server: Server, case: Case) -> dict[str, Any]:
        topic = "bench_pull" if case.body == Case.body else f"bench_pull_{case.body}"
        with Client(server.port, timeout_s=30) as client:
            client.create_topic(topic, QUEUES)
            if not client.max_offset(topic, 0):
                self._fill(server, client, topic, body=case.body)
            more = {"max_offset": min(client.max_offset(topic, queue) for queue in range(QUEUES))}
        if case.max_bytes:
            more |= {"max_bytes": case.max_bytes, "count": MOST_IN_A_PULL}
        return self._generate(server.port, server.pid, case, topic, more)

    def _once_by_sql(self, server: Server, case: Case) -> dict[str, Any]:
        topic = group = "bench_sql"
        with Client(server.port, timeout_s=30) as client:
            client.create_topic(topic, QUEUES)
            if not client.max_offset(topic, 0):
                self._fill(server, client, topic, sql=1)
            client.subscribe_by_sql(group, topic, SQL)
            lowest = min(client.max_offset(topic, queue) for queue in range(QUEUES))
            more = {"max_offset": lowest, "sql": 1}
            return self._generate(server.port, server.pid, case, topic, more, group)

    def _fill(self, server: Server, client: Client, topic: str, **more: int) -> None:
        """Send the messages for pulls, and wait until all can be pulled: Apache dispatches seconds after it
        stores.
        """
        self.generator.run(
            "batch", port=server.port, topic=topic, warmup=0, ops=PULL_BATCHES, duration=120, **more
        )
        last, deadline = -1, time.monotonic() + DISPATCH_LIMIT_S
        while time.monotonic() < deadline:
            ends = [client.max_offset(topic, queue) for queue in range(QUEUES)]
            if min(ends) and sum(ends) == last:
                return
            last = sum(ends)
            time.sleep(1)
        raise RuntimeError(f"{topic}: not all that was sent could be pulled after {DISPATCH_LIMIT_S} s")

    def _generate(
        self, port: int, pid: int, case: Case, topic: str, more: dict[str, int], group: str = "bench"
    ) -> dict[str, Any]:
        return self.generator.run(
            case.mode,
            port=port,
            pid=pid,
            topic=topic,
            group=group,
            queues=QUEUES,
            connections=case.connections,
            window=case.window,
            body=case.body,
            header=case.header,
            rate=case.rate,
            warmup=self.effort.warmup_s,
            duration=self.effort.duration_s,
            **more,
        )


def summary(title: str, runs: list[dict[str, Any]]) -> Figure:
    """The medians of repeated runs of the generator; failures are added up."""

    def median(pick: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(pick(run) for run in runs)

    rates = [run["ops_per_second"] for run in runs]
    rate = statistics.median(rates)
    return Figure(
        title=title,
        rate=rate,
        messages=median(lambda run: run["messages_per_second"]),
        cpu_us=median(lambda run: run["server_cpu_us"]),
        p50_us=median(lambda run: run["latency_us"]["p50"]),
        p99_us=median(lambda run: run["latency_us"]["p99"]),
        p999_us=median(lambda run: run["latency_us"]["p999"]),
        max_us=max(run["latency_us"]["max"] for run in runs),
        failed=sum(sum(run["errors"].values()) + run["mismatched"] for run in runs),
        runs=len(runs),
        spread=(max(rates) - min(rates)) / rate if rate else 0.0,
    )


def table(headings: list[str], rows: Iterable[list[str]], *, aligned: bool = True) -> str:
    """Aligned text, readable on a terminal and as Markdown; the first column left, the others right.

    Tables that are wider than any terminal are not ``aligned``, which halves their size: they are for
    Markdown only.
    """
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) if aligned else 1 for column in range(len(headings))]

    def shown(line: list[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([shown(headings), rule, *(shown(line) for line in lines[1:])])


def microseconds(value: float) -> str:
    """A latency with three significant digits."""
    return f"{value / 1000:,.1f} ms" if value >= 10_000 else f"{value:,.0f} us"


def machine() -> dict[str, Any]:
    """The machine on which the figures were taken."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "kernel": os.uname().release,
        "load_before": os.getloadavg()[0],
        "taken": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def record(*, short: bool, **protocol: Any) -> dict[str, Any]:
    """How figures were taken, stored with them: a short record is for a first look, a full one may be
    quoted.
    """
    return {"kind": "short" if short else "full", **protocol}


def _path(name: str, taken: dict[str, Any]) -> Path:
    """The path of a record: a short one has "-short" in its name, so that it replaces no full one."""
    return ROOT / "benchmarks" / "results" / f"{name}{'-short' if taken['kind'] == 'short' else ''}.json"


def kept(name: str, taken: dict[str, Any]) -> dict[str, Any]:
    """The record with this name and of the same kind (see :func:`record`); empty if there is none."""
    path = _path(name, taken)
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep(name: str, text: str, content: dict[str, Any]) -> Path:
    """Write benchmarks/results/<name>.md and .json; returns the path of the first."""
    path = _path(name, content["record"])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=asdict) + "\n")
    page = path.with_suffix(".md")
    page.write_text(text + "\n")
    return page
