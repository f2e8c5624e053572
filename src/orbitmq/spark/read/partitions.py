"""Divides the ranges of a batch among tasks.

A task costs Spark 25 to 40 ms however little it reads. Therefore small queues share a task and large ones are
split, which gives about the requested number of tasks, of about the same size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orbitmq.spark.pulling.ranges import QueueRange

# With fewer rows a second task costs more than it saves.
MIN_ROWS_PER_TASK = 2_000
# The number of tasks that the cluster runs at a time, for the process that plans batches and cannot ask
# Spark.
CORES_VARIABLE = "ORBITMQ_SPARK_CORES"
# Whether the session lets readers take over filters, for the same process.
FILTERS_VARIABLE = "ORBITMQ_SPARK_FILTERS"


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task's size.

    Attributes:
        tasks: the number of tasks in the option ``parallelism``, however few the rows are. ``None``: one for
            each core of the cluster, or fewer for few rows.
        rows, size_bytes: the most that one task reads; further rows go to further tasks.
    """

    tasks: int | None = None
    rows: int | None = None
    size_bytes: int | None = None


def task_count(rows: int, default: int, limits: TaskLimits, size_bytes: int = 0) -> int:
    """The number of tasks for ``rows`` rows of about ``size_bytes`` in all.

    If the limits require more tasks than run at a time, their number is rounded up to whole rounds, unless
    ``limits.tasks`` is set.

    Args:
        default: the number of tasks that run at a time; few rows get fewer tasks.
    """
    count = limits.tasks or min(default, -(-rows // MIN_ROWS_PER_TASK))
    if limits.rows is not None:
        count = max(count, -(-rows // limits.rows))
    if limits.size_bytes is not None:
        count = max(count, -(-size_bytes // limits.size_bytes))
    if limits.tasks is None and count > default:
        # Three equal tasks on two cores would leave one core idle half of the time.
        count = -(-count // default) * default
    return max(1, min(count, rows))


def plan(ranges: Iterable[QueueRange], tasks: int) -> list[list[QueueRange]]:
    """Divide ``ranges`` among at most ``tasks`` tasks, evenly by rows; ranges are cut where needed.

    The same input gives the same plan, and the ranges of a task are in the order of their queues: a replayed
    batch reads the same rows in the same tasks, which a sink's message ids rely on.

    Args:
        ranges: the ranges to read; empty ones are left out.
        tasks: the most tasks, at least 1.
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
            # The first row of the next task, counted over all ranges.
            border = -(-(task + 1) * total // count)
            high = min(item.high, low + border - before)
            plans[task].append(QueueRange(item.queue, low, high))
            before += high - low
            low = high
    return [entries for entries in plans if entries]
