"""`make bench-spark`: topics read and written by Spark, OrbitMQ beside Kafka 4.0.0 and Spark's connector.

Both systems hold the same rows (`spark_rows`), serve a Spark of the same version and settings on the same
processors, and run each case in turn; the one that begins changes from run to run. Before its measurement a
case runs until its CPU per row stops falling. Kafka and the connector come from Maven Central, the
connector's PySpark from PyPI; without them only OrbitMQ is measured, with the installed PySpark. `--cases`
measures some cases again, into the same record. The folder needs up to 60 GB, mostly for the sinks' output.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import spark_waits
from benchmarks.measure import keep
from benchmarks.peer import in_turn
from benchmarks.servers import ROOT, Ours, PeerUnavailableError, left_out
from benchmarks.spark_cases import (
    APACHE_CASES,
    APACHE_ROWS,
    CASES,
    DURABLE_CASES,
    KIB,
    SHORT_KEYS,
    SHORT_KIB,
    SHORT_SINK_ROWS,
    SMALL,
    SMALL_CASES,
    TRIGGER_ROWS,
    WAITS,
    Case,
    Wait,
    known_keys,
)
from benchmarks.spark_record import OURS, READER, Record
from benchmarks.spark_rows import Rows
from benchmarks.spark_sides import Kafka, RocketMQ, Side, SparkEndedError, System, apache, find_peer
from benchmarks.verdict import exit_code

T = TypeVar("T")
SHORT_SHARE = 0.5
"""The share of a goal's rate that a short run has to reach, since its queries are mostly start-up."""


@dataclass(frozen=True)
class Effort:
    """The numbers of runs.

    Attributes:
        runs: the most measured runs of a case, and the most warm-up runs; 0 for the case's own numbers.
        short: also use few rows, so that the figures are only for a first look.
    """

    runs: int = 0
    short: bool = False

    def bounded(self, case: Case) -> Case:
        """The case with the numbers of runs and rows for this effort."""
        if self.short:
            return replace(case, warmups=2, repeats=2, rows=min(case.rows, SHORT_SINK_ROWS))
        return replace(case, warmups=self._at_most(case.warmups), repeats=self._at_most(case.repeats))

    def repeats(self, wait: Wait) -> int:
        """Number of measurements of a wait."""
        return 1 if self.short else self._at_most(wait.repeats)

    def _at_most(self, runs: int) -> int:
        return min(runs, self.runs or runs)


class Comparison:
    """Compares the systems, and writes their figures to a record.

    Args:
        systems: the systems, OrbitMQ first.
        keys: the keys of the cases to measure.
        effort: the numbers of runs.
    """

    def __init__(
        self, systems: Sequence[System], record: Record, keys: Collection[str], effort: Effort
    ) -> None:
        self._systems = list(systems)
        self._record = record
        self._keys = keys
        self._effort = effort
        self._versions = {system.side.title: system.side.spark.version for system in systems}

    def wanted(self, cases: Sequence[Case]) -> list[Case]:
        """The cases that are to be measured."""
        return [self._effort.bounded(case) for case in cases if case.key in self._keys]

    def reads(self, cases: Sequence[Case], rows: Rows) -> None:
        """Measure each case on each system that supports it, in turn."""
        cases = self.wanted(cases)
        if not cases:
            return
        # Sinks need the topics, but generate their rows themselves.
        filled = rows if any(not case.rows for case in cases) else replace(rows, count=0)
        print(f"filling topics with {filled.title}", flush=True)
        for system in self._systems:
            system.make(filled)
        if any(case.query == "parquet" for case in cases):
            self._systems[0].side.spark.order("save_parquet", topic=rows.topic)
        for number, case in enumerate(cases):
            print(f"measuring {case.title}, {rows.title}", flush=True)
            sides = [system.side for system in self._systems if case.peer or system is self._systems[0]]
            found: dict[str, list[Any]] = {side.title: [] for side in sides}
            failed: dict[str, str] = {}
            for side in sides:
                if case.memory_mb:
                    side.begin_anew()  # a session keeps the memory of earlier cases
                self._take(side, failed, partial(side.warm, case, rows, case.warmups))
            for turn in range(case.repeats):
                for side in in_turn(sides, number + turn):
                    if (taken := self._take(side, failed, partial(side.quiet, case, rows))) is not None:
                        found[side.title].append(taken)
            self._record.put(case.key, rows.title, found, self._versions, failed)

    def _take(self, side: Side, failed: dict[str, str], step: Callable[[], T]) -> T | None:
        """Run a step of a case. A peer whose query fails twice is left out of the case, and the record says
        so.

        Args:
            failed: the peers that are left out, each with its last error.

        Raises:
            SparkEndedError: OrbitMQ's query failed.
        """
        for last in (False, True):
            if side.title in failed:
                break
            try:
                return step()
            except SparkEndedError as error:
                if side is self._systems[0].side:
                    raise
                words = str(error).splitlines()[-1].strip()
                print(f"{side.title} failed{', again' if last else ''}: {words}", flush=True)
                side.begin_anew()
                if last:
                    failed[side.title] = words
        return None

    def waits(self) -> None:
        """Measure the waits. The last of them ends the brokers."""
        wanted = [wait for wait in WAITS if wait.key in self._keys]
        topics = {key: rows for key, rows in TRIGGER_ROWS.items() if key in self._keys}
        if {"start", "down"} & {wait.key for wait in wanted}:
            topics["trigger-8"] = TRIGGER_ROWS["trigger-8"]
        for system in self._systems:
            for rows in topics.values():
                system.make(rows)
            if any(wait.key == "end-to-end" for wait in wanted):
                system.make_empty(spark_waits.ARRIVALS)
        for number, wait in enumerate(wanted):
            print(f"measuring {wait.title}", flush=True)
            found: dict[str, list[Any]] = {system.side.title: [] for system in self._systems}
            failed: dict[str, str] = {}
            for turn in range(self._effort.repeats(wait)):
                for system in in_turn(self._systems, number + turn):
                    step = partial(spark_waits.MEASURES[wait.key], system, wait.key)
                    if (taken := self._take(system.side, failed, step)) is not None:
                        found[system.side.title].append(taken)
            self._record.put(wait.key, "", found, self._versions, failed)


