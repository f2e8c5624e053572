"""The costs of a slave: a master alone, with an asynchronous slave, and with a slave that each answer waits
for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    QUEUES,
    Bench,
    Case,
    Effort,
    Figure,
    Generator,
    microseconds,
    summary,
    table,
)
from benchmarks.page_cache import TOUCH_MIB, PageCache
from benchmarks.ports import free_ports
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client, RequestError
from benchmarks.servers import Apache, Ours, Server
from benchmarks.verdict import Miss, exit_code, times_worse

GET_BROKER_HA_STATUS = 907
BROKERS = 2
COPY_BYTES = 1 << 30
COPY_RATE = 5000
# The measured part of the time that the copy takes, in seconds.
COPY_WINDOW_S = 8.0
SAMPLE_S = 0.02
TURNS, TURNS_WITHOUT_GOAL = 5, 3
LINKED_S = CAUGHT_UP_S = 30.0
HEADINGS = [
    "load", "replicas", "sends/s", "master CPU us", "slave CPU us", "p50", "p99", "lag p50", "lag max",
]  # fmt: skip
MODES: dict[str, dict[str, str]] = {
    "alone": {},
    "+ slave": {"brokerRole": "ASYNC_MASTER"},
    "quorum 2": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2"},
}


def cases(*, durable: bool, short: bool) -> list[Case]:
    """The loads of one flush mode."""
    shapes = [(1, 1, 128), (16, 16, 1024)]
    if not short:
        shapes = [(c, w, body) for body in (128, 1024) for c, w in ((1, 1), (64, 1), (16, 16))]
    return [Case(connections=c, window=w, body=body, durable=durable) for c, w, body in shapes]


@dataclass
class Replicated:
    """One case in one mode. Lags are bytes that the slave lacked, sampled every 20 ms."""

    mode: str
    case: Case
    figure: Figure
    slave_cpu_us: float
    lag_p50: float
    lag_max: float

    def row(self) -> list[str]:
        """The cells of a table line; lags are converted into time at the measured rate."""
        figure = self.figure
        return [
            figure.title, self.mode, f"{figure.rate:,.0f}", f"{figure.cpu_us:.2f}",
            f"{self.slave_cpu_us:.2f}" if self.slave_cpu_us else "",
            microseconds(figure.p50_us), microseconds(figure.p99_us),
            self.lag_time(self.lag_p50), self.lag_time(self.lag_max),
        ]  # fmt: skip

    def lag_time(self, lag: float) -> str:
        """A lag as the time in which this many bytes were written."""
        return "" if self.mode == "alone" else microseconds(self.lag_us(lag))

    def lag_us(self, lag: float) -> float:
        """A lag in microseconds at the measured rate."""
        return lag / (max(1.0, self.figure.rate) * (self.case.body + RECORD_BYTES) / 1e6)


# Limits if every answer waits for the slave: the least share of the rate with an asynchronous slave, and the
# most CPU of the master in relation to it.
QUORUM_RATE, QUORUM_CPU = 0.85, 1.3
# The most time that the wait may add to one send at a time.
QUORUM_P50_ASYNC_US, QUORUM_P50_SYNC_US = 100, 150
# Limits with an asynchronous slave: the master's CPU in relation to a master alone, the slave's CPU per send,
# the longest lag.
SLAVE_MASTER_CPU, SLAVE_CPU_US, SLAVE_LAG_US = 1.1, 2.0, 100_000
# The size of a log record in addition to its body.
RECORD_BYTES = 150


class _Lag:
    """Requests the lag of a slave from its master again and again."""

    def __init__(self, master: Server) -> None:
        self._master = master
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[int] = []

    def __enter__(self) -> _Lag:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with Client(self._master.port) as client:
            while not self._ended.wait(SAMPLE_S):
                self.samples += [each["diff"] for each in followers(client)]


def followers(client: Client) -> list[dict[str, Any]]:
    """The slaves of a master, by the master's answer."""
    try:
        found: list[dict[str, Any]] = json.loads(client.request(GET_BROKER_HA_STATUS).body)[
            "haConnectionInfo"
        ]
    except (RequestError, KeyError):
        return []
    return found


@contextmanager
def group(
    maker: Ours | Apache,
    folder: Path,
    mode: str,
    *,
    durable: bool,
    cpus: set[int] | None,
    fill: Callable[[Server], object] = lambda _master: None,
) -> Iterator[tuple[Server, Server | None]]:
    """A linked group of a master and, unless it is alone, a slave. ``fill`` is called before the slave
    starts.
    """
    running: list[Server] = []
    flush = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
    try:
        name_server = maker.name_server(folder / "ns")
        running.append(name_server)
        common: dict[str, Any] = {
            "flushDiskType": flush,
            "brokerIP2": "127.0.0.1",
            "registerNameServerPeriod": "10000",
        }
        first = free_ports(10)
        master = maker.broker(
            folder / "master", name_server.address, port=first + 2, cpus=cpus, **{**common, **MODES[mode]}
        )
        running.append(master)
        fill(master)
        slave = None
        if mode != "alone":
            settings = {**common, "brokerId": "1", "brokerRole": "SLAVE"}
            slave = maker.broker(folder / "slave", name_server.address, port=first + 7, cpus=cpus, **settings)
            running.append(slave)
            _linked(master)
        yield master, slave
    finally:
        for server in reversed(running):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _linked(master: Server) -> None:
    deadline = time.monotonic() + LINKED_S
    with Client(master.port) as client:
        while not followers(client):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no slave linked with {master.name} within {LINKED_S:g} s")
            time.sleep(0.1)


