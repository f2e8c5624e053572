"""How ``orbitmq spark`` starts Spark, tells progress and shows reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from cyclopts import Parameter

from orbitmq.cli.app import Common
from orbitmq.cli.failures import DEBUG, EXIT_FAILED, EXIT_OK
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.times import Between

if TYPE_CHECKING:
    from orbitmq.spark.jobs.frames import Span
    from orbitmq.spark.jobs.report import Report

Tell = Callable[[str], None]

STDERR = 2


@Parameter(name="*")
@dataclass(frozen=True)
class Spark:
    """Options of the commands that start Spark.

    Parameters
    ----------
    master
        Where Spark runs: local[*], local[2], spark://host:7077, yarn, k8s://...
    """

    master: str = "local[*]"


def flag() -> Parameter:
    """An option without a value that has no opposite."""
    return Parameter(negative=())


def named(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def span(between: Between) -> Span:
    """The times of ``--from`` and ``--to`` as jobs take them."""
    from orbitmq.spark.jobs.frames import Span

    return Span(*between.times_ms)


@contextmanager
def teller(out: TextIO | None = None) -> Iterator[Tell]:
    """Prints progress to ``out`` (standard error): on a terminal over and over on one line."""
    stream = out or sys.stderr
    over = stream.isatty()

    def tell(line: str) -> None:
        print(f"\r\x1b[K{line}" if over else line, end="" if over else "\n", file=stream, flush=True)

    try:
        yield tell
    finally:
        if over:
            print("\r\x1b[K", end="", file=stream, flush=True)


@contextmanager
def silenced() -> Iterator[TextIO]:
    """Standard error to nowhere: what Spark's JVM and its workers print is no concern of the user's.

    Gives the standard error that was. With ``ORBITMQ_DEBUG=1`` nothing is silenced.
    """
    sys.stderr.flush()
    with open(os.dup(STDERR), "w", encoding="utf-8") as kept, open(os.devnull, "w") as nowhere:
        if os.environ.get(DEBUG) != "1":
            os.dup2(nowhere.fileno(), STDERR)
        try:
            yield kept
        finally:
            os.dup2(kept.fileno(), STDERR)


def run_job(name: str, job: Callable[[Any, Tell], Report], spark: Spark, common: Common) -> int:
    """Run a job in a session of its own and show its report."""
    from orbitmq.spark.jobs.failures import explained
    from orbitmq.spark.session import session

    with silenced() as out, teller(out) as tell:
        tell(f"starting Spark at {spark.master}")
        with explained():
            made = session(f"orbitmq {name}", master=spark.master)
        try:
            report = job(made, tell)
        finally:
            made.stop()
    return show(report, common)


def show(report: Report, common: Common) -> int:
    """Print a report; the last line says whether all is well."""
    if common.json:
        print_json(report.to_json())
    else:
        if report.rows:
            print_table(report.headings, report.rows)
        print(report.summary)
    return EXIT_OK if report.good else EXIT_FAILED
