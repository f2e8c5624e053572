"""The Spark part: one streaming query from the topic to Parquet, and delay statistics of what it archived.

Every batch goes to a folder named after its number, which a replay writes again: after a crash nothing is
missing and nothing is there twice.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.children import say
from examples.flights.data import TOPIC, WARM_UP_TOPIC, Delays, Table
from pyspark.sql import Observation
from pyspark.sql import functions as sf

from orbitmq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

ROWS_PER_BATCH = 100_000
# What is archived, and so all that is read and decoded.
COLUMNS = "broker,queue_id,queue_offset,tags,keys,body,message_id,store_timestamp"
DELAY_FIELDS = "hour INT, dep_delay INT, arr_delay INT"
STATUS_POLL_S = 0.05


def raw_folder(out: Path) -> Path:
    """Where the messages are, as ``batch=<n>/carrier=<code>/*.parquet``."""
    return out / "raw"


def statistics_file(out: Path) -> Path:
    """Where the statistics of the whole stream are in the end."""
    return out / "statistics.json"


def flights(spark: SparkSession, name_server: str, topic: str = TOPIC) -> DataFrame:
    """The topic as a stream."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServers", name_server)
        .option("topic", topic)
        .option("columns", COLUMNS)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", ROWS_PER_BATCH)
        .load()
        .withColumnRenamed("tags", "carrier")
    )


def delays(archive: DataFrame) -> Table:
    """Delay statistics by carrier and scheduled hour."""
    flight = archive.select("carrier", sf.from_json(sf.col("body").cast("string"), DELAY_FIELDS).alias("f"))
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


class Archive:
    """Writes the batches of a query below ``out``.

    Args:
        tell: called with the number of rows so far.
    """

    def __init__(self, out: Path, tell: Callable[[int], None] = lambda rows: None) -> None:
        self._out = out
        self._tell = tell
        self._rows = 0

    def write(self, batch: DataFrame, number: int) -> None:
        """The ``foreachBatch`` function: Parquet by carrier, counted on its way."""
        counted = Observation()
        target = raw_folder(self._out) / f"batch={number}"
        observed = batch.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        observed.write.mode("overwrite").partitionBy("carrier").parquet(str(target))
        self._rows += counted.get["rows"]
        self._tell(self._rows)

    def query(self, stream: DataFrame) -> DataStreamWriter:
        """The query that writes a stream."""
        writer = stream.writeStream.foreachBatch(self.write)
        return writer.option("checkpointLocation", str(self._out / "checkpoint"))

    def finish(self, spark: SparkSession) -> None:
        """Write the statistics of what was archived."""
        table = delays(spark.read.parquet(str(raw_folder(self._out))))
        draft = statistics_file(self._out).with_suffix(".draft")
        draft.write_text(json.dumps(table.to_json()))
        os.replace(draft, statistics_file(self._out))


def warm_up(spark: SparkSession, name_server: str, out: Path) -> None:
    """The whole way once, for the few messages of another topic: processes start, code is loaded."""
    archive = Archive(out / "warm-up")
    stream = flights(spark, name_server, WARM_UP_TOPIC)
    archive.query(stream).trigger(availableNow=True).start().awaitTermination()
    archive.finish(spark)


def main(name_server: str, out: Path) -> None:
    """Run the query until the parent says ``finish`` or goes away."""
    begin = time.monotonic()
    spark = session("flights", master="local[2]", spark__sql__shuffle__partitions=2)
    warm_up(spark, name_server, out)
    archive = Archive(out, lambda rows: say(rows=rows))
    query = archive.query(flights(spark, name_server)).trigger(processingTime="1 second").start()
    while query.isActive and "Waiting" not in query.status["message"]:
        time.sleep(STATUS_POLL_S)
    say(spark=spark.version, ready_s=time.monotonic() - begin)
    told = threading.Thread(target=sys.stdin.readline, daemon=True)
    told.start()
    while told.is_alive() and query.isActive:
        told.join(0.2)
    if (error := query.exception()) is not None:
        raise SystemExit(f"the query failed: {error}")
    query.stop()
    archive.finish(spark)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
