"""`make bench`: OrbitMQ's broker on this machine, measured by a compiled load generator.

Prints messages/s, the broker's CPU per operation and latencies beside the project's targets; compiled and
uncompiled, durable and not, with start time and memory. Writes them to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import growth, replicas
from benchmarks.measure import (
    Bench,
    Case,
    Effort,
    Figure,
    Generator,
    Target,
    keep,
    machine,
    microseconds,
    record,
    table,
)
from benchmarks.page_cache import TOUCH_MIB, PageCache
from benchmarks.servers import Ours, Server
from benchmarks.verdict import TWICE, Miss, exit_code, times_worse

DEVICE_TURNS = 3
RETAKES = 2
PACED_RATES = (1_000, 10_000, 50_000)
HEADINGS = ["load", "ops/s", "messages/s", "CPU us/op", "p50", "p99", "p99.9", "errors", "target", "met"]


def send_cases(*, durable: bool, short: bool) -> list[Case]:
    """The saturating loads of one flush mode; for SYNC_FLUSH without the load with one send in flight."""
    many = Target(rate_min=60_000 if durable else 80_000, cpu_us_max=None if durable else 12)
    large = Target() if durable else Target(rate_min=200_000, cpu_us_max=5)
    alone = [] if durable else [Case(connections=1, window=1, target=Target(p50_us_max=100))]
    cases = [
        *alone,
        Case(connections=64, window=1, durable=durable, target=many),
        Case(durable=durable, target=Target(rate_min=300_000, cpu_us_max=3)),
        Case(body=1024, durable=durable, target=large),
    ]
    if not short:
        cases += [
            Case(connections=16, window=1, durable=durable),
            Case(connections=1, window=16, durable=durable),
            Case(connections=64, window=16, durable=durable),
            Case(connections=64, window=1, body=1024, durable=durable),
            Case(connections=1, window=1, header="rocketmq", durable=durable),
            Case(connections=64, window=1, header="rocketmq", durable=durable),
            Case(header="rocketmq", durable=durable),
            Case(mode="batch", connections=4, window=4, durable=durable),
        ]
    return cases


def pull_cases(*, short: bool) -> list[Case]:
    wanted = Target(rate_min=150_000, cpu_us_max=7)
    cases = [Case(mode="pull", window=4, target=wanted)]
    return cases if short else [*cases, Case(mode="pull", window=4, header="rocketmq")]


def paced_cases(*, durable: bool, short: bool) -> list[Case]:
    """Loads at moderate fixed rates, which show the latency of a message when nothing is saturated."""
    rates = PACED_RATES[1:2] if short else PACED_RATES
    goal = Target(p99_us_max=1_000, p999_us_max=5_000)
    cases = []
    for rate in rates:
        target = goal if rate == 10_000 and not durable else Target()
        cases.append(Case(rate=rate, durable=durable, target=target))
        cases.append(Case(mode="deliver", rate=rate, durable=durable))
    return cases


@dataclass
class Row:
    case: Case
    figure: Figure


class Report:
    """Collects rows by section, and prints each as soon as it is measured."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.content: dict[str, Any] = {}
        self.missed: list[Miss] = []

    def note(self, line: str) -> None:
        print(line, flush=True)
        self.parts.append(line)

    def section(self, title: str, rows: Iterable[Row]) -> None:
        self.note(f"\n## {title}\n")
        shown, kept = [], []
        for row in rows:
            figure, target = row.figure, row.case.target
            met = target.met(figure) if target.judged() else None
            if met is False:
                self.missed.append(Miss(f"{figure.title} ({title}): {target.text()}", target.times(figure)))
            shown.append(cells(figure, target.text(), {None: "", True: "yes", False: "NO"}[met]))
            kept.append({"figure": figure, "target": target.text(), "met": met})
            print(f"  {figure.title}: {figure.rate:,.0f}/s", file=sys.stderr, flush=True)
        self.note(table(HEADINGS, shown))
        self.content[title] = kept


def judged(target: Target, take: Callable[[], Figure]) -> Figure:
    """Measure a figure; one that is twice as bad as its target is measured again, and the best one counts.

    This way a host that stalls for a moment does not fail a run, while a change that makes OrbitMQ slow does.
    """
    figure = take()
    for _ in range(RETAKES):
        if target.times(figure) < TWICE:
            break
        figure = min(figure, take(), key=target.times)
    return figure


