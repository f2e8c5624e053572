"""The record of played faults: one entry for each fault and each combination of servers and clients.

An entry is replaced when its fault is played again, so that a record can be made in pieces. Each entry names
its time, the machine, the machine's other load, and the commit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.faults.figures import HEADINGS
from benchmarks.faults.goals import Judged
from benchmarks.faults.plans import BY_NAME
from benchmarks.measure import keep, machine, record, table
from benchmarks.servers import ROOT

NAME = "faults"
OURS = "OrbitMQ"
NAMED = 2
"""Most broken promises of one fault that the page shows."""
GOAL_HEADINGS = ["figure", "measured", "goal", "met"]


@dataclass(frozen=True)
class Entry:
    """The result of one fault.

    Attributes:
        pair: the combination of servers and clients.
        first: whether servers and clients had priority over all other work, as with ``chrt --rr 1``.
        cells: the cells of the table, without the fault's title.
        broken: the broken promises.
    """

    fault: str
    pair: str
    seed: int
    commit: str
    place: dict[str, Any]
    first: bool
    cells: list[str]
    goals: list[Judged]
    broken: list[str]

    @property
    def key(self) -> str:
        return f"{self.pair}: {self.fault}"


def commit() -> str:
    """The commit of the running code, with a plus if the code was changed since."""
    head = _git("rev-parse", "--short", "HEAD")
    return f"{head}+" if _git("status", "--porcelain", "--", "src", "benchmarks/faults") else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def entry(
    fault: str, pair: str, seed: int, cells: Sequence[str], goals: list[Judged], broken: list[str]
) -> Entry:
    """The entry of a run that has just ended."""
    first = os.sched_getscheduler(0) != os.SCHED_OTHER
    return Entry(fault, pair, seed, commit(), machine(), first, list(cells), goals, broken)


def kept(*, short: bool) -> dict[str, Entry]:
    """The present record; empty if there is none."""
    path = ROOT / "benchmarks" / "results" / f"{NAME}{'-short' if short else ''}.json"
    if not path.exists():
        return {}
    found = {}
    for content in json.loads(path.read_text())["entries"]:
        goals = [Judged(**goal) for goal in content.pop("goals")]
        one = Entry(**content, goals=goals)
        found[one.key] = one
    return found


def add(entries: Sequence[Entry], *, short: bool) -> None:
    """Add entries to the record."""
    whole = kept(short=short) | {one.key: one for one in entries}
    order = list(BY_NAME)
    ordered = sorted(whole.values(), key=lambda one: (one.pair != OURS, one.pair, order.index(one.fault)))
    content = {"record": record(short=short), "entries": [asdict(one) for one in ordered]}
    keep(NAME, page(ordered), content)


def page(entries: Sequence[Entry]) -> str:
    """All entries as Markdown."""
    parts = [
        "# Faults on real processes",
        "Written by `python -m benchmarks.faults --record`: two groups of a master and a slave, about 100 "
        "messages a second in eight roles, one fault a run. What a figure means: "
        "`benchmarks/faults/figures.py`; what is done: `benchmarks/faults/plays.py`. `load` is what else "
        "the machine had to do when the run ended; `ahead of it`: servers and clients ran before that "
        "(`chrt --rr 1`).",
    ]
    for pair in dict.fromkeys(one.pair for one in entries):
        chosen = [one for one in entries if one.pair == pair]
        goals = [(one, goal) for one in chosen for goal in one.goals]
        missed = [
            [f"{BY_NAME[one.fault].title}: {goal.what}", goal.measured, goal.goal, goal.met]
            for one, goal in goals
            if goal.met != "yes"
        ]
        parts.append(f"## {pair}")
        parts.append(f"{len(goals) - len(missed)} of {len(goals)} goals were met.")
        if missed:
            parts.append(table(GOAL_HEADINGS, missed))
        parts.append(
            table(
                [*HEADINGS, "taken"],
                [[BY_NAME[one.fault].title, *one.cells, taken(one)] for one in chosen],
                aligned=False,
            )
        )
        broken = [line for one in chosen for line in _broken(one)]
        parts.append("Broken promises:\n\n" + "\n".join(broken) if broken else "No promise was broken.")
    return "\n\n".join([*parts, *_side_by_side(entries)])


def _broken(one: Entry) -> list[str]:
    """The first broken promises of an entry, and the number of further ones; the record has all."""
    lines = [
        f"- {one.fault}, seed {one.seed}: {text.partition(', the first: ')[0]}" for text in one.broken[:NAMED]
    ]
    more = len(one.broken) - NAMED
    return [*lines, f"- {one.fault}, seed {one.seed}: {more} more in faults.json"] if more > 0 else lines


def _side_by_side(entries: Sequence[Entry]) -> list[str]:
    """The figures common to all combinations of servers and clients, side by side."""
    pairs = list(dict.fromkeys(one.pair for one in entries))
    sides: list[dict[tuple[str, str], str]] = [
        {(one.fault, goal.what): goal.measured for one in entries if one.pair == pair for goal in one.goals}
        for pair in pairs
    ]
    shared = [key for key in sides[0] if all(key in side for side in sides)] if sides[1:] else []
    if not shared:
        return []
    rows = [
        [f"{BY_NAME[fault].title}: {what}", *(side[fault, what] for side in sides)] for fault, what in shared
    ]
    return ["## Beside each other", table(["figure", *pairs], rows)]


def taken(one: Entry) -> str:
    """The time, machine and commit of an entry."""
    place = one.place
    where = f"{place['cpus']} CPUs, load {place['load_before']:.1f}{', ahead of it' if one.first else ''}"
    return f"{place['taken']}, {one.commit}, {where}, seed {one.seed}"
