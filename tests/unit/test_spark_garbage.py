"""The objects that the garbage collector of a Spark worker has to visit."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

WORKER = """
import gc
from pyspark import TaskContext
from orbitmq.spark.garbage import spare_modules

spare_modules()
assert gc.get_freeze_count() == 0, "outside of a task nothing changes"
TaskContext._getOrCreate()  # as Spark's worker does when a task begins
spare_modules()
modules = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
spare_modules()
print(modules, gc.get_freeze_count())
"""


def test_the_modules_of_a_worker_are_taken_out_once() -> None:
    """This runs in a process of its own, since frozen objects stay frozen."""
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules, later = map(int, done.stdout.split())
    assert modules > 10_000
    assert later <= modules, "what the next tasks make is none of it"
