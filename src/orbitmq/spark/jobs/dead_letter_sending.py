"""Sends dead letters again from Spark, for brokers without redrives (Apache's).

Like OrbitMQ's brokers, Spark marks each message with a property that names its dead letter, so that a later
run finds it in the topic. The property also holds the dead letter's broker, since Spark may send to another
broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as sf

from orbitmq.errors import TopicNotFoundError
from orbitmq.message import property_names
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.jobs.actions import act
from orbitmq.spark.jobs.failures import explained
from orbitmq.spark.jobs.frames import Span, topic_frame
from orbitmq.spark.jobs.kept_properties import kept_properties
from orbitmq.spark.jobs.report import Progress, Report
from orbitmq.spark.jobs.throttle import throttled, written_slowly
from orbitmq.spark.option_values import addresses
from orbitmq.spark.options import AT_LEAST_ONCE
from orbitmq.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REQUEST_TIMEOUT_MS = 10_000
# The largest clock difference between brokers for which the search allows.
CLOCK_MARGIN_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """The options of :func:`~orbitmq.spark.jobs.dead_letter_tables.redrive`, which documents them."""

    group: str
    to_topic: str | None = None
    rate: int | None = None
    limit: int | None = None
    max_redrives: int = 3
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Counts:
    chosen: int
    too_often: int
    without_topic: int
    oldest_ms: int


def send_again(
    spark: SparkSession, letters: DataFrame, redriving: RedriveOptions, name_servers: str, progress: Progress
) -> Report:
    """Send the chosen dead letters again, each to its topic, without those that an earlier run has sent.

    Two runs for one group at the same time may send a message twice; two consecutive runs do not.

    Args:
        letters: rows of :func:`~orbitmq.spark.jobs.dead_letter_tables.dead_letters`.
    """
    with explained():
        target = sf.lit(redriving.to_topic) if redriving.to_topic else sf.col("origin_topic")
        letters = letters.withColumn("_target", target).withColumn("_mark", _mark(redriving.group))
        topics = [
            row[0] for row in act(spark, "topics", letters.select("_target").distinct().collect, progress)
        ]
        there = _existing(topics, name_servers)
        counts = _counted(spark, letters, there, redriving, progress)
        rest = letters.where(
            sf.col("_target").isin(there) & (sf.col("redrives") < sf.lit(redriving.max_redrives))
        )
        if there:
            span = Span(max(1, counts.oldest_ms - CLOCK_MARGIN_MS))
            options = {"columns": "properties,store_timestamp"}
            stored = topic_frame(spark, there, name_servers, span=span, options=options)
            mark = sf.col("properties")[property_names.DLQ_REDRIVE_ID]
            sent = stored.select(mark.alias("_mark")).where("_mark is not null")
            rest = rest.join(sent, "_mark", "left_anti")
        if redriving.limit is not None:
            rest = rest.limit(redriving.limit)
        done = (
            _count(spark, rest, progress)
            if redriving.dry_run
            else _send(spark, rest, redriving, name_servers, progress)
        )
    report = Report("redrive")
    report.facts = {
        "group": redriving.group, "chosen": counts.chosen, "sent": done, "too_often": counts.too_often,
        "without_topic": counts.without_topic, "dry_run": redriving.dry_run,
    }  # fmt: skip
    chosen = counted(counts.chosen, "chosen dead letter")
    left = counts.chosen - done
    report.summary = (
        f"{done:,} of {chosen} would be sent again; nothing was sent"
        if redriving.dry_run
        else f"{done:,} of {chosen} sent again; {left:,} stay (sent before, too often or without topic)"
    )
    return report


def _mark(group: str) -> Column:
    return sf.concat(sf.lit(f"{group}@"), "broker", sf.lit("/"), sf.col("queue_offset").cast("string"))


def _existing(topics: list[str | None], name_servers: str) -> list[str]:
    brokers = Brokers(addresses(name_servers), REQUEST_TIMEOUT_MS)
    found = []
    for topic in sorted({topic for topic in topics if topic}):
        try:
            if brokers.route(topic).writable:
                found.append(topic)
        except TopicNotFoundError:
            continue
    return found


def _counted(
    spark: SparkSession, letters: DataFrame, there: list[str], redriving: RedriveOptions, progress: Progress
) -> _Counts:
    often = sf.col("redrives") >= sf.lit(redriving.max_redrives)
    missing = ~sf.coalesce(sf.col("_target").isin(there), sf.lit(False))
    (row,) = act(
        spark,
        "counting",
        letters.agg(
            sf.count(sf.lit(1)),
            sf.count_if(often),
            sf.count_if(missing & ~often),
            sf.unix_millis(sf.min("dead_since")),
        ).collect,
        progress,
    )
    return _Counts(row[0], row[1], row[2], row[3] or 0)


def _count(spark: SparkSession, rest: DataFrame, progress: Progress) -> int:
    return int(act(spark, "counting", rest.count, progress))


def _send(
    spark: SparkSession, rest: DataFrame, redriving: RedriveOptions, name_servers: str, progress: Progress
) -> int:
    marks: list[Any] = [
        sf.lit(property_names.DLQ_REDRIVES), (sf.col("redrives") + 1).cast("string"),
        sf.lit(property_names.DLQ_REDRIVE_ID), sf.col("_mark"),
        sf.lit(property_names.DLQ_ORIGIN_MESSAGE_ID), sf.coalesce("origin_id", "message_id"),
    ]  # fmt: skip
    observed = Observation()
    made = rest.select(
        sf.col("_target").alias("topic"),
        "body",
        "tags",
        "keys",
        sf.map_concat(kept_properties(), sf.create_map(*marks)).alias("properties"),
    ).observe(observed, sf.count(sf.lit(1)).alias("rows"))
    options = {"nameServers": name_servers, "delivery": AT_LEAST_ONCE}
    if redriving.rate is not None:
        made = throttled(made, redriving.rate)
    with written_slowly(spark, redriving.rate, options):
        writer = made.write.format("rocketmq").options(**options).mode("append")
        act(spark, "sending", writer.save, progress)
    return int(observed.get["rows"])
