"""The cost of a flush to blocks that are new, that were filled with zeros shortly before, or that are old.

    python -m benchmarks.flush_blocks [--rounds 5]

One thread appends batches of three sizes to a preallocated file, each with `pwrite` and `fdatasync`; the
three kinds of blocks take turns. Decision 10 relies on these figures. No broker is involved.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Generator, microseconds, table

BATCHES = (340, 11_000, 54_000)
"""One record with a body of 128 bytes, batches of 32 records, batches of 160 records."""
KINDS = {"new": 0, "256 KiB of zeros ahead": 256 * 1024, "old": -1}


def rows_of(batch: int, runs: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    def median(kind: str, pick: str) -> float:
        return float(statistics.median(run["latency_us"][pick] for run in runs[kind]))

    def cpu(kind: str) -> float:
        return float(statistics.median(run["generator_cpu_us"] for run in runs[kind]))

    return [
        [
            f"{batch:,} B, {kind}",
            microseconds(median(kind, "p50")),
            f"{median('new', 'p50') / median(kind, 'p50'):.2f}",
            microseconds(median(kind, "p99")),
            microseconds(cpu(kind)),
        ]
        for kind in KINDS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.flush_blocks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of one second for each line")
    parser.add_argument("--folder", type=Path, default=None, help="where the file stands (default: /tmp)")
    options = parser.parse_args()
    generator = Generator({min(os.sched_getaffinity(0))})
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="orbitmq-flush-", dir=options.folder) as folder:
        for batch in BATCHES:
            runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
            for _ in range(options.rounds):
                for kind, ahead in KINDS.items():
                    file = Path(folder) / "blocks"
                    run = generator.run("sync", file=file, body=batch, ahead=ahead, duration=1)
                    runs[kind].append(run)
            rows += rows_of(batch, runs)
            print(f"  {batch:,} B: {options.rounds} x 1 s for each kind of blocks")
    print(table(["batch, blocks", "p50", "new / this", "p99", "CPU"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