@dataclass
class _Side:
    """A running group in one mode, and the results of a case's turns."""

    mode: str
    master: Server
    slave: Server | None
    runs: list[dict[str, Any]] = field(default_factory=list)
    slave_cpu_us: list[float] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)

    def turn(self, bench: Bench, case: Case) -> None:
        """Run the case once."""
        if self.slave is None:
            self.runs.append(bench.once(self.master, case))
            return
        _caught_up(self.master, self.slave)  # earlier sends must not count as the lag of this load
        sent, cpu = _stored(self.master), self.slave.cpu_s()
        with _Lag(self.master) as lag:
            self.runs.append(bench.once(self.master, case))
        _caught_up(self.master, self.slave)
        used_us = (self.slave.cpu_s() - cpu) * 1e6
        self.slave_cpu_us.append(used_us / max(1, _stored(self.master) - sent))
        self.lags += lag.samples

    def result(self, case: Case) -> Replicated:
        """The medians of the turns, and the longest lag; clears them for the next case."""
        cpu, lags = self.slave_cpu_us or [0.0], self.lags or [0]
        found = Replicated(
            self.mode,
            case,
            summary(case.title, self.runs),
            statistics.median(cpu),
            statistics.median(lags),
            max(lags),
        )
        self.runs, self.slave_cpu_us, self.lags = [], [], []
        return found


def in_turns(bench: Bench, sides: Sequence[_Side], case: Case) -> list[Replicated]:
    """Measure one case in all modes, in several turns with alternating order.

    If all turns of a mode came one after the other, its figures would depend on the memory that the host had
    at that time. Loads without a goal get fewer turns.
    """
    turns = bench.effort.repeats if _has_goal(case) else min(bench.effort.repeats, TURNS_WITHOUT_GOAL)
    for number in range(turns):
        for side in reversed(sides) if number % 2 else sides:
            side.turn(bench, case)
    return [side.result(case) for side in sides]


def _make_topic(master: Server) -> None:
    """Create the topic of the loads."""
    with Client(master.port, timeout_s=30) as client:
        client.create_topic("bench", QUEUES)


def _has_goal(case: Case) -> bool:
    """Whether :func:`missed` judges this load."""
    return case.connections == 1 or (case.window > 1 and case.body == 1024)


def _stored(broker: Server) -> int:
    """Number of the load's messages at a broker."""
    with Client(broker.port, timeout_s=30) as client:
        return sum(client.max_offset("bench", queue) for queue in range(QUEUES))


def _caught_up(master: Server, slave: Server) -> None:
    deadline = time.monotonic() + CAUGHT_UP_S
    while log_end(slave) < log_end(master):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{slave.name} did not catch up within {CAUGHT_UP_S:g} s")
        time.sleep(0.05)


def measure(
    maker: Ours | Apache,
    generator: Generator,
    folder: Path,
    *,
    short: bool,
    cpus: set[int] | None = None,
    effort: Effort | None = None,
) -> tuple[str, list[Replicated]]:
    """Measure all modes and loads; returns the table and its content. The groups of all modes run at the same
    time; those that are not being measured are idle.

    A JVM first runs the last load for its ``warmup_s``, in each mode.
    """
    bench = Bench(
        generator, effort or Effort(0.3, 1.0, 1 if short else TURNS), PageCache(folder, BROKERS * TOUCH_MIB)
    )
    found: list[Replicated] = []
    for durable in (False,) if short else (False, True):
        loads = cases(durable=durable, short=short)
        with ExitStack() as groups:
            sides: list[_Side] = []
            for number, mode in enumerate(MODES):
                place = folder / f"replicas-{number}"
                servers = group(maker, place, mode, durable=durable, cpus=cpus)
                sides.append(_Side(mode, *groups.enter_context(servers)))
                _make_topic(sides[-1].master)
                if isinstance(maker, Apache):
                    bench.warm(sides[-1].master, loads[-1], maker.warmup_s)
            for case in loads:
                found += in_turns(bench, sides, case)
    rows = [one.row() for one in found]
    rows.sort(key=lambda row: row[0])
    return table(HEADINGS, rows), found


