"""The figures of faults: processes that are killed, frozen or cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.faults.plans import BY_NAME
from benchmarks.grpc_faults.goals import HEADINGS as GRPC_HEADINGS
from benchmarks.grpc_faults.goals import rows as grpc_rows
from benchmarks.pages.records import record, table, taken

SHOWN = (
    "kill-master", "stop-master", "freeze-master-15", "cut-master", "kill-acting", "both-slave-first",
    "new-master", "quorum-strict",
)  # fmt: skip
OURS = "OrbitMQ"
KILLED = {
    "sync-flush": "a master with SYNC_FLUSH",
    "power": "the same, and its disk keeps only flushed data",
    "quorum": "master or slave of a strict quorum of 2, its disk removed",
    "async": "an asynchronous master with a slave, its disk removed",
}
HEADINGS = [
    "fault", "the slave acts after", "default sends that fail, longest gap", "sends without retry fail for",
    "consumers stand still: plain, in order, pop", "acknowledged and lost",
]  # fmt: skip


def _entries(pair: str) -> dict[str, dict[str, Any]]:
    return {entry["fault"]: entry for entry in record("faults")["entries"] if entry["pair"] == pair}


def _row(entry: dict[str, Any]) -> list[str]:
    _, acts, sends, once, still, *_, lost, _, _ = entry["cells"]
    return [BY_NAME[entry["fault"]].title, acts, sends, once, still, lost]


def costs() -> str:
    """The table of the faults that matter most to operators."""
    found = _entries(OURS)
    return table(HEADINGS, [_row(found[fault]) for fault in SHOWN])


def summary() -> str:
    """The number of faults and goals, and the goals that were missed."""
    found = _entries(OURS)
    goals = [(entry, goal) for entry in found.values() for goal in entry["goals"]]
    missed = [
        [BY_NAME[entry["fault"]].title, goal["what"], goal["measured"], goal["goal"]]
        for entry, goal in goals
        if goal["met"] != "yes"
    ]
    lost = [(entry["fault"], int(entry["cells"][10])) for entry in found.values() if int(entry["cells"][10])]
    days = sorted({entry["place"]["taken"][:10] for entry in found.values()})
    unjudged = [entry for entry in found.values() if not entry["goals"]]
    lines = [
        f"The record has {len(found)} faults, taken {' to '.join(dict.fromkeys((days[0], days[-1])))}.",
        f"{len(goals) - len(missed)} of {len(goals)} goals were met"
        + (f"; {len(unjudged)} runs had no goals yet." if unjudged else "."),
    ]
    for fault, count in lost:
        lines.append(f'Acknowledged messages lost with "{BY_NAME[fault].title}": {count}.')
    if missed:
        lines += ["", table(["missed with", "what", "measured", "goal"], missed)]
    return "\n".join(lines)


def kills() -> str:
    """The table with the run of each kind of kill."""
    runs = {run["mode"]: run for run in record("kills")["runs"]}
    rows = []
    for mode, title in KILLED.items():
        run = runs[mode]
        lost = run["cells"][4]
        oldest = (
            f", at most {run['oldest_lost_s'] * 1000:,.0f} ms before the kill" if run["oldest_lost_s"] else ""
        )
        rows.append([title, f"{run['kills']:,}", f"{run['acknowledged']:,}", lost + oldest])
    return table(["what is killed", "kills", "acknowledged", "lost"], rows)


def of_grpc_clients() -> str:
    """The table of the faults of gRPC clients and their brokers, beside Apache's."""
    found = record("grpc-faults")
    return f"{table(GRPC_HEADINGS, grpc_rows(found['sides']))}\n\n{taken(found)}."


BLOCKS: dict[str, Callable[[], str]] = {
    "faults": costs,
    "faults-summary": summary,
    "kills": kills,
    "grpc-faults": of_grpc_clients,
}
