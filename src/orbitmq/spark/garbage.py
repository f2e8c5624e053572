"""Python's garbage collector in the worker processes of Spark."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_modules() -> None:
    """Freeze the objects that exist now, so that the garbage collector skips them; once in a worker process.

    A worker of Spark collects garbage after each task, before it takes the next one: that was 40 ms of CPU
    with PySpark and Arrow loaded. What is frozen is still freed as soon as nothing refers to it; only circles
    that were garbage already stay.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
