"""Faults on real processes, and the costs of each.

    python -m benchmarks.faults [NAME ...] [--short] [--peer] [--java] [--pictures DIR] [--record] [--seed N]

Two broker groups with a slave each, about 100 messages a second in clients of all roles, one fault per run.
Prints a table of each fault's costs, and a table of the goals. --peer plays the faults that need no relay
with Apache's brokers, --java uses Apache's clients (both need Maven Central). The exit code is 1 if OrbitMQ's
servers and clients break a promise: a message is lost, out of order, early, or delivered although rolled
back.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults.figures import HEADINGS, broken, figures, row
from benchmarks.faults.goals import against_goals
from benchmarks.faults.pictures import draw
from benchmarks.faults.plans import BY_NAME, FAULTS, LONG, PEER, SHORT, TABLE
from benchmarks.faults.record import GOAL_HEADINGS, Entry, add, entry
from benchmarks.faults.run import Outcome, played
from benchmarks.faults.scene import Fault, Times
from benchmarks.measure import table
from benchmarks.servers import Apache, Ours, PeerUnavailableError, apache_classpath, java_program

PEER_HEAP_MB = 512


def main() -> None:
    options = arguments()
    # Clients warn about lost and restored connections, which are expected here.
    logging.getLogger("orbitmq").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="orbitmq-faults-") as folder:
        try:
            maker = Apache(apache_classpath(), heap_mb=PEER_HEAP_MB) if options.peer else Ours()
            java = java_program("FaultLoad", logs_of_java(options.keep, folder)) if options.java else None
        except PeerUnavailableError as reason:
            sys.exit(f"without Apache's programs: {reason}")
        entries = [play(maker, fault, java, options) for fault in chosen(options)]
    print(table(list(HEADINGS), [[BY_NAME[one.fault].title, *one.cells] for one in entries]))
    goals = [
        [f"{BY_NAME[one.fault].title}: {goal.what}", goal.measured, goal.goal, goal.met]
        for one in entries
        for goal in one.goals
    ]
    if goals:
        print("\n" + table(GOAL_HEADINGS, goals))
    wrong = [f"{one.fault}, seed {one.seed}: {text}" for one in entries for text in one.broken]
    if wrong and not (options.peer or options.java):
        sys.exit("\n".join(wrong))


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BY_NAME)}; all by default")
    parser.add_argument("--short", action="store_true", help="a few faults, half a minute each")
    parser.add_argument("--peer", action="store_true", help="Apache's brokers; the faults of the table")
    parser.add_argument("--java", action="store_true", help="Apache's clients with their default periods")
    parser.add_argument("--pictures", type=Path, help="draw a timeline of each fault into this folder")
    parser.add_argument("--keep", type=Path, help="keep the servers' logs, and Java clients', in this folder")
    parser.add_argument("--record", action="store_true", help="put the tables into benchmarks/results")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}")
    unplayable = [name for name in options.names if options.peer and not BY_NAME[name].peer]
    if unplayable:
        parser.error(f"not with Apache's brokers: {', '.join(unplayable)}")
    return options


def logs_of_java(keep: Path | None, folder: str) -> Path:
    """The folder for the logs of Apache's clients."""
    if keep is None:
        return Path(folder)
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def chosen(options: argparse.Namespace) -> Sequence[Fault]:
    """The faults to play."""
    if options.names:
        return [BY_NAME[name] for name in options.names]
    if options.peer or options.java:
        return [BY_NAME[name] for name in TABLE]
    return [fault for fault in FAULTS if fault.short or not options.short]


def times(maker: Ours | Apache, *, java: bool, short: bool) -> Times:
    """The durations of a fault's phases: Apache's programs need more time to recover."""
    if java or isinstance(maker, Apache):
        return PEER
    return SHORT if short else LONG


def play(
    maker: Ours | Apache, fault: Fault, java: Sequence[str] | None, options: argparse.Namespace
) -> Entry:
    """Play a fault, print its result, and add it to the record if requested."""
    pair = maker.title
    if java is not None or isinstance(maker, Apache):
        pair += f" with {'OrbitMQ' if java is None else 'Apache'}'s clients"
    print(f"{pair}: {fault.title}", file=sys.stderr, flush=True)
    kept = options.keep / fault.name if options.keep else None
    lasting = times(maker, java=java is not None, short=options.short)
    outcome = played(maker, fault, lasting, options.seed, java=java, keep=kept)
    found = figures(outcome)
    wrong = broken(outcome, found)
    one = entry(
        fault.name, pair, options.seed, row(outcome, found)[1:], against_goals(fault.name, found), wrong
    )
    say(outcome, one)
    if options.pictures:
        draw(outcome, options.pictures / f"{fault.name}.png")
    if options.record:
        add([one], short=options.short)
    return one


def say(outcome: Outcome, one: Entry) -> None:
    """Print the events and figures of a run."""
    for event in outcome.history.events:
        if event.at_s >= outcome.fault_s - 1:
            print(f"  {event.at_s - outcome.fault_s:7.2f} s  {event.kind}: {event.text}", file=sys.stderr)
    for heading, cell in zip(HEADINGS[1:], one.cells, strict=True):
        print(f"  {heading}: {cell}", file=sys.stderr)
    for goal in one.goals:
        print(f"  goal: {goal.what}: {goal.measured}, at most {goal.goal}: {goal.met}", file=sys.stderr)
    for text in one.broken:
        print(f"  BROKEN: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
