"""How the ranges of a batch are shared among tasks.

A task costs Spark 25 to 40 ms however little it reads, so small queues are merged and hot ones are split
until there are about as many tasks as asked for, of about the same size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue

# Below this a second task costs more than it saves.
MIN_ROWS_PER_TASK = 2_000
# How many tasks the cluster runs at a time, for the process that plans batches and cannot ask Spark.
CORES_VARIABLE = "ORBITMQ_SPARK_CORES"


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The queue offsets ``[low, high)`` of one queue."""

    queue: MessageQueue
    low: int
    high: int

    @property
    def rows(self) -> int:
        return self.high - self.low


def task_count(rows: int, default: int, asked: int | None) -> int:
    """In how many tasks to read ``rows`` rows.

    Args:
        default: how many tasks run at a time; fewer are made of few rows.
        asked: the option ``parallelism``, which counts however few the rows are.
    """
    if asked is not None:
        return max(1, min(asked, rows))
    return max(1, min(default, -(-rows // MIN_ROWS_PER_TASK)))


def plan(ranges: Iterable[QueueRange], tasks: int) -> list[list[QueueRange]]:
    """Share ``ranges`` among at most ``tasks`` tasks, evenly by rows, cutting ranges where needed.

    The same input gives the same plan, and the ranges of a task are in the order of their queues: a replayed
    batch reads the same rows in the same tasks, which a sink's message ids rely on.

    Args:
        ranges: what to read; empty ranges are left out.
        tasks: how many tasks there are for it, at least 1.
    """
    todo = sorted((r for r in ranges if r.rows > 0), key=lambda r: (r.queue, r.low))
    total = sum(r.rows for r in todo)
    if not total:
        return []
    count = max(1, min(tasks, total))
    plans: list[list[QueueRange]] = [[] for _ in range(count)]
    before = 0
    for item in todo:
        low = item.low
        while low < item.high:
            task = before * count // total
            # The first row that belongs to the next task, counted over all ranges.
            border = -(-(task + 1) * total // count)
            high = min(item.high, low + border - before)
            plans[task].append(QueueRange(item.queue, low, high))
            before += high - low
            low = high
    return [entries for entries in plans if entries]
