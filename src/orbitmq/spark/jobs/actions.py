"""Running a Spark action with its progress told and its errors as one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from orbitmq.runtime.side_by_side import watched
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.report import TELL_EVERY_S, Tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def act(spark: SparkSession, what: str, work: Callable[[], T], tell: Tell) -> T:
    """What ``work`` returns; meanwhile ``tell`` hears every two seconds how many tasks are done.

    Raises:
        JobError: Spark failed.
    """
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total = sum(stage.numTasks for stage in stages if stage is not None)
        if total:
            tell(f"{what}: {done} of {total} tasks")

    with explained():
        return watched(work, look, TELL_EVERY_S)
