"""The Spark part: the job ``archive`` on the topic, and delay statistics of what it archived.

Spark's workers write the Parquet files. A file is named after the messages in it, so that after a crash
nothing is missing and nothing is there twice.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.children import say
from examples.flights.data import TOPIC, WARM_UP_TOPIC, Delays, Table
from pyspark.sql import functions as sf

from orbitmq.errors import OrbitError
from orbitmq.spark.jobs import ArchiveJob, archive, archive_frame
from orbitmq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 100_000
# What is archived, and so all that is read and decoded.
COLUMNS = ("broker", "queue_id", "queue_offset", "tags", "keys", "body", "message_id", "store_timestamp")
DELAY_FIELDS = "hour INT, dep_delay INT, arr_delay INT"
STATUS_POLL_S = 0.05


def raw_folder(out: Path) -> Path:
    """Where the messages are, as ``topic=flights/date=<day>/<broker>-<queue>-<first>-<last>.parquet``."""
    return out / "raw"


def statistics_file(out: Path) -> Path:
    """Where the statistics of the whole stream are in the end."""
    return out / "statistics.json"


def archive_job(name_server: str, out: Path, topic: str = TOPIC) -> ArchiveJob:
    """What is archived and where."""
    return ArchiveJob(
        topics=[topic],
        to=str(raw_folder(out)),
        name_servers=name_server,
        columns=COLUMNS,
        trigger="1 second",
        options={"maxRowsPerTrigger": str(ROWS_PER_BATCH)},
    )


def delays(archived: DataFrame) -> Table:
    """Delay statistics by carrier and scheduled hour."""
    flight = archived.select(
        sf.col("tags").alias("carrier"), sf.from_json(sf.col("body").cast("string"), DELAY_FIELDS).alias("f")
    )
    grouped = flight.groupBy("carrier", "f.hour").agg(
        sf.count(sf.lit(1)),
        sf.count("f.dep_delay"),
        sf.sum("f.dep_delay"),
        sf.count("f.arr_delay"),
        sf.sum("f.arr_delay"),
        sf.max("f.dep_delay"),
    )
    table = Table()
    for carrier, hour, count, departed, departure, arrived, arrival, worst in grouped.collect():
        table.cells[carrier, hour] = Delays(count, departed, departure or 0, arrived, arrival or 0, worst)
    return table


def finish(spark: SparkSession, out: Path) -> None:
    """Write the statistics of what was archived."""
    table = delays(archive_frame(spark, str(raw_folder(out))))
    draft = statistics_file(out).with_suffix(".draft")
    draft.write_text(json.dumps(table.to_json()))
    os.replace(draft, statistics_file(out))


def warm_up(spark: SparkSession, name_server: str, out: Path) -> None:
    """The whole way once, for the few messages of another topic: processes start, code is loaded."""
    archive(spark, archive_job(name_server, out, WARM_UP_TOPIC))
    finish(spark, out)


def watch(spark: SparkSession, begin: float) -> None:
    """Say when the query waits for messages; stop it when the parent says ``finish`` or goes away."""
    while not any("Waiting" in query.status["message"] for query in spark.streams.active):
        time.sleep(STATUS_POLL_S)
    say(spark=spark.version, ready_s=time.monotonic() - begin)
    sys.stdin.readline()
    for query in spark.streams.active:
        query.stop()


def main(name_server: str, out: Path) -> None:
    """Archive until the parent says ``finish`` or goes away."""
    begin = time.monotonic()
    spark = session("flights", master="local[2]", spark__sql__shuffle__partitions=2)
    warm_up(spark, name_server, out / "warm-up")
    threading.Thread(target=watch, args=(spark, begin), daemon=True).start()
    try:
        job = archive_job(name_server, out)
        archive(spark, job, continuous=True, archived=lambda rows: say(rows=rows))
    except OrbitError as error:
        raise SystemExit(f"the archive failed: {error}") from error
    finish(spark, out)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
