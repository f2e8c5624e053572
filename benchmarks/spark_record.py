"""The record of `make bench-spark`: each case with its date and commit, so that single cases can be measured
again.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import spark_waits
from benchmarks.measure import machine, record, table
from benchmarks.peer import ratio
from benchmarks.servers import ROOT
from benchmarks.spark_cases import (
    APACHE_CASES,
    CASES,
    DURABLE_CASES,
    SHORT_SINK_ROWS,
    SINK_ROWS,
    SMALL_CASES,
    WAITS,
    Case,
)
from benchmarks.spark_sides import FOREIGN_LIMIT, Run
from benchmarks.verdict import Miss, times_worse

OURS = "OrbitMQ"
PROTOCOL = """\
Spark {versions}, local[2], broker on the same CPUs, 8 queues, 16-byte keys, 3 properties. Medians of the
runs (least-most), systems in turn, each case warmed until its CPU per row stopped falling. core-s/M:
core-seconds of Spark and broker for a million rows. MB: most memory of Spark's processes; a case with an
aim for it has a session of its own, as a session keeps the memory of earlier cases. foreign: CPU of others
during the worst run, of all processors; a run beside more than {limit} is repeated, twice at most. An aim
in bold was missed. A run that read more or fewer rows than there are is refused (but for batch reads of
Kafka, whose rows Spark does not count). "failed": Kafka's query ended with an error, twice. Sinks write
{sink_rows:,} rows that Spark makes ({short_sink_rows:,} in a short run); memory for the page cache is
touched before each run that writes. Our broker has ASYNC_FLUSH: Kafka's does not flush either."""
DURABLE = "## SYNC_FLUSH, our broker's default: answered when it is on the disk"
READER = "reader"


