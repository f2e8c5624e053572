"""The Spark part: one streaming query from the topic to Parquet and to delay statistics.

Every batch goes to places named after its number, which a replay writes again: after a crash nothing is
missing and nothing is there twice.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.children import say
from examples.flights.data import TOPIC, Delays, Table
from pyspark.sql import functions as sf

from orbitmq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 100_000
DELAY_FIELDS = "hour INT, dep_delay INT, arr_delay INT"


def raw_folder(out: Path) -> Path:
    """Where the messages are, as ``batch=<n>/carrier=<code>/*.parquet``."""
    return out / "raw"


def statistics_file(out: Path) -> Path:
    """Where the statistics of the whole stream are in the end."""
    return out / "statistics.json"


def flights(spark: SparkSession, name_server: str) -> DataFrame:
    """The topic as a stream."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServers", name_server)
        .option("topic", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", ROWS_PER_BATCH)
        .load()
        .withColumnRenamed("tags", "carrier")
    )


def delays(batch: DataFrame) -> Table:
    """Delay statistics of one batch by carrier and scheduled hour."""
    flight = batch.select("carrier", sf.from_json(sf.col("body").cast("string"), DELAY_FIELDS).alias("f"))
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
    """Writes the batches of the query below ``out``."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._parts = out / "statistics"
        self._parts.mkdir(parents=True, exist_ok=True)
        self.rows = 0

    def write(self, batch: DataFrame, number: int) -> None:
        """The ``foreachBatch`` function: Parquet by carrier, statistics beside it."""
        batch.persist()
        target = raw_folder(self._out) / f"batch={number}"
        batch.write.mode("overwrite").partitionBy("carrier").parquet(str(target))
        table = delays(batch)
        batch.unpersist()
        self._save(self._parts / f"batch-{number}.json", table)
        self.rows += sum(cell.flights for cell in table.cells.values())
        say(rows=self.rows)

    def total(self) -> Table:
        """The statistics of all batches together."""
        table = Table()
        for path in sorted(self._parts.glob("batch-*.json")):
            table.merge(Table.from_json(json.loads(path.read_text())))
        return table

    def finish(self) -> None:
        """Write the statistics of the whole stream."""
        self._save(statistics_file(self._out), self.total())

    @staticmethod
    def _save(path: Path, table: Table) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(table.to_json()))
        os.replace(draft, path)


def main(name_server: str, out: Path) -> None:
    """Run the query until the parent says ``finish`` or goes away."""
    spark = session("flights", master="local[2]", spark__sql__shuffle__partitions=2)
    say(spark=spark.version)
    sys.stdin.readline()  # the topic is there
    archive = Archive(out)
    query = (
        flights(spark, name_server)
        .writeStream.foreachBatch(archive.write)
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    say(query=str(query.runId))
    told = threading.Thread(target=sys.stdin.readline, daemon=True)
    told.start()
    while told.is_alive() and query.isActive:
        told.join(0.2)
    if (error := query.exception()) is not None:
        raise SystemExit(f"the query failed: {error}")
    query.stop()
    archive.finish()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
