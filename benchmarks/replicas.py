"""What a slave costs: a master alone, with a slave that copies, and with one that every answer waits for."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench, Case, Effort, Figure, Generator, microseconds, table
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client, RequestError
from benchmarks.servers import Apache, Ours, Server, free_ports

GET_BROKER_HA_STATUS = 907
COPY_BYTES = 1 << 30
COPY_RATE = 5000
SAMPLE_S = 0.02
LINKED_S = 30.0
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
    """One case in one mode. Lags are bytes that the slave did not have, seen each 20 ms."""

    mode: str
    figure: Figure
    slave_cpu_us: float
    lag_p50: float
    lag_max: float

    def row(self, body: int) -> list[str]:
        """The cells of a table; lags as time at the measured rate."""
        figure = self.figure
        bytes_per_us = figure.rate * (body + RECORD_BYTES) / 1e6
        lags = [microseconds(lag / bytes_per_us) if self.mode != "alone" else "" for lag in self.lags]
        return [
            figure.title, self.mode, f"{figure.rate:,.0f}", f"{figure.cpu_us:.2f}",
            f"{self.slave_cpu_us:.2f}" if self.slave_cpu_us else "",
            microseconds(figure.p50_us), microseconds(figure.p99_us), *lags,
        ]  # fmt: skip

    @property
    def lags(self) -> tuple[float, float]:
        return self.lag_p50, self.lag_max


# Of the rate with an asynchronous slave, when every answer waits for it; and how much more CPU of the master.
QUORUM_RATE, QUORUM_CPU = 0.85, 1.3
# What a record of the log has besides its body.
RECORD_BYTES = 150


class _Lag:
    """Asks the master again and again how far its slave is behind."""

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
    """The slaves of a master, as it sees them."""
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
    """A master, and its slave unless it is alone; linked. ``fill`` is called before the slave starts."""
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


def once(bench: Bench, master: Server, slave: Server | None, mode: str, case: Case) -> Replicated:
    """Measure one case."""
    begin, cpu = time.monotonic(), slave.cpu_s() if slave is not None else 0.0
    with _Lag(master) as lag:
        figure = bench.measure(master, case)
    seconds = time.monotonic() - begin
    cpu_us = (slave.cpu_s() - cpu) * 1e6 / max(1.0, figure.rate * seconds) if slave is not None else 0.0
    samples = lag.samples or [0]
    return Replicated(mode, figure, cpu_us, statistics.median(samples), max(samples))


def measure(
    maker: Ours | Apache, generator: Generator, folder: Path, *, short: bool, cpus: set[int] | None = None
) -> tuple[str, list[Replicated]]:
    """All modes and loads; the table, and what is in it."""
    bench = Bench(generator, Effort(0.3, 1.0, 1) if short else Effort(0.5, 3.0, 3))
    found: list[Replicated] = []
    rows: list[list[str]] = []
    for durable in (False,) if short else (False, True):
        for mode in MODES:
            with group(maker, folder / "replicas", mode, durable=durable, cpus=cpus) as (master, slave):
                bench.prepare(master)
                for case in cases(durable=durable, short=short):
                    one = once(bench, master, slave, mode, case)
                    found.append(one)
                    rows.append(one.row(case.body))
    rows.sort(key=lambda row: row[0])
    return table(HEADINGS, rows), found


def copying(
    maker: Ours | Apache, generator: Generator, folder: Path, *, short: bool, cpus: set[int] | None = None
) -> str:
    """What senders at a moderate rate notice of a fresh slave that copies a large log."""
    bench = Bench(generator, Effort(0.2, 1.0, 1))
    case = Case(rate=COPY_RATE, body=1024)
    wanted = COPY_BYTES // (8 if short else 1)
    before: list[Figure] = []

    def fill(master: Server) -> None:
        bench.prepare(master)
        while log_end(master) < wanted:
            generator.run(
                "batch", port=master.port, topic="bench", body=1024, warmup=0, ops=4000, duration=60
            )
        before.append(bench.measure(master, case))

    with group(maker, folder / "copy", "+ slave", durable=False, cpus=cpus, fill=fill) as (master, slave):
        assert slave is not None
        begin, during = time.monotonic(), [bench.measure(master, case)]
        while log_end(slave) < wanted:
            during.append(bench.measure(master, case))
        seconds = time.monotonic() - begin
    p99 = [max(figure.p99_us for figure in figures) for figures in (before, during)]
    return (
        f"A fresh slave copies {wanted >> 20} MiB within {seconds:.1f} s while {COPY_RATE:,} messages of "
        f"1 KiB a second are sent: p99 {microseconds(p99[1])}, without it {microseconds(p99[0])} "
        "(goal: twice that)."
    )


def log_end(broker: Server) -> int:
    """Where its log ends."""
    with Client(broker.port) as client:
        table_of = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
    return int(table_of["commitLogMaxOffset"])


def missed(found: Sequence[Replicated]) -> list[str]:
    """Where a quorum costs more than the goal says; judged where as much is sent as there is."""
    figures = {(one.mode, one.figure.title): one.figure for one in found}
    lines = []
    for (mode, title), quorum in figures.items():
        if mode != "quorum 2" or "1024 B, 16 x 16" not in title:
            continue
        slave = figures["+ slave", title]
        rate, cpu = quorum.rate / slave.rate, quorum.cpu_us / slave.cpu_us
        if rate < QUORUM_RATE or cpu > QUORUM_CPU:
            lines.append(f"{title}, quorum 2 against + slave: {rate:.0%} of the rate, {cpu:.2f} x the CPU")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.replicas", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one second per line and fewer lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        generator = Generator()
        text, found = measure(Ours(), generator, Path(folder), short=options.short)
        text += "\n\n" + copying(Ours(), generator, Path(folder), short=options.short)
    print(text)
    for line in missed(found):
        print(f"missed: {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