def commit() -> str:
    """The measured commit, with a plus if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no", "src") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


class Record:
    """The results, by the keys of the cases.

    Args:
        content: the JSON content of an earlier record, or empty.
        short: whether the record is only for a first look.
    """

    def __init__(self, content: dict[str, Any], *, short: bool) -> None:
        self.content: dict[str, Any] = {
            "record": record(short=short, order="alternating", foreign_limit=FOREIGN_LIMIT),
            "machine": machine(),
            "entries": content.get("entries", {}),
        }
        self._commit = commit()

    @classmethod
    def kept(cls, *, short: bool) -> Record:
        """The record of earlier runs, to be extended; a short one begins empty."""
        path = ROOT / "benchmarks" / "results" / "spark.json"
        return cls({} if short or not path.exists() else json.loads(path.read_text()), short=short)

    def put(
        self,
        key: str,
        title: str,
        sides: dict[str, list[Any]],
        versions: dict[str, str],
        failed: Mapping[str, str] | None = None,
    ) -> None:
        """Store the runs of a case in place of earlier ones.

        Args:
            title: the title of the rows.
            sides: the runs by system.
            versions: the versions of Spark, by system.
            failed: systems whose queries failed, with the error.
        """
        made = {
            name: [asdict(run) if isinstance(run, Run) else run for run in runs]
            for name, runs in sides.items()
            if runs and name not in (failed or ())
        }
        self.content["entries"][key] = {
            "taken": time.strftime("%Y-%m-%d %H:%M"),
            "commit": self._commit,
            "rows": title,
            "spark": {name: versions[name] for name in made if name in versions},
            "sides": made,
            "failed": dict(failed or {}),
        }

    def missed(self, keys: Collection[str], share: float) -> list[Miss]:
        """The missed goals of these cases.

        Args:
            share: the share of a goal's rate that counts as met; a query over few rows is mostly start-up.
        """
        misses = []
        for case in (*CASES, *DURABLE_CASES, *SMALL_CASES):
            if case.key not in keys or case.key not in self.content["entries"]:
                continue
            ours = _runs(self.content["entries"][case.key], OURS)
            rate, cores, memory = (_median(ours, name) for name in ("rate", "cores", "rss_mb"))
            times = max(
                times_worse(rate, least=case.rate * share or None),
                times_worse(cores, most=case.cores / share or None),
                times_worse(memory, most=case.memory_mb / share or None),
            )
            text = f"{case.title}: {rate:,.0f} rows/s, {cores:.2f} core-s/M, {memory:,.0f} MB"
            misses.append(Miss(text, times))
        return [miss for miss in misses if miss.times > 1]

    def page(self) -> str:
        """The record as Markdown."""
        about, entries = self.content["machine"], self.content["entries"]
        others = sorted({name for entry in entries.values() for name in entry["sides"]} - {OURS})
        versions = sorted({v for entry in entries.values() for v in entry["spark"].values()})
        kafka = next((name for name in others if name.startswith("Kafka")), "")
        parts = [
            f"# Spark: OrbitMQ{' and ' + kafka if kafka else ''} on {about['cpu']}, {about['cpus']} CPUs, "
            f"{self.content['record']['kind']} record\n",
            PROTOCOL.format(
                versions=", ".join(versions),
                limit=f"{FOREIGN_LIMIT:.0%}",
                sink_rows=SINK_ROWS,
                short_sink_rows=SHORT_SINK_ROWS,
            ),
        ]
        for cases in (CASES, DURABLE_CASES, SMALL_CASES, APACHE_CASES):
            measured = [case for case in cases if case.key in entries]
            if measured:
                first = entries[measured[0].key]
                of_apache = f" from {next(iter(first['sides']))}" if cases is APACHE_CASES else ""
                title = DURABLE if cases is DURABLE_CASES else f"## {first['rows']}{of_apache}"
                beside = kafka if cases in (CASES, SMALL_CASES) else ""
                parts += [f"\n{title}\n", _reads(measured, entries, beside)]
        waits = [wait for wait in WAITS if wait.key in entries]
        if waits:
            parts += ["\n## Waiting\n", _waits(waits, entries, kafka)]
        if READER in entries:
            parts.append("\n" + _reader(entries[READER]))
        return "\n".join(parts)


def _runs(entry: dict[str, Any], name: str) -> list[Run]:
    return [Run(**run) for run in entry["sides"].get(name, ())]


def _median(runs: Sequence[Run], name: str) -> float:
    return statistics.median(float(getattr(run, name)) for run in runs)


def _rates(runs: Sequence[Run]) -> str:
    rates = [run.rate for run in runs]
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"


def _cores(runs: Sequence[Run]) -> list[str]:
    broker = statistics.median(run.broker_s / run.rows * 1e6 for run in runs)
    return [f"{_median(runs, 'cores'):.2f}", f"{broker:.2f}"]


def _aim(text: str, *, met: bool) -> str:
    return text if met else f"**{text}**"


def _reads(cases: Sequence[Case], entries: dict[str, Any], kafka: str) -> str:
    headings = ["case", "rows/s", "aim", *(["Kafka", "ratio"] if kafka else [])]
    headings += ["core-s/M", "broker", "aim", *(["Kafka", "broker"] if kafka else [])]
    headings += ["MB", *(["Kafka"] if kafka else []), "foreign", "taken at"]
    lines = []
    for case in cases:
        entry = entries[case.key]
        ours = _runs(entry, OURS) or _runs(entry, next(iter(entry["sides"])))
        theirs = _runs(entry, kafka)
        rate, cores, memory = (_median(ours, name) for name in ("rate", "cores", "rss_mb"))
        line = [case.title, _rates(ours)]
        line.append(_aim(f"{case.rate:,}", met=rate >= case.rate) if case.rate else "")
        if kafka:
            fell = "failed" if kafka in entry.get("failed", ()) else ""
            line += [_rates(theirs), ratio(rate, _median(theirs, "rate"))] if theirs else [fell, ""]
        line += _cores(ours)
        line.append(_aim(f"{case.cores:g}", met=cores <= case.cores) if case.cores else "")
        if kafka:
            line += _cores(theirs) if theirs else ["", ""]
        limit = case.memory_mb
        line.append(_aim(f"{memory:,.0f} of {limit:,}", met=memory <= limit) if limit else f"{memory:,.0f}")
        if kafka:
            line.append(f"{_median(theirs, 'rss_mb'):,.0f}" if theirs else "")
        worst = max(run.foreign for run in (*ours, *theirs))
        lines.append([*line, f"{worst:.0%}", _when(entry)])
    return table(headings, lines)


def _waits(waits: Sequence[Any], entries: dict[str, Any], kafka: str) -> str:
    lines = []
    for wait in waits:
        entry = entries[wait.key]
        line = [wait.title, wait.aim, *(_waited(wait.key, entry, name) for name in (OURS, kafka) if name)]
        lines.append([*line, _when(entry)])
    return table(["", "aim", "OrbitMQ", *(["Kafka"] if kafka else []), "taken at"], lines)


def _waited(key: str, entry: dict[str, Any], name: str) -> str:
    if name in entry["sides"]:
        return spark_waits.text(key, entry["sides"][name])
    return "failed" if name in entry.get("failed", ()) else ""


def _when(entry: dict[str, Any]) -> str:
    return f"{entry['taken']} {entry['commit']}"


def _reader(entry: dict[str, Any]) -> str:
    (outcome,) = entry["sides"][OURS]
    rate = statistics.median(run["rows"] / run["seconds"] for run in outcome["runs"])
    cpu = statistics.median(run["cpu_s"] / run["rows"] * 1e6 for run in outcome["runs"])
    return (
        f"The reader without Spark, one process, default columns, {entry['rows']}: {rate:,.0f} rows/s, "
        f"{cpu:.2f} us CPU a row, {outcome['peak_mb']:,.0f} MB ({_when(entry)})."
    )
