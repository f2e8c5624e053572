"""What a slave costs its master: alone, with a slave that copies, and with answers that wait for it.

    python -m benchmarks.replication [--short]

Three layouts of the same broker under the same loads: one broker alone, a master with an asynchronous slave,
a SYNC_MASTER whose answers wait for the slave (inSyncReplicas=2). Printed: rate, latencies, the CPU of master
and slave for one send, how far the slave is behind while the load runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    Bench,
    Case,
    Effort,
    Figure,
    Generator,
    keep,
    machine,
    microseconds,
    record,
    summary,
    table,
)
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client
from benchmarks.servers import Ours, Server, ServerError

LOOK_EVERY_S = 0.1
READY_LIMIT_S = 60.0
FLUSH_MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")
LAYOUTS = ("alone", "slave, async", "quorum 2")
QUORUM = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
RATE_GOAL, CPU_GOAL = 0.85, 1.3
HEADINGS = ["load", "layout", "sends/s", "p50", "p99", "master CPU us", "slave CPU us", "lag p50", "lag max"]


@dataclass
class Pair:
    """The brokers of one layout."""

    master: Server
    slave: Server | None


@dataclass
class Lag:
    """How many bytes the slave was behind, seen from outside while a load ran."""

    seen: list[int] = field(default_factory=list)

    @contextmanager
    def watched(self, pair: Pair) -> Iterator[None]:
        """Look ten times a second."""
        if pair.slave is None:
            yield
            return
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(pair.master.port, pair.slave.port, done))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, master: int, slave: int, done: threading.Event) -> None:
        with Client(master, timeout_s=30) as at_master, Client(slave, timeout_s=30) as at_slave:
            while not done.wait(LOOK_EVERY_S):
                # The slave first: what comes between the two answers counts as lag.
                copied = log_end(at_slave)
                self.seen.append(max(0, log_end(at_master) - copied))


@dataclass
class Row:
    """One load on one layout; CPU in microseconds a send, lag in bytes."""

    case: str
    layout: str
    figure: Figure
    slave_cpu_us: float
    lag_p50: float
    lag_max: float


def log_end(client: Client) -> int:
    answer = json.loads(client.ask(GET_BROKER_RUNTIME_INFO).body)
    return int(answer["table"]["commitLogMaxOffset"])


def cases(*, short: bool, durable: bool) -> list[Case]:
    """One in flight, many connections, and as much as there is; the last one is what is judged."""
    bodies = (1024,) if short else (128, 1024)
    shapes = ((1, 1), (64, 1), (16, 16))
    return [
        Case(connections=connections, window=window, body=body, durable=durable)
        for body in bodies
        for connections, window in shapes
    ]


class Session:
    """One whole run: the master has a processor of its own where there are two."""

    def __init__(self, *, short: bool, folder: Path) -> None:
        available = sorted(os.sched_getaffinity(0))
        self.master_cpus = set(available[:1]) if len(available) > 1 else None
        self.other_cpus = set(available[1:]) if len(available) > 1 else None
        self.short = short
        self.folder = folder
        self.effort = Effort(0.5, 2.0, 2) if short else Effort(1.0, 4.0, 5)
        self.bench = Bench(Generator(self.other_cpus), self.effort)
        self.rows: list[Row] = []

    @contextmanager
    def layout(self, name: str, flush: str) -> Iterator[Pair]:
        """Its servers, started and in sync."""
        ours, folder = Ours(), self.folder / f"{name.replace(', ', '-').replace(' ', '-')}-{flush}"
        with ExitStack() as stack:
            name_server = ours.name_server(folder)
            stack.callback(name_server.stop)
            common: dict[str, Any] = {"flushDiskType": flush, "slaveReadEnable": "true"}
            quorum: dict[str, Any] = QUORUM if name == "quorum 2" else {}
            master = ours.broker(folder, name_server.address, cpus=self.master_cpus, **common, **quorum)
            stack.callback(master.stop)
            slave = None
            if name != "alone":
                slave = ours.broker(
                    folder / "slave",
                    name_server.address,
                    cpus=self.other_cpus,
                    brokerId="1",
                    brokerRole="SLAVE",
                    haMasterAddress=f"127.0.0.1:{master.port + 1}",
                    **common,
                )
                stack.callback(slave.stop)
                wait_in_sync(master)
            with Client(master.port, timeout_s=30) as client:
                client.create_topic("bench", 8)
            yield Pair(master, slave)

    def measure(self, pair: Pair, layout: str, case: Case) -> None:
        lag, runs, spent, sent = Lag(), [], 0.0, 0.0
        for _ in range(self.effort.repeats):
            before = pair.slave.cpu_s() if pair.slave else 0.0
            begun = time.monotonic()
            with lag.watched(pair):
                runs.append(self.bench.once(pair.master, case))
            spent += (pair.slave.cpu_s() if pair.slave else 0.0) - before
            sent += runs[-1]["ops_per_second"] * (time.monotonic() - begun)
        figure = summary(case.title, runs)
        per_send = spent / sent * 1e6 if pair.slave else 0.0
        row = Row(
            case.title,
            layout,
            figure,
            per_send,
            statistics.median(lag.seen) if lag.seen else 0,
            max(lag.seen, default=0),
        )
        self.rows.append(row)
        print(f"  {case.title}, {layout}: {figure.rate:,.0f}/s", file=sys.stderr, flush=True)

    def run(self) -> tuple[str, dict[str, Any]]:
        about = machine()
        taken = record(short=self.short, effort=self.effort)
        for flush in FLUSH_MODES:
            for layout in LAYOUTS:
                with self.layout(layout, flush) as pair:
                    for case in cases(short=self.short, durable=flush == "SYNC_FLUSH"):
                        self.measure(pair, layout, case)
        text = (
            f"# A slave and its master on {about['cpu']}, {about['cpus']} CPUs, {about['taken']}, "
            f"{taken['kind']} record\n\n"
            f"Master on CPU {self.master_cpus or 'any'}, slave and generator on {self.other_cpus or 'any'}; "
            f"load average before {about['load_before']:.1f}. Each line: medians of {self.effort.repeats} x "
            f"{self.effort.duration_s:g} s. The lag is seen from outside, ten times a second.\n\n"
            f"{table(HEADINGS, map(cells, self.rows))}\n\n{judged(self.rows)}"
        )
        return text, {"record": taken, "machine": about, "rows": self.rows}


def wait_in_sync(master: Server) -> None:
    """Until the master counts its slave.

    Raises:
        ServerError: it does not.
    """
    deadline = time.monotonic() + READY_LIMIT_S
    with Client(master.port, timeout_s=30) as client:
        while time.monotonic() < deadline:
            state = json.loads(client.ask(GET_BROKER_RUNTIME_INFO).body)["table"]
            if state["inSyncReplicaNums"] == "2":
                return
            time.sleep(LOOK_EVERY_S)
    raise ServerError(f"{master.name} has no slave after {READY_LIMIT_S:.0f} s:\n{master.tail()}")


def cells(row: Row) -> list[str]:
    figure = row.figure
    # The lag in time is what the load writes meanwhile; records are larger than their bodies by about 200 B.
    size = 200 + int(row.case.split(" B")[0].split()[-1])
    milliseconds = [f"{lag / max(1, figure.rate * size) * 1000:.1f} ms" for lag in (row.lag_p50, row.lag_max)]
    alone = row.layout == "alone"
    return [
        row.case,
        row.layout,
        f"{figure.rate:,.0f}",
        microseconds(figure.p50_us),
        microseconds(figure.p99_us),
        f"{figure.cpu_us:.1f}",
        "" if alone else f"{row.slave_cpu_us:.1f}",
        *(["", ""] if alone else milliseconds),
    ]


def judged(rows: Sequence[Row]) -> str:
    """Quorum 2 against the asynchronous slave, where as much is sent as there is."""
    lines = []
    found = {(row.case, row.layout): row.figure for row in rows}
    for case in dict.fromkeys(row.case for row in rows):
        slave, quorum = found[case, "slave, async"], found[case, "quorum 2"]
        rate = quorum.rate / slave.rate
        cpu = quorum.cpu_us / slave.cpu_us if slave.cpu_us else 0.0
        line = f"{case}: quorum 2 has {rate:.0%} of the rate at {cpu:.2f} times the master's CPU"
        line += f", p50 {quorum.p50_us - slave.p50_us:+,.0f} us"
        if "16 x 16" in case:
            line += f" (goal {RATE_GOAL:.0%}, {CPU_GOAL:g}: "
            line += f"{'met' if rate >= RATE_GOAL and cpu <= CPU_GOAL else 'MISSED'})"
        lines.append(f"- {line}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.replication", description=__doc__)
    parser.add_argument("--short", action="store_true", help="1 KiB only and two short runs of each line")
    parser.add_argument("--name", default="replication", help="name of the files in benchmarks/results/")
    parser.add_argument("--folder", type=Path, default=None, help="where brokers keep their data")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=options.folder) as folder:
        text, content = Session(short=options.short, folder=Path(folder)).run()
    print(text)
    page = keep(options.name, text, content)
    print(f"\nkept in {page} and {page.with_suffix('.json').name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
