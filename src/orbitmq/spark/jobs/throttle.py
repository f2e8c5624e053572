"""Limits the rate of a write in messages a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from orbitmq.runtime.worker import this_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECES_PER_SECOND = 10
CATCH_UP_S = 1.0
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


def throttled(frame: DataFrame, rate: int) -> DataFrame:
    """The rows of ``frame`` from one task, at the given rate; see :func:`written_slowly`."""
    return frame.coalesce(1).mapInArrow(_at_rate(rate), frame.schema)


@contextmanager
def written_slowly(spark: SparkSession, rate: int | None, options: dict[str, str]) -> Iterator[None]:
    """Make Spark and the writer forward rows at once; otherwise they collect thousands.

    Args:
        rate: messages a second; ``None`` changes nothing.
        options: the writer's options, which are changed.
    """
    if rate is None:
        yield
        return
    options |= {"pipeline": "1", "batchBytes": "64k"}
    spark.conf.set(ROWS_AT_ONCE, max(1, rate // PIECES_PER_SECOND))
    try:
        yield
    finally:
        spark.conf.unset(ROWS_AT_ONCE)


def _at_rate(rate: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = this_worker()
        step = max(1, rate // PIECES_PER_SECOND)
        due = worker.clock.monotonic()
        for batch in batches:
            for low in range(0, batch.num_rows, step):
                piece = batch.slice(low, step)
                now = worker.clock.monotonic()
                worker.pause(max(0.0, due - now))
                yield piece
                due = max(due, now - CATCH_UP_S) + piece.num_rows / rate

    return work
