"""The costs of many topics, many records and many connections, beside the project's targets.

`make bench` measures OrbitMQ's broker, `make bench-peer` Apache RocketMQ's too, each with all processors:

    python -m benchmarks.growth [--topics 2000] [--peer]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import crowd, many_topics, recovery, timers
from benchmarks.measure import Generator, table
from benchmarks.servers import Apache, Ours, PeerUnavailableError, apache_classpath
from benchmarks.verdict import Miss, exit_code, times_worse

Maker = Ours | Apache
Found = dict[str, float]
SHORT_TOPICS, FULL_TOPICS, PEER_TOPICS = 2_000, 50_000, 3_000
SHORT_TIMERS, FULL_TIMERS = 100_000, 1_000_000


@dataclass(frozen=True)
class Line:
    """One figure.

    Attributes:
        key: the figure's key in results and records.
        shape: the format of the number.
        least, most: the target's bounds; None for no bound.
        most_full: the target instead of `most` from 50,000 topics on.
    """

    key: str
    title: str
    shape: str
    least: float | None = None
    most: float | None = None
    most_full: float | None = None

    def target(self, topics: int) -> str:
        if self.least is not None:
            return ">= " + self.shape.format(self.least)
        most = self._most(topics)
        return "" if most is None else "<= " + self.shape.format(most)

    def met(self, value: float, topics: int) -> bool | None:
        """Whether the target is met; None if there is no target."""
        return self.times(value, topics) <= 1 if self.target(topics) else None

    def times(self, value: float, topics: int) -> float:
        """How many times worse than the target the value is."""
        return times_worse(value, least=self.least, most=self._most(topics))

    def _most(self, topics: int) -> float | None:
        return self.most_full if self.most_full is not None and topics >= FULL_TOPICS else self.most


LINES = (
    Line("create_rate", "create topics of 8 queues, 16 at a time", "{:,.0f}/s", least=1_000),
    Line("create_last_rate", "create topics: the last tenth of them", "{:,.0f}/s", least=1_000),
    Line("create_cpu_ms", "create topics: broker CPU each", "{:,.2f} ms", most=1),
    Line("create_name_server_ms", "create topics: name server CPU each", "{:,.2f} ms"),
    Line("create_worst_ms", "create topics: the longest of them", "{:,.0f} ms"),
    Line("first_rate", "first message to each topic, 16 at a time", "{:,.0f}/s", least=5_000),
    Line("first_cpu_ms", "first message: broker CPU each", "{:,.2f} ms"),
    Line("first_settle_ms", "first message: broker CPU each in the background afterwards", "{:,.2f} ms"),
    Line("idle_cpu_s", "35 s idle, broker CPU", "{:,.2f} s", most=0.2),
    Line("memory_mb", "35 s idle, RssAnon", "{:,.0f} MB", most=400),
    Line("name_server_mb", "35 s idle, RssAnon of the name server", "{:,.0f} MB"),
    Line("stop_s", "clean stop", "{:,.2f} s"),
    Line(
        "clean_start_s", "start after a clean stop until a pull is answered", "{:,.2f} s", most=1, most_full=2
    ),
    Line(
        "kill_start_s",
        "start after kill -9 with nothing new until a pull is answered",
        "{:,.2f} s",
        most=1.5,
        most_full=2,
    ),
    Line("term_s", "SIGTERM while it starts until it has ended", "{:,.2f} s", most=0.5),
    Line("records", "records stored before kill -9 at full rate", "{:,.0f}"),
    Line("recovery_s", "start after kill -9 at full rate until a pull is answered", "{:,.2f} s", most=1.5),
    Line("recovery_rate", "recovery: records/s beyond an empty start", "{:,.0f}/s", least=2_000_000),
    Line("unserved_s", 'recovery: port open and answered "starting"', "{:,.2f} s"),
    Line("timer_late_p50_s", "timers, 1,000 due/s: late, p50", "{:,.3f} s"),
    Line("timer_late_p99_s", "timers, 1,000 due/s: late, p99", "{:,.3f} s", most=0.2),
    Line("timer_early", "timers: messages before their time", "{:,.0f}", most=0),
    Line("timer_burst_s", "timers, 10,000 due in one second: the latest", "{:,.2f} s", most=1),
    Line("timer_waiting", "timers that wait", "{:,.0f}"),
    Line("timer_memory_bytes", "memory of each of them, RssAnon", "{:,.0f} B", most=100),
    Line("timer_kill_start_s", "start after kill -9 until a new timer is delivered", "{:,.2f} s", most=3),
    Line("few_cpu_us", "64 connections x 1 send in flight, broker CPU each", "{:,.1f} us"),
    Line("crowd_cpu_us", "1,000 connections x 1 send in flight, broker CPU each", "{:,.1f} us"),
    Line("crowd_ratio", "1,000 connections: times the cost at 64", "{:,.2f}", most=1.2),
    Line("crowd_worst_ms", "1,000 connections: worst latency", "{:,.0f} ms", most=250),
    Line("idle_connections_mb", "10,000 idle connections, RssAnon more", "{:,.0f} MB", most=60),
)


def measure(maker: Maker, generator: Generator, folder: Path, topics: int) -> Found:
    """All figures of one system, by their keys."""
    found: Found = {}
    waiting = FULL_TIMERS if topics >= FULL_TOPICS else SHORT_TIMERS
    parts: tuple[tuple[str, Callable[[Path], Found]], ...] = (
        (f"{topics:,} topics", lambda data: many_topics.measure(maker, generator, data, topics)),
        ("recovery", lambda data: recovery.measure(maker, generator, data)),
        ("timers", lambda data: timers.measure(maker, data, waiting)),
        ("connections", lambda data: crowd.measure(maker, generator, data)),
    )
    for name, part in parts:
        print(f"  {maker.title}: {name}", file=sys.stderr, flush=True)
        data = folder / f"growth-{type(maker).__name__}"
        try:
            found |= part(data)
        finally:
            shutil.rmtree(data, ignore_errors=True)
    return found


def report(found: Found, topics: int) -> tuple[str, list[Miss]]:
    """One line per figure beside its target, and the lines that miss their targets."""
    rows: list[list[str]] = []
    missed: list[Miss] = []
    for line in LINES:
        value = found[line.key]
        met = line.met(value, topics)
        if met is False:
            text = f"{line.title}: {line.shape.format(value)}, wanted {line.target(topics)}"
            missed.append(Miss(text, line.times(value, topics)))
        rows.append(
            [
                line.title,
                line.shape.format(value),
                line.target(topics),
                {None: "", True: "yes", False: "NO"}[met],
            ]
        )
    return table([f"{topics:,} topics", "measured", "target", "met"], rows), missed


def compare(ours: Found, theirs: Found, topics: int) -> str:
    """One line per figure of both systems, with the ratio ours/theirs."""
    rows = []
    for line in LINES:
        a, b = ours[line.key], theirs[line.key]
        rows.append([line.title, line.shape.format(a), line.shape.format(b), f"{a / b:.2f}" if b else "-"])
    return table([f"{topics:,} topics", "ours", "Apache", "ratio"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("--topics", type=int, default=SHORT_TOPICS, help="how many topics (2000)")
    parser.add_argument("--peer", action="store_true", help="beside Apache's broker")
    options = parser.parse_args()
    generator = Generator()
    with tempfile.TemporaryDirectory(prefix="orbitmq-growth-") as made:
        ours = measure(Ours(), generator, Path(made), options.topics)
        text, missed = report(ours, options.topics)
        print(text)
        print("\n".join(["", *(f"missed: {miss.text}" for miss in missed)]))
        if options.peer:
            try:
                apache = Apache(apache_classpath())
            except PeerUnavailableError as error:
                print(f"without Apache's broker: {error}")
            else:
                print(compare(ours, measure(apache, generator, Path(made), options.topics), options.topics))
    return exit_code(missed)


if __name__ == "__main__":
    raise SystemExit(main())
