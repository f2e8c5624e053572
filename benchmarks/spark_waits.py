"""The waits of Spark's users: for a trigger, a message, the first row, an error."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.processes import machine_cpu_s, session_cpu_s
from benchmarks.spark_cases import TRIGGER_ROWS
from benchmarks.spark_sides import Side, Spark, System

WARM_TRIGGERS, TRIGGERS = 30, 60
PER_SECOND = 1_000
WARM_S, MEASURED_S = 8, 15
ARRIVALS = "arrivals"

# The results of one run, by name.
Found = dict[str, float]


class _Cost:
    """CPU seconds and duration of a block."""

    spark_s = broker_s = wall_s = foreign = 0.0


@contextmanager
def _cost(side: Side) -> Iterator[_Cost]:
    cost = _Cost()
    session = side.spark.session
    before = session_cpu_s(session), side.broker.cpu_s(), machine_cpu_s(), time.monotonic()
    yield cost
    after = session_cpu_s(session), side.broker.cpu_s(), machine_cpu_s(), time.monotonic()
    cost.spark_s, cost.broker_s, all_s, cost.wall_s = (b - a for a, b in zip(before, after, strict=True))
    others = max(0.0, all_s - cost.spark_s - cost.broker_s)
    cost.foreign = others / cost.wall_s / (os.cpu_count() or 1)


def triggers(system: System, key: str) -> Found:
    """Measure the triggers of a stream of one row per trigger."""
    side, topic = system.side, TRIGGER_ROWS[key].topic
    side.spark.order("start_triggers", topic=topic, count=WARM_TRIGGERS)
    with _cost(side) as cost:
        answer = side.spark.order("more_triggers", count=TRIGGERS)
    side.spark.order("stop")
    side.spark.order("tidy")
    taken = answer["triggers"]
    return {
        "p50_ms": statistics.median(taken),
        "worst_ms": max(taken),
        "cpu_ms": (cost.spark_s + cost.broker_s) / cost.wall_s * statistics.median(taken),
        "rows": answer["rows"] / len(taken),
        "foreign": cost.foreign,
    }


def arrivals(system: System, _key: str) -> Found:
    """Measure the time from a row's send until a batch has it, at a steady rate."""
    side = system.side
    side.spark.order("start_arrivals", topic=ARRIVALS)
    sending = system.send_steadily(ARRIVALS, PER_SECOND, WARM_S + MEASURED_S + 10)
    try:
        time.sleep(WARM_S)
        with _cost(side) as cost:
            answer = side.spark.order("more_arrivals", count=MEASURED_S)
    finally:
        sending.kill()
        sending.wait()
    side.spark.order("stop")
    side.spark.order("tidy")
    ages = answer["ages"]
    return {
        "p50_ms": ages[len(ages) // 2],
        "p99_ms": ages[len(ages) * 99 // 100],
        "cores": (cost.spark_s + cost.broker_s) / cost.wall_s,
        "per_second": len(ages) / cost.wall_s,
        "rows": len(ages) / answer["batches"],
    }


def first_row(system: System, _key: str) -> Found:
    """Measure the start of a process and a session, up to the first row of a topic."""
    side = system.side
    spark = Spark(side.command, side.log)
    try:
        spark.order("first_row", topic=TRIGGER_ROWS["trigger-8"].topic)
        return {"seconds": time.monotonic() - spark.begun, "session_s": spark.started_s}
    finally:
        spark.close()


def refused(system: System, _key: str) -> Found:
    """Measure a batch read from a killed broker. Afterwards nothing can be measured with the system."""
    side = system.side
    side.broker.kill()
    answer = side.spark.order("refused", topic=TRIGGER_ROWS["trigger-8"].topic)
    print(f"{side.title}: {answer['seconds']:.1f} s: {' '.join(answer['error'].split())[-600:]}", flush=True)
    named = any(address in answer["error"] for address in (side.source, side.broker.address))
    return {"seconds": answer["seconds"], "names_address": float(named)}


MEASURES: dict[str, Callable[[System, str], Found]] = {
    **dict.fromkeys(TRIGGER_ROWS, triggers),
    "end-to-end": arrivals,
    "start": first_row,
    "down": refused,
}


def text(key: str, runs: list[Found]) -> str:
    """The medians of some runs in words."""

    def median(name: str) -> float:
        return statistics.median(run[name] for run in runs)

    def span(name: str) -> str:
        values = [run[name] for run in runs]
        return f"{min(values):,.0f}-{max(values):,.0f}"

    if key in TRIGGER_ROWS:
        return (
            f"{median('p50_ms'):,.0f} ms ({span('p50_ms')}), {median('cpu_ms'):,.0f} CPU-ms, "
            f"{median('rows'):.0f} rows"
        )
    if key == "end-to-end":
        return (
            f"p50 {median('p50_ms'):,.0f} ms ({span('p50_ms')}), p99 {median('p99_ms'):,.0f} "
            f"({span('p99_ms')}); {median('cores'):.2f} cores"
        )
    if key == "start":
        return f"{median('seconds'):.1f} s, {median('session_s'):.1f} of them the session"
    named = "with" if median("names_address") else "without"
    return f"{median('seconds'):.1f} s, {named} the address"
