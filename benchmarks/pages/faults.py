"""The figures of faults: processes that are killed, frozen and cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.faults.plans import BY_NAME
from benchmarks.pages.records import record, table

SHOWN = (
    "kill-master", "stop-master", "freeze-master-15", "cut-master", "kill-slave", "kill-acting",
    "both-slave-first", "new-master", "full-master", "kill-nameserver", "quorum-strict",
)  # fmt: skip
OURS = "OrbitMQ"
PAIRS = (OURS, "OrbitMQ with Apache's clients", "Apache 5.5.0 with OrbitMQ's clients")
KILLED = {
    "sync-flush": "a master with SYNC_FLUSH",
    "power": "the same, and its disk keeps only flushed data",
    "quorum": "master or slave of a strict quorum of 2, its disk removed",
    "async": "an asynchronous master with a slave, its disk removed",
}
HEADINGS = [
    "fault", "out of the routes, slave acts", "default sends: failed, longest gap",
    "sends without retry fail for", "stand still: backlog, in order, popped",
    "delayed or timer message late: p50, at most",
    "again: delayed and timer, transactions, popped", "acknowledged and lost", "back in the routes, used",
]  # fmt: skip


def _entries(pair: str) -> dict[str, dict[str, Any]]:
    return {entry["fault"]: entry for entry in record("faults")["entries"] if entry["pair"] == pair}


def _row(entry: dict[str, Any]) -> list[str]:
    out, acts, sends, once, still, late, _, _, again, _, lost, _, back = entry["cells"]
    _, delayed, timer, transactions, popped, *_ = again.split(", ")
    twice = f"{int(delayed) + int(timer)}, {transactions}, {popped}"
    return [BY_NAME[entry["fault"]].title, f"{out}, {acts}", sends, once, still, late, twice, lost, back]


def costs() -> str:
    """The faults that an operator asks about first."""
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
    """The last run of each kind of kill."""
    last = {run["mode"]: run for run in record("kills")["runs"]}
    rows = []
    for mode, title in KILLED.items():
        run = last[mode]
        lost = run["cells"][4]
        oldest = (
            f", at most {run['oldest_lost_s'] * 1000:,.0f} ms before the kill" if run["oldest_lost_s"] else ""
        )
        rows.append([title, f"{run['kills']:,}", f"{run['acknowledged']:,}", lost + oldest])
    return table(["what is killed", "kills", "acknowledged", "lost"], rows)


def clients() -> str:
    """The same faults with Apache's clients, and with Apache's brokers."""
    sides = [_entries(pair) for pair in PAIRS]
    rows = []
    for fault in sides[1]:
        # Goals that were set after a side was recorded are left out.
        measured = [{goal["what"]: goal["measured"] for goal in side[fault]["goals"]} for side in sides]
        rows += [
            [f"{BY_NAME[fault].title}: {what}", *(side[what] for side in measured)]
            for what in measured[0]
            if all(what in side for side in measured)
        ]
    return table(["", *PAIRS], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "faults": costs,
    "faults-summary": summary,
    "kills": kills,
    "fault-clients": clients,
}