def cells(figure: Figure, target: str, met: str) -> list[str]:
    cpu = f"{figure.cpu_us:.2f}" if figure.cpu_us else ""
    latencies = [microseconds(value) for value in (figure.p50_us, figure.p99_us, figure.p999_us)]
    rates = [f"{figure.rate:,.0f}", f"{figure.messages:,.0f}"]
    return [figure.title, *rates, cpu, *latencies, str(figure.failed or ""), target, met]


class Session:
    """One whole run: the processors of the servers, the durations of the cases, the results."""

    def __init__(self, *, short: bool, folder: Path) -> None:
        available = sorted(os.sched_getaffinity(0))
        self.server_cpus = set(available[:1]) if len(available) > 1 else None
        self.generator_cpus = set(available[1:]) if len(available) > 1 else None
        self.short = short
        self.folder = folder
        self.generator = Generator(self.generator_cpus)
        effort = Effort(0.3, 1.0, 1, long_s=4.0) if short else Effort(0.5, 1.0, 5, long_s=10.0)
        self.page_cache = PageCache(folder)
        self.bench = Bench(self.generator, effort, self.page_cache)
        self.report = Report()

    def broker(self, label: str, *, pure: bool = False, durable: bool = False) -> tuple[Server, Server]:
        ours = Ours(env={"ORBITMQ_PURE": "1"} if pure else {})
        folder = self.folder / label
        name_server = ours.name_server(folder)
        flush = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        try:
            broker = ours.broker(folder, name_server.address, cpus=self.server_cpus, flushDiskType=flush)
        except BaseException:
            name_server.kill()
            raise
        return name_server, broker

    def device_flush_us(self, seconds: float) -> dict[str, float]:
        """Latency of writing 4 KiB to a preallocated file with fdatasync, in the folder of the brokers' data,
        without a broker.
        """
        generator = Generator(self.server_cpus)
        outcome = generator.run("sync", file=self.folder / "device", body=4096, duration=seconds)
        latency: dict[str, float] = outcome["latency_us"]
        return latency

    def durable_alone(self, server: Server) -> list[Row]:
        """One durable send in flight, in turn with the device alone, whose speed changes from minute to
        minute.
        """
        case = Case(connections=1, window=1, durable=True)
        pause_s = self.bench.effort.duration_s / 2
        device, figures = [], []
        for turn in range(DEVICE_TURNS):
            device.append(self.device_flush_us(pause_s)["p50"])
            if turn < DEVICE_TURNS - 1:
                figures.append(self.bench.measure(server, case))
            else:
                long = self.bench.measure_long(server, case)
        device.append(self.device_flush_us(pause_s)["p50"])
        figure = sorted(figures, key=lambda one: one.p50_us)[len(figures) // 2]
        p50 = statistics.median(device)
        self.report.note(f"\nDevice, in turn with the durable send in flight alone: p50 {microseconds(p50)}.")
        return [Row(case, figure), Row(replace(case, target=Target(p50_us_max=p50 + 100)), long)]

    def measure(self, server: Server, cases: list[Case]) -> Iterable[Row]:
        """For each case, the medians of its short runs, and one long run that is judged by the target."""
        for case in cases:
            yield Row(replace(case, target=Target()), self.bench.measure(server, case))
            yield Row(case, judged(case.target, partial(self.bench.measure_long, server, case)))

    def flush_mode(self, *, durable: bool) -> None:
        """Run all loads on the compiled broker in one flush mode; measure its memory before and after."""
        mode = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        name_server, broker = self.broker(mode, durable=durable)
        try:
            idle = broker.anonymous_mb()
            self.bench.prepare(broker)
            # Pulls come first: sends write tens of gigabytes, and on a full disk the oldest messages are
            # deleted.
            pulls = [] if durable else pull_cases(short=self.short)
            cases = pulls + send_cases(durable=durable, short=self.short)
            # Paced loads come before the saturating ones, whose millions of messages leave files that are
            # still being written out.
            self.report.section(f"{mode}, paced", self.paced(broker, durable=durable))
            alone = self.durable_alone(broker) if durable else []
            rows = itertools.chain(alone, self.measure(broker, cases))
            self.report.section(f"{mode}, saturated", rows)
            self.process(mode, broker, idle)
        finally:
            broker.stop()
            name_server.stop()
            shutil.rmtree(self.folder / mode)

    def paced(self, broker: Server, *, durable: bool) -> Iterable[Row]:
        for case in paced_cases(durable=durable, short=self.short):
            if case.mode == "send":
                yield Row(Case(), self.bench.echo(case, self.server_cpus))
            yield Row(case, judged(case.target, partial(self.bench.measure, broker, case)))

    def process(self, mode: str, broker: Server, idle_mb: float) -> None:
        loaded, threads = broker.anonymous_mb(), broker.status("Threads")
        self.report.note(f"\n{mode}: ready after {broker.ready_s:.2f} s (target 0.5 s);")
        self.report.note(
            f"RssAnon idle {idle_mb:.0f} MB (60 MB), loaded {loaded:.0f} MB (120 MB); {threads} threads"
        )
        process = {"ready_s": broker.ready_s, "idle_mb": idle_mb, "loaded_mb": loaded, "threads": threads}
        self.report.content[f"{mode}, process"] = process
        bounds = (("ready_s", 0.5), ("idle_mb", 60), ("loaded_mb", 120))
        self.report.missed += [
            Miss(f"{mode}: {key} {process[key]:.2f}, wanted {bound}", times_worse(process[key], most=bound))
            for key, bound in bounds
            if process[key] > bound
        ]

    def uncompiled(self) -> None:
        name_server, broker = self.broker("uncompiled", pure=True)
        try:
            self.bench.prepare(broker)
            cases = [Case(connections=64, window=1), Case(), Case(mode="pull", window=4)]
            rows = (Row(case, self.bench.measure(broker, case)) for case in cases)
            self.report.section("uncompiled, ASYNC_FLUSH", rows)
        finally:
            broker.stop()
            name_server.stop()
            shutil.rmtree(self.folder / "uncompiled")

    def growth(self) -> None:
        """Measure many topics, records and connections; here every server has all processors."""
        topics = growth.SHORT_TOPICS if self.short else growth.FULL_TOPICS
        found = growth.measure(Ours(), Generator(), self.folder, topics)
        text, missed = growth.report(found, topics)
        self.report.note(f"\n## Growth, {topics:,} topics\n\n{text}")
        self.report.content["growth"] = {"topics": topics, **found}
        self.report.missed += missed

    def replicas(self) -> None:
        """Measure the costs of a slave; master and slave share the brokers' processor."""
        text, found = replicas.measure(
            Ours(), self.generator, self.folder, short=self.short, cpus=self.server_cpus
        )
        copied = replicas.copying(Ours(), self.generator, self.folder, short=self.short)
        self.report.note(f"\n## Replicas\n\n{text}\n\n{copied}")
        self.report.content["replicas"] = found
        self.report.missed += replicas.missed(found)

    def run(self) -> None:
        about = machine()
        effort = self.bench.effort
        taken = record(short=self.short, effort=effort, page_cache_touched_mib=TOUCH_MIB)
        self.report.content |= {"record": taken, "machine": about}
        self.report.note(
            f"# OrbitMQ on {about['cpu']}, {about['cpus']} CPUs, {about['taken']}, {taken['kind']} record\n"
        )
        self.report.note(
            f"Broker on CPU {self.server_cpus or 'any'}, generator on CPU {self.generator_cpus or 'any'}; "
            f"load average before {about['load_before']:.1f}. Each line: medians of {effort.repeats} x "
            f"{effort.duration_s:g} s, the page cache's memory touched before each; a saturating load then "
            f"also once for {effort.long_s:g} s without that, and its target is judged on this run."
        )
        device = self.device_flush_us(1.0 if self.short else 3.0)
        self.report.content["device_flush_us"] = device
        p50, p99 = microseconds(device["p50"]), microseconds(device["p99"])
        self.report.note(f"Device: pwrite of 4 KiB + fdatasync p50 {p50}, p99 {p99}.")
        for durable in (False, True):
            self.flush_mode(durable=durable)
        self.uncompiled()
        self.replicas()
        self.growth()
        rates = self.page_cache.rates
        self.report.content["page_cache_mib_per_s"] = {"min": min(rates), "max": max(rates)}
        self.report.note(
            f"\nPage cache: {TOUCH_MIB} MiB written and removed before each 1 s saturating run, at "
            f"{min(rates):,.0f} to {max(rates):,.0f} MiB/s."
        )
        missed = [miss.text for miss in self.report.missed]
        self.report.note("\nAll targets met." if not missed else "\nMissed: " + "; ".join(missed))


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one second per line and fewer lines, for CI")
    parser.add_argument(
        "--name", default="orbitmq", help="name of the files in benchmarks/results/ (and -short)"
    )
    parser.add_argument(
        "--folder", type=Path, default=None, help="where brokers keep their data (default: /tmp)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=options.folder) as folder:
        session = Session(short=options.short, folder=Path(folder))
        session.run()
    page = keep(options.name, "\n".join(session.report.parts), session.report.content)
    print(f"\nkept in {page} and {page.with_suffix('.json').name}")
    return exit_code(session.report.missed)


if __name__ == "__main__":
    raise SystemExit(main())