def reader_alone(name_server: str, topic: str) -> dict[str, Any]:
    """Run the reader without Spark, in one process; returns its output."""
    command = [sys.executable, "-m", "benchmarks.spark_reader", name_server, topic, "--repeat", "4"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600)
    outcome: dict[str, Any] = json.loads(done.stdout)
    outcome["runs"] = outcome["runs"][1:]
    return outcome


def beside_kafka(folder: Path, record: Record, keys: Collection[str], rows: Rows, effort: Effort) -> Path:
    """Measure OrbitMQ and Kafka; returns the Python with the PySpark that both used."""
    peer = None
    try:
        peer = find_peer()
    except PeerUnavailableError as error:
        left_out(f"without Kafka: {error}")
        record.content["without"] = str(error)
    python = peer.python if peer is not None else Path(sys.executable)
    with ExitStack() as running:
        print("starting servers and Spark", flush=True)
        ours = RocketMQ(Ours(), python, folder / "ours", running, flushDiskType="ASYNC_FLUSH")
        systems: list[System] = [ours]
        if peer is not None:
            systems.append(Kafka(peer, folder / "kafka", running))
        comparison = Comparison(systems, record, keys, effort)
        comparison.reads(CASES, rows)
        if any(not case.rows for case in comparison.wanted(CASES)):
            outcome = reader_alone(ours.side.source, rows.topic)
            record.put(READER, rows.title, {OURS: [outcome]}, {})
        comparison.reads(SMALL_CASES, SMALL)
        comparison.waits()
    return python


def durably(
    folder: Path, record: Record, keys: Collection[str], rows: Rows, python: Path, effort: Effort
) -> None:
    """Measure OrbitMQ with a broker that answers after a message is on the disk."""
    with ExitStack() as running:
        system = RocketMQ(Ours(), python, folder / "durable", running)
        Comparison([system], record, keys, effort).reads(DURABLE_CASES, rows)


def from_apache(folder: Path, record: Record, keys: Collection[str], python: Path, effort: Effort) -> None:
    """Measure the same format on Apache RocketMQ's broker."""
    try:
        servers = apache()
    except PeerUnavailableError as error:
        left_out(f"without Apache RocketMQ: {error}")
        return
    with ExitStack() as running:
        system = RocketMQ(servers, python, folder / "apache", running)
        Comparison([system], record, keys, effort).reads(APACHE_CASES, APACHE_ROWS)


def run(folder: Path, record: Record, keys: Collection[str], rows: Rows, effort: Effort) -> None:
    """Measure the cases with these keys.

    Args:
        record: gets the results, case by case.
        rows: the rows of 1 KiB.
    """
    durable, of_apache = {case.key for case in DURABLE_CASES}, {case.key for case in APACHE_CASES}
    python = Path(sys.executable)
    if set(keys) - durable - of_apache:
        python = beside_kafka(folder, record, keys, rows, effort)
    if set(keys) & durable:
        durably(folder, record, keys, rows, python, effort)
    if set(keys) & of_apache:
        from_apache(folder, record, keys, python, effort)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rows and cases, in three minutes")
    parser.add_argument("--cases", default="", help=f"separated by commas, of: {', '.join(known_keys())}")
    parser.add_argument("--runs", type=int, default=0, help="at most so many measured runs of a case")
    parser.add_argument("--rows", type=int, default=0, help="another number of rows of 1 KiB")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where data is kept meanwhile (default: /tmp)"
    )
    options = parser.parse_args()
    keys = tuple(key for key in options.cases.split(",") if key)
    if unknown := set(keys) - set(known_keys()):
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}; known: {', '.join(known_keys())}")
    rows = SHORT_KIB if options.short else KIB
    if options.rows:
        rows = replace(rows, count=options.rows)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit cleans up servers and folders
    chosen = keys or (SHORT_KEYS if options.short else known_keys())
    record = Record.kept(short=options.short or rows != KIB)
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-spark-", dir=options.folder) as folder:
            run(Path(folder), record, chosen, rows, Effort(options.runs, options.short))
    finally:
        # This applies even to a run that failed in its last case.
        text = record.page()
        print(text)
        print(f"\nkept in {keep('spark', text, record.content)}")
    return exit_code(record.missed(chosen, SHORT_SHARE if options.short else 1.0))


if __name__ == "__main__":
    raise SystemExit(main())
