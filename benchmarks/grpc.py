"""gRPC: OrbitMQ's broker beside Apache's proxy with its broker in one JVM (``-pm local``), SYNC_FLUSH.

Loads are sends (:mod:`benchmarks.grpc_sends`) and receives with acknowledgements
(:mod:`benchmarks.grpc_receives`); rows are all other measurements, each with a goal (:data:`ROWS`). Both
systems run in one session, in turn; the one that begins changes from run to run, and the other one is stopped
(SIGSTOP) meanwhile. The JVM is warmed up for 10 s first.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import grpc_clients, grpc_receives, grpc_sends, grpc_start, grpc_waiting
from benchmarks.grpc_judging import HEADINGS
from benchmarks.grpc_places import TOPIC, Place, apache, ours
from benchmarks.grpc_sends import LOADS, run_load
from benchmarks.grpc_wire import Run
from benchmarks.measure import Effort, microseconds, table
from benchmarks.servers import ServerError, left_out

RECEIVES = f"receive {grpc_receives.BATCH}, acknowledge one by one; latency of one acknowledgement"
# The number of messages for each second that a run should take; the run ends when all are done.
RECEIVES_PER_SECOND = 4000
LOADS_NAME = "loads"


@dataclass
class World:
    """The environment in which rows are measured.

    Attributes:
        places: both systems, paused; empty for a row that starts its own servers.
    """

    places: Sequence[Place]
    folder: Path
    effort: Effort
    short: bool


@dataclass(frozen=True)
class Row:
    """One row: its measurement, and its lines of the table.

    Attributes:
        shared: whether the row uses the systems that run for all rows.
    """

    measure: Callable[[World], dict[str, Any]]
    lines: Callable[[Mapping[str, Any]], list[list[str]]]
    shared: bool = True


ROWS = {
    "arrival": Row(
        lambda world: grpc_clients.compare_arrivals(world.places, world.folder, short=world.short),
        grpc_clients.arrival_lines,
    ),
    "clients": Row(
        lambda world: grpc_clients.compare(world.places, world.folder, short=world.short),
        grpc_clients.lines,
    ),
    "tls": Row(
        lambda world: grpc_sends.compare_tls(world.places, world.folder, world.effort), grpc_sends.tls_lines
    ),
    "waiting": Row(
        lambda world: grpc_waiting.compare(world.folder, short=world.short), grpc_waiting.lines, shared=False
    ),
    "start": Row(
        lambda world: grpc_start.measure(world.folder, short=world.short), grpc_start.lines, shared=False
    ),
}
NAMES = (LOADS_NAME, *ROWS)


def measure(folder: Path, effort: Effort, *, short: bool, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """The results for the record, of the requested names: "grpc" has the loads, "grpc_rows" the rows.

    Without ``h2load`` nothing is measured, and one line says so.
    """
    if shutil.which("h2load") is None:
        left_out("gRPC is left out: h2load is not installed (apt install nghttp2-client)")
        return {}
    found: dict[str, Any] = {}
    rows = {name: row for name, row in ROWS.items() if name in names}
    if LOADS_NAME in names or any(row.shared for row in rows.values()):
        with ours(folder / "ours") as first, apache(folder / "apache") as second:
            world = World([first, second], folder, effort, short)
            for place in world.places:
                place.prepare(TOPIC, grpc_receives.GROUP)
                place.server.pause()
            if LOADS_NAME in names:
                found["grpc"] = _loads(world)
            taken = _taken((name for name, row in rows.items() if row.shared), world)
    else:
        taken = {}
    alone = World([], folder, effort, short)
    return {**found, "grpc_rows": taken | _taken((n for n, row in rows.items() if not row.shared), alone)}


def _taken(names: Iterable[str], world: World) -> dict[str, Any]:
    """The rows of these names; a failure of a row is printed, and the other rows are still measured."""
    found = {}
    for name in names:
        try:
            found[name] = _row(name, world)
        except (ServerError, OSError, subprocess.SubprocessError) as error:
            print(f"gRPC's row {name} has failed: {error}", flush=True)
            for place in world.places:
                place.server.pause()
    return found


def _row(name: str, world: World) -> dict[str, Any]:
    print(f"measuring gRPC's row {name}", flush=True)
    began = time.monotonic()
    folder = world.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    found = ROWS[name].measure(World(world.places, folder, world.effort, world.short))
    print(f"  in {time.monotonic() - began:.0f} s", flush=True)
    return {"taken": time.strftime("%Y-%m-%d"), "short": world.short, "found": found}


def merged(content: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """The new results, completed by the earlier record's results that were not measured again.

    Machine and day are those of the loads; each row has its own day.
    """
    found = {**content, "grpc_rows": {**kept.get("grpc_rows", {}), **content.get("grpc_rows", {})}}
    if "grpc" not in content:
        found.update({name: kept[name] for name in ("record", "machine", "grpc") if name in kept})
    return found


def text(content: Mapping[str, Any]) -> str:
    """The tables of a record."""
    if not content.get("grpc") and not content.get("grpc_rows"):
        return "left out: h2load is not installed"
    headings = ["load", "a second: ours", "Apache", "ratio", "CPU us ours", "Apache", "ratio"]
    headings += ["p50 ours", "Apache", "p99 ours", "Apache"]
    loads = [
        _line(load, median(runs["ours"]), median(runs["apache"]))
        for load, runs in content.get("grpc", {}).items()
    ]
    return f"{table(headings, loads)}\n\n{table([*HEADINGS, 'taken'], row_lines(content), aligned=False)}"


def row_lines(content: Mapping[str, Any]) -> list[list[str]]:
    """The lines of the rows in a record, with the day on which each was taken."""
    rows = content.get("grpc_rows", {})
    return [
        [*line, kept["taken"] + (", short" if kept["short"] else "")]
        for name, kept in ((name, rows[name]) for name in ROWS if name in rows)
        for line in ROWS[name].lines(kept["found"])
    ]


# -- loads ---------------------------------------------------------------------------------------------


def _loads(world: World) -> dict[str, Any]:
    places, effort = world.places, world.effort
    content: dict[str, Any] = {}
    for number, load in enumerate(LOADS):
        print(f"measuring {load.title} over gRPC", flush=True)
        for place in places:
            run_load(place, load, world.folder, place.warmup_s)
        runs: list[list[dict[str, Any]]] = [[], []]
        for turn in range(effort.repeats):
            for side in (0, 1) if (number + turn) % 2 == 0 else (1, 0):
                runs[side].append(asdict(run_load(places[side], load, world.folder, effort.duration_s)))
        content[load.title] = {"ours": runs[0], "apache": runs[1]}
    print(f"measuring {RECEIVES} over gRPC", flush=True)
    content[RECEIVES] = _receives(places, effort)
    return content


def _receives(places: Sequence[Place], effort: Effort) -> dict[str, Any]:
    """Receives with acknowledgements of both systems, in turn."""
    for place in places:
        until = time.monotonic() + place.warmup_s
        while time.monotonic() < until:
            _receive(place, place.warmup_s / 2)
    runs: list[list[dict[str, Any]]] = [[], []]
    for turn in range(effort.repeats):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            runs[side].append(asdict(_receive(places[side], effort.duration_s)))
    return {"ours": runs[0], "apache": runs[1]}


def _receive(place: Place, seconds: float) -> Run:
    count = int(RECEIVES_PER_SECOND * seconds)
    place.server.resume()
    with ExitStack() as stack:
        consumers = grpc_receives.Consumers(place.port, TOPIC, stack)
        grpc_receives.fill(place.port, TOPIC, count)
        found = consumers.run(place.server, count)
    place.server.pause()
    return found


def median(runs: Sequence[Mapping[str, float]]) -> Run:
    """The median of each figure."""
    return Run(*(statistics.median(run[name] for run in runs) for name in Run.__dataclass_fields__))


def _line(load: str, mine: Run, theirs: Run) -> list[str]:
    return [
        load,
        f"{mine.rate:,.0f}",
        f"{theirs.rate:,.0f}",
        f"{mine.rate / theirs.rate:.2f}",
        f"{mine.cpu_us:.0f}",
        f"{theirs.cpu_us:.0f}",
        f"{mine.cpu_us / theirs.cpu_us:.2f}",
        *map(microseconds, (mine.p50_us, theirs.p50_us, mine.p99_us, theirs.p99_us)),
    ]
