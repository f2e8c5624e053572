"""The job ``trace``: message trace as a table, and latencies by topic, broker and group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sf

from orbitmq.client.observe.trace_records import PUB, SUB_AFTER, SUB_BEFORE, TraceRecord, records
from orbitmq.message.reserved import TRACE_TOPIC
from orbitmq.spark.jobs.actions import act
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.frames import ALL, Span, archive_frame, is_archive, topic_frame
from orbitmq.spark.jobs.report import Report, Tell, counted, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {
    "at_ms": "bigint",
    "body_bytes": "int",
    "cost_ms": "bigint",
    "success": "boolean",
    "retries": "int",
}
SCHEMA = ", ".join(f"{name} {_SQL_TYPES.get(name, 'string')}" for name in TraceRecord._fields)
_ARROW_TYPES = {"bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "string": pa.string()}
_ARROW = pa.schema([(n, _ARROW_TYPES[_SQL_TYPES.get(n, "string")]) for n in TraceRecord._fields])

SENT, HANDLED, WAITED = "send", "handle", "wait"


def trace(
    spark: SparkSession,
    source: str = TRACE_TOPIC,
    name_servers: str = "127.0.0.1:9876",
    *,
    span: Span = ALL,
) -> DataFrame:
    """The trace records as a table, with the columns of :class:`TraceRecord`.

    Args:
        source: the trace topic, or the folder of an archive of it.
        span: when the records were stored.
    """
    if is_archive(source):
        frame = archive_frame(spark, source, span=span)
    else:
        frame = topic_frame(
            spark, [source], name_servers, span=span, options={"columns": "body,store_timestamp"}
        )
    with explained():
        return frame.select("body").mapInArrow(_parsed, SCHEMA)


def _parsed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [one._asdict() for body in batch.column(0).to_pylist() if body for one in records(body)]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def latencies(records: DataFrame) -> DataFrame:
    """Latencies in milliseconds: ``what``, topic, broker, group, messages, failed, p50, p99, slowest.

    ``send`` is how long a send took, ``handle`` how long a consumer worked on a message, ``wait`` the
    time from the begin of the send to the begin of the first delivery (by the clocks of the two clients).
    """
    pub = records.where(sf.col("kind") == PUB)
    stored = pub.groupBy("message_id").agg(
        sf.min("at_ms").alias("sent_ms"),
        sf.first("topic").alias("of_topic"),
        sf.first("broker").alias("at_broker"),
    )
    before = records.where((sf.col("kind") == SUB_BEFORE) & (sf.col("retries") == 0))
    groups = (
        records.where(sf.col("kind") == SUB_BEFORE)
        .groupBy("request_id", "message_id")
        .agg(sf.first("group").alias("of_group"))
    )
    # Java's clients say only in the first record of a delivery which group it was.
    after = records.where(sf.col("kind") == SUB_AFTER).join(groups, ["request_id", "message_id"], "left")
    after = after.withColumn("group", sf.coalesce("group", "of_group"))

    def delivered(frame: DataFrame, what: str) -> DataFrame:
        joined = frame.join(stored, "message_id", "left")
        cost = sf.col("cost_ms") if what == HANDLED else sf.col("at_ms") - sf.col("sent_ms")
        return joined.select(
            sf.lit(what).alias("what"),
            sf.col("of_topic").alias("topic"),
            sf.col("at_broker").alias("broker"),
            "group",
            cost.alias("ms"),
            sf.coalesce("success", sf.lit(True)).alias("success"),
        )

    sent = pub.select(
        sf.lit(SENT).alias("what"), "topic", "broker", "group", sf.col("cost_ms").alias("ms"), "success"
    )
    together = sent.unionAll(delivered(after, HANDLED)).unionAll(delivered(before, WAITED))
    return together.groupBy("what", "topic", "broker", "group").agg(
        sf.count(sf.lit(1)).alias("messages"),
        sf.count_if(~sf.col("success")).alias("failed"),
        sf.percentile("ms", sf.lit(0.5)).alias("p50"),
        sf.percentile("ms", sf.lit(0.99)).alias("p99"),
        sf.max("ms").alias("slowest"),
    )


def _shown(value: Any) -> Any:
    """As a report has it: times to a tenth of a millisecond."""
    if value is None:
        return "-"
    return round(value, 1) if isinstance(value, float) else value


def trace_report(
    spark: SparkSession,
    source: str = TRACE_TOPIC,
    name_servers: str = "127.0.0.1:9876",
    *,
    span: Span = ALL,
    tell: Tell = silent,
) -> Report:
    """Latencies by topic, broker and group, the slowest first."""
    frame = latencies(trace(spark, source, name_servers, span=span))
    rows = act(spark, "reading the trace", lambda: frame.orderBy("what", sf.desc("p99")).collect(), tell)
    report = Report("trace", headings=frame.columns)
    report.rows = [tuple(_shown(value) for value in row) for row in rows]
    count = sum(row["messages"] for row in rows)
    worst = max(
        (row for row in rows if row["what"] == SENT and row["p99"] is not None),
        key=lambda r: r["p99"],
        default=None,
    )
    report.facts = {"records": count}
    report.summary = f"{counted(count, 'record')} of {source}" + (
        f"; slowest sends: {worst['topic']} at {worst['broker']}, p99 {worst['p99']:.0f} ms" if worst else ""
    )
    return report