def copying(
    maker: Ours | Apache, generator: Generator, folder: Path, *, short: bool, cpus: set[int] | None = None
) -> str:
    """The effect of a new slave that copies a large log on senders at a moderate rate."""
    bench = Bench(generator, Effort(0.2, 1.0 if short else COPY_WINDOW_S, 1))
    case = Case(rate=COPY_RATE, body=1024)
    wanted = COPY_BYTES // (8 if short else 1)
    quiet: list[Figure] = []

    def fill(master: Server) -> None:
        _make_topic(master)
        while log_end(master) < wanted:
            generator.run(
                "batch", port=master.port, topic="bench", body=1024, warmup=0, ops=4000, duration=60
            )
        os.sync()  # the writes of the filling must not fall into the measured time
        quiet.append(bench.measure(master, case))
        PageCache(folder).touch(wanted >> 20)  # memory for the copy

    with group(maker, folder / "copy", "+ slave", durable=False, cpus=cpus, fill=fill) as (master, slave):
        assert slave is not None
        begin, during = time.monotonic(), bench.measure(master, case)
        copied = min(log_end(slave), wanted)
        while log_end(slave) < wanted:
            time.sleep(0.05)
        seconds = time.monotonic() - begin
    return (
        f"A fresh slave copies {wanted >> 20} MiB within {seconds:.1f} s while {COPY_RATE:,} messages of "
        f"1 KiB a second are sent: p99 while the first {copied >> 20} MiB are copied "
        f"{microseconds(during.p99_us)}, without a slave {microseconds(quiet[0].p99_us)} (goal: twice that). "
        "Both brokers share one disk here."
    )


def log_end(broker: Server) -> int:
    """The end offset of a broker's log."""
    with Client(broker.port) as client:
        table_of = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
    return int(table_of["commitLogMaxOffset"])


def missed(found: Sequence[Replicated]) -> list[Miss]:
    """The costs of a slave that exceed the goals; rates and CPU are judged with the heaviest load."""
    by_mode = {(one.mode, one.figure.title): one for one in found}
    misses = []
    for (mode, title), one in by_mode.items():
        if mode == "alone":
            continue
        alone, slave = by_mode["alone", title], by_mode["+ slave", title]
        if mode == "+ slave" and "1024 B, 16 x 16" in title:
            misses.append(_of_slave(title, one, alone.figure.cpu_us))
        elif "1024 B, 16 x 16" in title:
            rate, cpu = one.figure.rate / slave.figure.rate, one.figure.cpu_us / slave.figure.cpu_us
            text = f"{title}, {mode} against + slave: {rate:.0%} of the rate, {cpu:.2f} x the CPU"
            times = max(times_worse(rate, least=QUORUM_RATE), times_worse(cpu, most=QUORUM_CPU))
            misses.append(Miss(text, times))
        elif mode == "quorum 2" and " 1 x 1" in title:
            more_us = one.figure.p50_us - slave.figure.p50_us
            most_us = QUORUM_P50_SYNC_US if one.case.durable else QUORUM_P50_ASYNC_US
            text = f"{title}, {mode} against + slave: p50 +{more_us:.0f} us"
            misses.append(Miss(text, times_worse(more_us, most=most_us)))
    return [miss for miss in misses if miss.times > 1]


def _of_slave(title: str, one: Replicated, alone_us: float) -> Miss:
    lag_us, cpu = one.lag_us(one.lag_max), one.figure.cpu_us / alone_us
    bounds = ((cpu, SLAVE_MASTER_CPU), (one.slave_cpu_us, SLAVE_CPU_US), (lag_us, SLAVE_LAG_US))
    return Miss(
        f"{title}, + slave: {cpu:.2f} x the master's CPU alone, slave {one.slave_cpu_us:.1f} us, "
        f"lag at most {microseconds(lag_us)}",
        max(times_worse(value, most=most) for value, most in bounds),
    )


BESIDE_HEADINGS = [
    "load", "replicas", "sends/s ours", "Apache", "ratio", "master CPU us ours", "Apache",
    "slave CPU us ours", "Apache", "p50 ours", "Apache", "p99 ours", "Apache",
    "lag max ours", "Apache",
]  # fmt: skip


def beside(ours: Sequence[Replicated], theirs: Sequence[Replicated]) -> str:
    """One line for each load and mode, with both systems."""
    rows = []
    for a, b in zip(ours, theirs, strict=True):
        both = (a.figure, b.figure)
        row = [a.figure.title, a.mode, *(f"{each.rate:,.0f}" for each in both)]
        row.append(f"{a.figure.rate / b.figure.rate:.2f}" if b.figure.rate else "-")
        row += [f"{each.cpu_us:.2f}" for each in both]
        row += [f"{each.slave_cpu_us:.2f}" if each.slave_cpu_us else "" for each in (a, b)]
        row += [microseconds(each.p50_us) for each in both] + [microseconds(each.p99_us) for each in both]
        row += [each.lag_time(each.lag_max) for each in (a, b)]
        rows.append(row)
    rows.sort(key=lambda row: row[0])
    return table(BESIDE_HEADINGS, rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.replicas", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one second per line and fewer lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        generator = Generator()
        text, found = measure(Ours(), generator, Path(folder), short=options.short)
        text += "\n\n" + copying(Ours(), generator, Path(folder), short=options.short)
    print(text)
    misses = missed(found)
    for miss in misses:
        print(f"missed: {miss.text}")
    return exit_code(misses)


if __name__ == "__main__":
    raise SystemExit(main())
