"""The figures of Spark with OrbitMQ beside Spark with Kafka."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import spark_waits
from benchmarks.pages.records import number, record, spread, table
from benchmarks.spark_cases import CASES, DURABLE_CASES, SMALL_CASES, WAITS, Case

SIDES = ("OrbitMQ", "Kafka 4.0.0")
FRONT = (
    ("batch read, rows of 1 KiB", "default"),
    ("stream, 500,000 rows a trigger", "stream"),
    ("written to a topic", "sink"),
    ("the same, exactly once; Kafka tuned, at least once", "sink-exact"),
)


def _runs(key: str, side: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = record("spark")["entries"].get(key, {"sides": {}})["sides"].get(side, [])
    return found


def _rates(key: str, side: str) -> str:
    runs = _runs(key, side)
    return f"{spread([run['rows'] / run['seconds'] for run in runs])} rows/s" if runs else "-"


def _cores(key: str, side: str) -> str:
    runs = _runs(key, side)
    if not runs:
        return ""
    middle = statistics.median((run["spark_s"] + run["broker_s"]) / run["rows"] * 1e6 for run in runs)
    return f"; {number(middle)} s"


def _memory(key: str, side: str) -> str:
    """Peak memory of Spark's processes, the median of the runs."""
    runs = _runs(key, side)
    return f"; {statistics.median(run['rss_mb'] for run in runs):,.0f} MB" if runs else ""


def readme() -> str:
    """README's table of the four main cases."""
    rows = [[what, *(_rates(key, side).removesuffix(" rows/s") for side in SIDES)] for what, key in FRONT]
    return table(["Spark, rows/s: median (least to most)", *SIDES], rows)


def _case(case: Case) -> list[str]:
    aims = [
        f"{case.rate:,} rows/s" if case.rate else "",
        f"{case.cores:g} s" if case.cores else "",
        f"{case.memory_mb:,} MB" if case.memory_mb else "",
    ]
    when = record("spark")["entries"][case.key]["taken"][:10]
    cells = [
        _rates(case.key, side) + _cores(case.key, side) + (_memory(case.key, side) if case.memory_mb else "")
        for side in SIDES
    ]
    return [case.title, *cells, ", ".join(filter(None, aims)), when]


def cases() -> str:
    """The tables of all cases of the record."""
    entries = record("spark")["entries"]
    parts = []
    for rows_of in (CASES, SMALL_CASES, DURABLE_CASES):
        measured = [case for case in rows_of if case.key in entries]
        title = entries[measured[0].key]["rows"] + (", SYNC_FLUSH" if rows_of is DURABLE_CASES else "")
        headings = [title, *SIDES, "goal", "taken"]
        parts.append(table(headings, [_case(case) for case in measured]))
    waits = [
        [
            wait.title,
            *(spark_waits.text(wait.key, entries[wait.key]["sides"][side]) for side in SIDES),
            wait.aim,
            entries[wait.key]["taken"][:10],
        ]
        for wait in WAITS
        if wait.key in entries
    ]
    parts.append(table(["waiting", *SIDES, "goal", "taken"], waits))
    return "\n\n".join(parts)


BLOCKS: dict[str, Callable[[], str]] = {"readme-spark": readme, "spark": cases}
