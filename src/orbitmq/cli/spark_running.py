"""How ``orbitmq spark`` starts Spark, and shows the reports of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from cyclopts import Parameter

from orbitmq.cli.failures import DEBUG
from orbitmq.cli.output import Tell, progress
from orbitmq.cli.times import Between
from orbitmq.cli.view import Table, View

if TYPE_CHECKING:
    from orbitmq.spark.jobs.frames import Span
    from orbitmq.spark.jobs.report import Report

STDERR = 2


@Parameter(name="*")
@dataclass(frozen=True)
class Spark:
    """Options of the commands that start Spark.

    Attributes:
        master: Where Spark runs: local[*], local[2], spark://host:7077, yarn, k8s://...
    """

    master: str = "local[*]"


def span(between: Between) -> Span:
    """The times of ``--from`` and ``--to`` in the form of the jobs' options."""
    from orbitmq.spark.jobs.frames import Span

    return Span(*between.times_ms)


@contextmanager
def silenced() -> Iterator[TextIO]:
    """Discard standard error in the block: the output of Spark's JVM and its workers is of no use to the
    user.

    Yields a stream on the original standard error. With ``ORBITMQ_DEBUG=1`` nothing is discarded.
    """
    sys.stderr.flush()
    with open(os.dup(STDERR), "w", encoding="utf-8") as kept, open(os.devnull, "w") as nowhere:
        if os.environ.get(DEBUG) != "1":
            os.dup2(nowhere.fileno(), STDERR)
        try:
            yield kept
        finally:
            os.dup2(kept.fileno(), STDERR)


def run_job(name: str, job: Callable[[Any, Tell], Report], spark: Spark) -> View:
    """Run a job in a Spark session of its own; returns its report."""
    from orbitmq.spark.jobs.failures import explained
    from orbitmq.spark.session import session

    with silenced() as out, progress(out) as tell:
        tell(f"starting Spark at {spark.master}")
        with explained():
            made = session(f"orbitmq {name}", master=spark.master)
        try:
            report = job(made, tell)
        finally:
            made.stop()
    return view_of(report)


def view_of(report: Report) -> View:
    """The view of a report; its last line states whether all is well."""
    found = report.to_json()
    columns = dict(zip(report.headings, report.keys, strict=True))
    return View(
        found,
        [Table("rows", found["rows"], columns, optional=True)],
        lines=[report.summary],
        failed=not report.ok,
    )
