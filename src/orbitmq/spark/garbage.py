"""Python's garbage collector in the worker processes of Spark."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_modules() -> None:
    """Freeze the existing objects, so that the garbage collector skips them; works once per worker process.

    A Spark worker collects garbage after each task, before the next one, which costs 40 ms of CPU with
    PySpark and Arrow loaded. Frozen objects are still freed when their last reference ends; only reference
    cycles that are already garbage stay.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
