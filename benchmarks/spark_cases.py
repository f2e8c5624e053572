"""The cases of `make bench-spark`: queries, the numbers of their rows, their goals, and their repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.spark_rows import Rows

KIB = Rows(3_000_000, 1024)
SMALL = Rows(10_000_000, 128)
SHORT_KIB = Rows(200_000, 1024)
SINK_ROWS, SHORT_SINK_ROWS = 1_000_000, 300_000


@dataclass(frozen=True)
class Case:
    """One query.

    Attributes:
        key: the case's name in the record and on the command line.
        query: the name of the function in `spark_session`.
        rate, cores, memory_mb: the goals in rows/s, core-seconds per million rows and memory; 0 for none.
        peer: whether the other system supports it.
        rows: number of rows that the query generates; 0 if it reads a topic.
        writes: whether it stores its rows, in a topic or in files.
        warmups, repeats: the most warm-up runs, and the number of measured runs.
    """

    title: str
    key: str
    query: str
    rate: int = 0
    cores: float = 0.0
    memory_mb: int = 0
    peer: bool = True
    rows: int = 0
    writes: bool = False
    warmups: int = 4
    repeats: int = 5


def _sink(title: str, key: str, query: str, rate: int = 0, **more: Any) -> Case:
    return Case(title, key, query, rate, rows=SINK_ROWS, writes=True, warmups=2, **more)


CASES = (
    Case("default columns -> noop", "default", "default", 700_000, 2.4),
    Case("the floor: such batches from memory", "floor", "floor", peer=False, warmups=3),
    Case("the same rows from Parquet -> noop", "parquet", "parquet", peer=False, warmups=3),
    Case("with properties / headers", "wide", "wide", 500_000, 4.0),
    Case("the floor of that", "floor-wide", "floor_wide", peer=False, warmups=3),
    Case("count", "count", "count", warmups=3, repeats=3),
    Case("count, columns=queue_offset", "count-pruned", "count_pruned", 900_000, peer=False),
    Case("sum(length(body))", "length", "length", warmups=3, repeats=3),
    Case("sum(body_size), columns=body_size", "length-pruned", "length_pruned", 900_000, peer=False),
    Case("stream, 500,000 a trigger -> noop", "stream", "stream", 500_000, 3.0),
    Case(
        "archive to Parquet zstd, batch",
        "archive",
        "archive",
        350_000,
        5.0,
        1024,
        writes=True,
        warmups=2,
        repeats=3,
    ),
    Case(
        "archive, stream of 500,000 a trigger",
        "archive-stream",
        "archive_stream",
        350_000,
        5.0,
        1024,
        writes=True,
        warmups=2,
        repeats=3,
    ),
    Case(
        "ours through Spark's own Parquet writer",
        "spark-writer",
        "spark_writer",
        peer=False,
        writes=True,
        warmups=2,
        repeats=3,
    ),
    _sink("sink, at least once / Kafka's defaults", "sink", "sink", 350_000),
    _sink("sink, exactly once / Kafka tuned, at least once", "sink-exact", "sink_exact", 233_000),
    Case(
        "the floor: its rows to a writer that discards them",
        "sink-floor",
        "sink_floor",
        peer=False,
        rows=SINK_ROWS,
        warmups=3,
    ),
    Case("its rows -> noop", "sink-rows", "sink_rows", peer=False, rows=SINK_ROWS, warmups=3),
)
# Cases with brokers that have their default, SYNC_FLUSH. In the other cases brokers answer from the page
# cache, like Kafka's.
DURABLE_CASES = (
    _sink("sink, at least once", "sink-durable", "sink", peer=False, repeats=3),
    _sink("sink, exactly once", "sink-exact-durable", "sink_exact", peer=False, repeats=3),
)
SMALL_CASES = (
    Case("default columns -> noop", "128-default", "default", 1_500_000),
    Case("with properties / headers", "128-wide", "wide", 1_000_000),
    Case("the floor: such batches from memory", "128-floor", "floor", peer=False, warmups=3),
)
APACHE_ROWS = Rows(500_000, 1024)
APACHE_CASES = (
    Case("default columns -> noop", "apache-default", "default", warmups=3, repeats=3),
    Case("stream, 500,000 a trigger -> noop", "apache-stream", "stream", warmups=2, repeats=3),
)


@dataclass(frozen=True)
class Wait:
    """A wait, measured in milliseconds or seconds.

    Attributes:
        aim: the goal in words; "not above" refers to Spark's connector for Kafka.
    """

    title: str
    key: str
    aim: str
    repeats: int = 3


# With Kafka, a limit of one row per trigger gives one row of each partition; this many triggers run.
TRIGGER_ROWS = {f"trigger-{queues}": Rows(130 * queues, 1024, queues, "trigger") for queues in (1, 8, 64)}
WAITS = (
    Wait("trigger of 1 row, 1 queue", "trigger-1", "<= 115 ms, <= 179 CPU-ms"),
    Wait("trigger of 1 row, 8 queues", "trigger-8", "<= 115 ms, <= 179 CPU-ms"),
    Wait("trigger of 1 row, 64 queues", "trigger-64", "<= 130 ms, <= 179 CPU-ms"),
    Wait("sent to seen at 1,000/s", "end-to-end", "not above Kafka's"),
    Wait("start of a session to its first row", "start", "not above Kafka's"),
    Wait("batch read of a broker that is down, to its error", "down", "<= 10 s with the address", 1),
)
SHORT_KEYS = (
    "default", "floor", "wide", "sink", "sink-exact", "sink-floor", "count-pruned", "parquet", "trigger-8",
)  # fmt: skip


def known_keys() -> tuple[str, ...]:
    """All keys that ``--cases`` accepts."""
    return tuple(case.key for case in (*CASES, *DURABLE_CASES, *SMALL_CASES, *APACHE_CASES, *WAITS))
