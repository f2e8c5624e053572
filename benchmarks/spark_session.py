"""A Spark session in a process of its own, which runs the cases of `make bench-spark` as it is told to.

Needs only PySpark (and for our side this package), so that it also runs in the environment of the connector.
JSON lines come in, one for each query, and go out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import spark_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming import DataStreamReader

MASTER = "local[2]"
ROWS_PER_TRIGGER = 500_000
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


class Side(ABC):
    """One source and sink, in the words of its format."""

    spark: SparkSession
    body: str
    """The column of the body."""

    @abstractmethod
    def reading(self, reader: Any, topic: str, *, wide: bool, columns: str = "") -> Any:
        """A reader with its options.

        Args:
            wide: with the properties (headers) too.
            columns: only these, where the format can leave others out.
        """

    @abstractmethod
    def limited(self, reader: Any, rows: int) -> Any:
        """With at most so many rows a trigger."""

    @abstractmethod
    def writing(self, frame: DataFrame, topic: str) -> DataFrameWriter:
        """A writer of rows with ``key`` and ``body``."""

    def table(self, topic: str, *, wide: bool = False, columns: str = "") -> DataFrame:
        reader: DataFrameReader = self.reading(self.spark.read, topic, wide=wide, columns=columns)
        return reader.load()

    def stream(self, topic: str) -> DataFrame:
        reader: DataStreamReader = self.reading(self.spark.readStream, topic, wide=False)
        return self.limited(reader, ROWS_PER_TRIGGER).load()


class Ours(Side):
    """The format ``rocketmq``."""

    body = "body"

    def __init__(self, name_server: str) -> None:
        from orbitmq.spark.session import session

        conf = {name.replace(".", "__"): value for name, value in CONF.items()}
        self.spark = session("bench-spark", master=MASTER, **conf)
        self._name_server = name_server

    def reading(self, reader: Any, topic: str, *, wide: bool, columns: str = "") -> Any:
        made = reader.format("rocketmq").option("nameServers", self._name_server).option("topic", topic)
        if wide:
            made = made.option("properties", "map")
        return made.option("columns", columns) if columns else made

    def limited(self, reader: Any, rows: int) -> Any:
        return reader.option("maxRowsPerTrigger", rows)

    def writing(self, frame: DataFrame, topic: str) -> DataFrameWriter:
        named = frame.withColumnRenamed("key", "keys")
        return named.write.format("rocketmq").option("nameServers", self._name_server).option("topic", topic)


class Kafka(Side):
    """Spark's connector for Kafka."""

    body = "value"

    def __init__(self, bootstrap: str, jars: str) -> None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("bench-spark-kafka").master(MASTER)
        for name, value in (CONF | {"spark.jars": jars}).items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self._bootstrap = bootstrap

    def reading(self, reader: Any, topic: str, *, wide: bool, columns: str = "") -> Any:
        made = reader.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        made = made.option("subscribe", topic).option("startingOffsets", "earliest")
        return made.option("includeHeaders", "true") if wide else made

    def limited(self, reader: Any, rows: int) -> Any:
        return reader.option("maxOffsetsPerTrigger", rows)

    def writing(self, frame: DataFrame, topic: str) -> DataFrameWriter:
        named = frame.withColumnRenamed("body", "value")
        return (
            named.write.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", topic)
        )

    def fill(self, rows: spark_rows.Rows) -> None:
        """Write the rows, as fast as the sink does it when it is tuned."""
        headers = "array<struct<key:string,value:binary>>"
        made = self.spark.range(0, rows.count, 1, spark_rows.QUEUES).mapInArrow(
            _filler(rows.body), f"key string, body binary, headers {headers}"
        )
        writer = self.writing(made, rows.topic).option("kafka.linger.ms", 20)
        writer.option("kafka.batch.size", 1 << 20).option("kafka.buffer.memory", 64 << 20).save()


def _filler(size: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from benchmarks import spark_rows as made

        header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            if not numbers:
                continue
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([made.key(n) for n in numbers], pa.string()),
                    pa.array(list(made.bodies(numbers[0], len(numbers), size)), pa.binary()),
                    pa.array(
                        [
                            [
                                {"key": name, "value": value.encode()}
                                for name, value in zip(made.PROPERTIES, made.properties(n), strict=True)
                            ]
                            for n in numbers
                        ],
                        header,
                    ),
                ],
                names=["key", "body", "headers"],
            )

    return fill


# -- the cases: each runs one query over a topic ---------------------------------------------------------


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def default(side: Side, topic: str, folder: str) -> None:
    to_noop(side.table(topic))


def wide(side: Side, topic: str, folder: str) -> None:
    to_noop(side.table(topic, wide=True))


def count(side: Side, topic: str, folder: str) -> None:
    side.table(topic).count()


def count_pruned(side: Side, topic: str, folder: str) -> None:
    side.table(topic, columns="queue_offset").count()


def length(side: Side, topic: str, folder: str) -> None:
    side.table(topic).agg(sf.sum(sf.length(side.body))).collect()


def length_pruned(side: Side, topic: str, folder: str) -> None:
    side.table(topic, columns="body_size").agg(sf.sum("body_size")).collect()


def stream(side: Side, topic: str, folder: str) -> None:
    _until_now(side.stream(topic).writeStream.format("noop"), folder)


def archive(side: Side, topic: str, folder: str) -> None:
    side.table(topic).write.option("compression", "zstd").mode("overwrite").parquet(f"{folder}/archive")


def archive_stream(side: Side, topic: str, folder: str) -> None:
    writer = side.stream(topic).writeStream.format("parquet").option("compression", "zstd")
    _until_now(writer.option("path", f"{folder}/stream"), folder)


def save_parquet(side: Side, topic: str, folder: str) -> None:
    """Not measured: the rows for :func:`parquet`."""
    side.table(topic).write.option("compression", "none").mode("overwrite").parquet(f"{folder}/rows-{topic}")


def parquet(side: Side, topic: str, folder: str) -> None:
    to_noop(side.spark.read.parquet(f"{folder}/rows-{topic}"))


def sink(side: Side, topic: str, folder: str) -> None:
    """Rows that Spark makes itself, into a topic of their own."""
    body = sf.repeat(sf.sha2(sf.col("id").cast("string"), 256), 16).cast("binary").alias("body")
    made = side.spark.range(0, spark_rows.SINK_ROWS, 1, 2).select(
        sf.lpad(sf.hex("id"), 16, "0").alias("key"), body
    )
    side.writing(made, f"{topic}-sink").mode("append").save()


CASES: dict[str, Callable[[Side, str, str], None]] = {
    case.__name__: case
    for case in (
        default, wide, count, count_pruned, length, length_pruned, stream, archive, archive_stream,
        save_parquet, parquet, sink,
    )
}  # fmt: skip


def _until_now(writer: Any, folder: str) -> None:
    checkpoint = tempfile.mkdtemp(dir=folder)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(checkpoint)


def main() -> None:
    kind, address, folder, *more = sys.argv[1:]
    begin = time.monotonic()
    side: Side = Ours(address) if kind == "ours" else Kafka(address, *more)
    print(json.dumps({"version": side.spark.version, "seconds": time.monotonic() - begin}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        begin = time.monotonic()
        if order["case"] == "fill":
            assert isinstance(side, Kafka)
            side.fill(spark_rows.Rows(order["rows"], order["body"]))
        else:
            CASES[order["case"]](side, order["topic"], folder)
        print(json.dumps({"seconds": time.monotonic() - begin}), flush=True)
        for name in ("archive", "stream"):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
    side.spark.stop()


if __name__ == "__main__":
    main()
