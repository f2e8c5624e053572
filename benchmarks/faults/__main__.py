"""Faults on real processes, and what each of them costs.

    python -m benchmarks.faults [NAME ...] [--short] [--peer] [--pictures DIR] [--record] [--seed N]

Two broker groups with a slave each, about 100 messages a second in all kinds of roles, one fault a run.
Printed: a table of what each fault costs, and another one against the goals. With --peer the faults that need
no relay are played on Apache's brokers too (needs Maven Central), with the same clients. Ends with 1 when a
promise is broken: a message lost, out of order, before its time, or delivered although rolled back.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from benchmarks.faults.figures import HEADINGS, Figures, against_goals, broken, figures, row
from benchmarks.faults.pictures import draw
from benchmarks.faults.plans import BY_NAME, FAULTS, LONG, PEER, SHORT, Fault, Times
from benchmarks.faults.run import Outcome, played
from benchmarks.measure import machine, table
from benchmarks.servers import ROOT, Apache, Ours, PeerUnavailableError, apache_classpath

RECORD = ROOT / "benchmarks" / "results" / "faults.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BY_NAME)}; all by default")
    parser.add_argument("--short", action="store_true", help="a few faults, half a minute each")
    parser.add_argument("--peer", action="store_true", help="also on Apache's brokers")
    parser.add_argument("--pictures", type=Path, help="draw a timeline of each fault into this folder")
    parser.add_argument("--keep", type=Path, help="keep the servers' logs in this folder")
    parser.add_argument("--record", action="store_true", help=f"write the tables to {RECORD.name} too")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}")
    if options.names:
        faults = [BY_NAME[name] for name in options.names]
    else:
        faults = [fault for fault in FAULTS if fault.short or not options.short]
    # Clients say what they lose and find again; here that is the subject, not news.
    logging.getLogger("orbitmq").setLevel(logging.ERROR)
    rows: list[list[str]] = []
    goals: list[list[str]] = []
    wrong: list[str] = []
    for maker in makers(peer=options.peer):
        times = PEER if isinstance(maker, Apache) else SHORT if options.short else LONG
        for fault in faults:
            if (fault.relayed or fault.slow_disks) and isinstance(maker, Apache):
                continue
            outcome, found = run(maker, fault, times, options.seed, options.keep)
            line = row(outcome, found)
            rows.append([f"{maker.title}: {line[0]}" if options.peer else line[0], *line[1:]])
            goals += [[f"{maker.title}: {g[0]}", *g[1:]] for g in against_goals(outcome, found)]
            if isinstance(maker, Ours):
                wrong += [f"{fault.name}, seed {options.seed}: {text}" for text in broken(outcome, found)]
                if options.pictures:
                    draw(outcome, options.pictures / f"{fault.name}.png")
    text = table(list(HEADINGS), rows)
    if goals:
        text += "\n\n" + table(["figure", "measured", "goal", "met", "Apache 5.5.0 with its clients"], goals)
    print(text)
    if options.record:
        place = machine()
        title = f"# Faults on {place['cpu']}, {place['cpus']} CPUs, {place['taken']}, seed {options.seed}"
        RECORD.write_text(f"{title}\n\n{text}\n")
    if wrong:
        sys.exit("\n".join(wrong))


def makers(*, peer: bool) -> list[Ours | Apache]:
    """Whose brokers."""
    found: list[Ours | Apache] = [Ours()]
    if peer:
        try:
            found.append(Apache(apache_classpath(), heap_mb=512))
        except PeerUnavailableError as reason:
            print(f"without Apache's brokers: {reason}", flush=True)
    return found


def run(
    maker: Ours | Apache, fault: Fault, times: Times, seed: int, keep: Path | None
) -> tuple[Outcome, Figures]:
    """Play a fault and tell what came of it."""
    print(f"{maker.title}: {fault.title}", file=sys.stderr, flush=True)
    outcome = played(maker, fault, times, seed, keep / fault.name if keep else None)
    found = figures(outcome)
    for event in outcome.history.events:
        if event.at_s >= outcome.fault_s - 1:
            print(f"  {event.at_s - outcome.fault_s:7.2f} s  {event.kind}: {event.text}", file=sys.stderr)
    for heading, cell in zip(HEADINGS[1:], row(outcome, found)[1:], strict=True):
        print(f"  {heading}: {cell}", file=sys.stderr)
    for text in broken(outcome, found):
        print(f"  BROKEN: {text}", file=sys.stderr, flush=True)
    return outcome, found


if __name__ == "__main__":
    main()
