"""The writer of Spark's sink in this tree beside another tree's: the writer's and the broker's cost per row.

    python -m benchmarks.sink_paired ../before [--rounds 6] [--rows 200000] [--body 1024] [--exactly-once]

As in `paired`, both brokers run, one is paused while the other is measured, the order changes from round to
round, and only the ratios within a round are compared. Two writers send the rows. The other tree must be
compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import QUEUES
from benchmarks.page_cache import PageCache
from benchmarks.remoting import Client
from benchmarks.servers import ROOT, Ours

TOPIC = "sink"
WRITERS = 2
# The stored size of a message in addition to its body, with index and consume queue.
MORE_BYTES = 300


class Side:
    """A tree with a name server and a broker, which is paused unless it is measured."""

    def __init__(self, tree: Path, folder: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._env = {**os.environ, "PYTHONPATH": str(tree / "src")}
        maker = Ours(env={"PYTHONPATH": str(tree / "src")})
        self._page_cache = PageCache(folder.parent)
        self._name_server = maker.name_server(folder)
        self._broker = maker.broker(folder, self._name_server.address, flushDiskType="ASYNC_FLUSH")
        with Client(self._broker.port, timeout_s=30) as client:
            client.create_topic(TOPIC, QUEUES)
        self._broker.pause()

    def once(self) -> tuple[float, float]:
        """CPU of the broker and of the writers, in microseconds per row."""
        rows, body = self._options.rows, self._options.body
        delivery = "exactly-once" if self._options.exactly_once else "at-least-once"
        self._broker.resume()
        command = [sys.executable, "-m", "benchmarks.sink_writer", self._name_server.address, TOPIC]
        command += [delivery, str(rows // WRITERS), str(body)]
        writers = [
            subprocess.Popen(
                [*command, str(number)],
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        self._page_cache.touch(rows * (body + MORE_BYTES) * 13 // 10 >> 20)
        before = self._broker.cpu_s()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        told = [json.loads(writer.communicate()[0]) for writer in writers]
        broker_s = self._broker.cpu_s() - before
        self._broker.pause()
        return broker_s / rows * 1e6, sum(one["cpu_s"] for one in told) / rows * 1e6

    def close(self) -> None:
        """Stop both servers."""
        for server in (self._broker, self._name_server):
            server.resume()
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.sink_paired", description=__doc__)
    parser.add_argument("other", type=Path, help="the other working tree")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=200_000, help="of one run, a multiple of 20,000")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--exactly-once", action="store_true")
    options = parser.parse_args()
    trees = (ROOT, options.other.resolve())
    with tempfile.TemporaryDirectory(prefix="orbitmq-sink-") as folder:
        sides: list[Side] = []
        try:
            for name, tree in zip(("here", "other"), trees, strict=True):
                (Path(folder) / name).mkdir()
                sides.append(Side(tree, Path(folder) / name, options))
            runs: list[list[tuple[float, float]]] = [[], []]
            for number in range(-1, options.rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    run = sides[which].once()
                    if number >= 0:  # the first run is the warm-up
                        runs[which].append(run)
        finally:
            for side in sides:
                side.close()
    for place, part in enumerate(("broker", "writers")):
        ours, theirs = ([run[place] for run in side] for side in runs)
        ratios = sorted(a / b - 1 for a, b in zip(ours, theirs, strict=True))
        print(
            f"{part}: {statistics.median(ours):.2f} us a row, other {statistics.median(theirs):.2f}, "
            f"difference {statistics.median(ratios):+.1%} ({ratios[0]:+.1%} to {ratios[-1]:+.1%})"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
