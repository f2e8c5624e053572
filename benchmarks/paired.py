"""This working tree beside another tree of OrbitMQ: measures the cost of a change, even on a machine with
other load.

    python -m benchmarks.paired ../before [--rounds 15] [--seconds 0.5] [--load 1x1 --load pull] [--sync]

Both brokers run; while one is measured the other one is paused (SIGSTOP), and the order changes from round to
round. Only the ratios within a round are compared: their median is printed with the quartiles. The other tree
must be compiled (``python setup.py build_ext --inplace`` there).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench, Case, Effort, Generator, table
from benchmarks.servers import Ours, stop_paused

CASES = {
    "1x1": Case(connections=1, window=1),
    "64x1": Case(connections=64, window=1),
    "16x16": Case(),
    "16x16-1k": Case(body=1024),
    "batch": Case(mode="batch", window=4),
    "batch-1k": Case(mode="batch", window=4, body=1024),
    "pull": Case(mode="pull", window=4),
    "pull-1k": Case(mode="pull", window=4, body=1024),
    # The reads of a Spark task.
    "pull-512k": Case(mode="pull", connections=1, window=8, body=1024, max_bytes=512 << 10),
    "sql": Case(mode="pull", window=4, sql=True),
}


class Side:
    """A tree with a name server and a broker, which is paused unless it is measured."""

    def __init__(
        self, tree: Path, folder: Path, bench: Bench, *, durable: bool, cpus: set[int] | None
    ) -> None:
        maker = Ours(env={"PYTHONPATH": str(tree / "src")})
        self._bench = bench
        self._name_server = maker.name_server(folder)
        flush = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        self._broker = maker.broker(folder, self._name_server.address, cpus=cpus, flushDiskType=flush)
        bench.prepare(self._broker)
        self._broker.pause()

    def once(self, case: Case) -> dict[str, Any]:
        """Run a load once."""
        self._broker.resume()
        run = self._bench.once(self._broker, case)
        self._broker.pause()
        return run

    def close(self) -> None:
        """Stop both servers."""
        stop_paused(self._broker, self._name_server)


def compare(sides: Sequence[Side], case: Case, rounds: int) -> list[str]:
    """A line of the table: this tree, the other tree, and their ratio."""
    runs: list[list[dict[str, Any]]] = [[], []]
    for number in range(rounds):
        pair = {which: sides[which].once(case) for which in ((0, 1) if number % 2 else (1, 0))}
        # A run in which the broker got no CPU time is not usable.
        if all(run["ops"] for run in pair.values()):
            for which in (0, 1):
                runs[which].append(pair[which])
    cells = [case.title]
    for key in ("server_cpu_us", "ops_per_second"):
        ours, theirs = ([float(run[key]) for run in side] for side in runs)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cells += [f"{statistics.median(ours):,.2f}", f"{statistics.median(theirs):,.2f}"]
        cells.append(f"{middle - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})")
    latencies = [[float(run["latency_us"]["p50"]) for run in side] for side in runs]
    return [*cells, *(f"{statistics.median(side):,.0f}" for side in latencies)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.paired", description=__doc__)
    parser.add_argument("other", type=Path, help="the other working tree")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one run")
    parser.add_argument("--load", action="append", choices=CASES, help="only this one; may be repeated")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--folder", type=Path, default=None, help="where the brokers keep their data")
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    server_cpus = set(available[:1]) if len(available) > 1 else None
    bench = Bench(Generator(set(available[1:]) or None), Effort(0.1, options.seconds, 1))
    headings = ["load", "CPU us", "other", "difference", "ops/s", "other", "difference", "p50 us", "other"]
    trees = (Path(__file__).resolve().parent.parent, options.other.resolve())
    with tempfile.TemporaryDirectory(prefix="orbitmq-paired-", dir=options.folder) as folder:
        sides: list[Side] = []
        try:
            for name, tree in zip(("here", "other"), trees, strict=True):
                place = Path(folder) / name
                sides.append(Side(tree, place, bench, durable=options.sync, cpus=server_cpus))
            rows = []
            for name in options.load or CASES:
                case = CASES[name]
                if options.sync and case.mode != "pull":
                    case = Case(case.mode, case.connections, case.window, case.body, durable=True)
                rows.append(compare(sides, case, options.rounds))
                print(" | ".join(rows[-1]), flush=True)
            print(table(headings, rows))
        finally:
            for side in sides:
                side.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
