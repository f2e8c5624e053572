"""Runs a Spark action, shows its progress, and turns its errors into one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from orbitmq.runtime.side_by_side import watched
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.report import TELL_EVERY_S, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def act(spark: SparkSession, what: str, work: Callable[[], T], progress: Progress) -> T:
    """The result of ``work``; meanwhile ``progress`` gets a line every two seconds with the number of tasks
    done.

    Raises:
        JobError: Spark failed.
    """
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total = sum(stage.numTasks for stage in stages if stage is not None)
        if total:
            progress(f"{what}: {done} of {total} tasks")

    with explained():
        return watched(work, look, TELL_EVERY_S)
