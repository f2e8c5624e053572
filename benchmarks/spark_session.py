"""A Spark session in a separate process, which runs the queries of `make bench-spark` by orders.

It needs only PySpark (and for OrbitMQ's side this package), so that it also runs in the connector's
environment. It reads an order from each line of JSON, and prints the answer as a line of JSON.
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import spark_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

MASTER = "local[2]"
ROWS_PER_TRIGGER = 500_000
# The interval of looks at a running query's progress; each look costs CPU time that is measured.
POLL_S = 0.25
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# Settings of Kafka's producer for many rows at a time; its defaults are for single rows.
KAFKA_TUNED = {"linger.ms": 20, "batch.size": 1 << 20, "buffer.memory": 64 << 20}


class Side(ABC):
    """One system's source and sink, in terms of its format."""

    spark: SparkSession
    body: str
    """The name of the body's column."""
    born: str
    """The column with the time at which a row was sent."""
    last_job = -1
    """The last job whose rows were counted; see `rows_read`."""

    @abstractmethod
    def reading(self, reader: Any, topic: str, *, wide: bool, columns: str = "") -> Any:
        """A reader with its options.

        Args:
            wide: also read the properties (headers).
            columns: read only these columns, if the format can leave others out.
        """

    @abstractmethod
    def limited(self, reader: Any, rows: int) -> Any:
        """The reader with a limit of rows per trigger."""

    @abstractmethod
    def writing(
        self, frame: DataFrame, topic: str, delivery: str = "at-least-once", *, state: str = ""
    ) -> DataFrameWriter:
        """A writer of rows with ``key`` and ``body``.

        Args:
            delivery: OrbitMQ's delivery mode; Kafka's sink has only the first, and is tuned for any other
                value.
            state: a folder, if the delivery mode needs one.
        """

    @abstractmethod
    def archive(self, topic: str, folder: str, rows: int) -> dict[str, int]:
        """Write a topic to Parquet files with zstd, by the system's own means.

        Args:
            rows: number of rows in one batch of a stream; 0 for a batch query.

        Returns:
            ``rows``: the number of written rows, if Spark cannot count them; see `rows_read`.
        """

    def table(self, topic: str, *, wide: bool = False, columns: str = "") -> DataFrame:
        reader: DataFrameReader = self.reading(self.spark.read, topic, wide=wide, columns=columns)
        return reader.load()

    def stream(self, topic: str, rows: int = ROWS_PER_TRIGGER) -> DataFrame:
        reader: DataStreamReader = self.reading(self.spark.readStream, topic, wide=False)
        return self.limited(reader.option("startingOffsets", "earliest"), rows).load()

    def arriving(self, topic: str) -> DataFrame:
        """A stream of the rows that arrive from now on."""
        reader: DataStreamReader = self.reading(self.spark.readStream, topic, wide=False)
        return reader.option("startingOffsets", "latest").load()


class Ours(Side):
    """The format ``rocketmq``."""

    body = "body"
    born = "born_timestamp"

    def __init__(self, name_server: str) -> None:
        from orbitmq.spark.session import session

        conf = {name.replace(".", "__"): value for name, value in CONF.items()}
        self.spark = session("bench-spark", master=MASTER, **conf)
        self._name_server = name_server

    def reading(
        self, reader: Any, topic: str, *, wide: bool, columns: str = "", kind: str = "rocketmq"
    ) -> Any:
        made = reader.format(kind).option("nameServers", self._name_server).option("topic", topic)
        if wide:
            made = made.option("properties", "map")
        return made.option("columns", columns) if columns else made

    def limited(self, reader: Any, rows: int) -> Any:
        return reader.option("maxRowsPerTrigger", rows)

    def writing(
        self, frame: DataFrame, topic: str, delivery: str = "at-least-once", *, state: str = ""
    ) -> DataFrameWriter:
        named = frame.withColumnRenamed("key", "keys")
        writer = named.write.format("rocketmq").option("nameServers", self._name_server)
        writer = writer.option("topic", topic).option("delivery", delivery)
        return writer.option("stateLocation", state) if state else writer

    def archive(self, topic: str, folder: str, rows: int) -> dict[str, int]:
        from orbitmq.spark.jobs.archiving import ArchiveJob, archive

        limit = {"maxRowsPerTrigger": str(rows)} if rows else {}
        job = ArchiveJob([topic], folder, self._name_server, properties="none", options=limit)
        # The workers write the messages, while Spark gets a row for each file.
        return {"rows": archive(self.spark, job).facts["messages"]}

    def floor(self, topic: str, *, wide: bool) -> DataFrame:
        """Rows without brokers; see `spark_floor`."""
        return self.reading(self.spark.read, topic, wide=wide, kind=self._floor_format()).load()

    def discarding(self, frame: DataFrame) -> DataFrameWriter:
        """A writer without a broker, for rows with ``key`` and ``body``."""
        named = frame.withColumnRenamed("key", "keys")
        return named.write.format(self._floor_format()).mode("append")

    def _floor_format(self) -> str:
        from benchmarks.spark_floor import FORMAT, FloorSource

        self.spark.dataSource.register(FloorSource)
        return FORMAT


class Kafka(Side):
    """Spark's connector for Kafka."""

    body = "value"
    born = "timestamp"

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

    def writing(
        self, frame: DataFrame, topic: str, delivery: str = "at-least-once", *, state: str = ""
    ) -> DataFrameWriter:
        writer = frame.withColumnRenamed("body", "value").write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic)
        for name, value in KAFKA_TUNED.items() if delivery != "at-least-once" else ():
            writer = writer.option(f"kafka.{name}", value)
        return writer

    def archive(self, topic: str, folder: str, rows: int) -> dict[str, int]:
        if not rows:
            self.table(topic).write.option("compression", "zstd").mode("overwrite").parquet(folder)
            return {}
        os.mkdir(folder)
        writer = self.stream(topic, rows).writeStream.format("parquet").option("compression", "zstd")
        _until_now(writer.option("path", f"{folder}/files"), folder)
        return {}

    def fill(self, topic: str, rows: int, body: int) -> None:
        """Write the rows of `spark_rows`."""
        headers = "array<struct<key:string,value:binary>>"
        made = self.spark.range(0, rows, 1, spark_rows.QUEUES).mapInArrow(
            _filler(body), f"key string, body binary, headers {headers}"
        )
        # Not measured. A broker that stalls on a busy machine may do so for longer than the default of 2 min.
        self.writing(made, topic, "tuned").option("kafka.delivery.timeout.ms", "600000").save()


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


# -- the queries -----------------------------------------------------------------------------------------


@dataclass
class Work:
    """The parameters of an order.

    Attributes:
        folder: a folder for files of this query.
        rows: number of rows that the query generates; ``body``: bytes of each.
        kept: a folder for files that later queries need.
        count: number of triggers, or of seconds.
    """

    side: Side
    topic: str = ""
    folder: str = ""
    rows: int = 0
    kept: str = ""
    count: int = 0
    body: int = 0

    @property
    def ours(self) -> Ours:
        assert isinstance(self.side, Ours)
        return self.side


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def default(work: Work) -> None:
    to_noop(work.side.table(work.topic))


def wide(work: Work) -> None:
    to_noop(work.side.table(work.topic, wide=True))


def floor(work: Work) -> None:
    to_noop(work.ours.floor(work.topic, wide=False))


def floor_wide(work: Work) -> None:
    to_noop(work.ours.floor(work.topic, wide=True))


def count(work: Work) -> None:
    work.side.table(work.topic).count()


def count_pruned(work: Work) -> None:
    work.side.table(work.topic, columns="queue_offset").count()


def length(work: Work) -> None:
    work.side.table(work.topic).agg(sf.sum(sf.length(work.side.body))).collect()


def length_pruned(work: Work) -> None:
    work.side.table(work.topic, columns="body_size").agg(sf.sum("body_size")).collect()


def stream(work: Work) -> None:
    _until_now(work.side.stream(work.topic).writeStream.format("noop"), work.folder)


def archive(work: Work) -> dict[str, int]:
    return work.side.archive(work.topic, f"{work.folder}/archive", 0)


def archive_stream(work: Work) -> dict[str, int]:
    return work.side.archive(work.topic, f"{work.folder}/archive", ROWS_PER_TRIGGER)


def spark_writer(work: Work) -> None:
    made = work.side.table(work.topic).write.option("compression", "zstd")
    made.mode("overwrite").parquet(f"{work.folder}/archive")


def save_parquet(work: Work) -> None:
    """Store the rows for :func:`parquet`; not measured."""
    made = work.side.table(work.topic).write.option("compression", "none")
    made.mode("overwrite").parquet(f"{work.kept}/rows-{work.topic}")


def parquet(work: Work) -> None:
    to_noop(work.side.spark.read.parquet(f"{work.kept}/rows-{work.topic}"))


def sink(work: Work) -> None:
    _write(work, "at-least-once")


def sink_exact(work: Work) -> None:
    _write(work, "exactly-once", state=f"{work.folder}/state")


def sink_floor(work: Work) -> None:
    work.ours.discarding(_made(work)).save()


def sink_rows(work: Work) -> None:
    to_noop(_made(work))


def fill(work: Work) -> None:
    """Write the rows that other queries read; not measured."""
    assert isinstance(work.side, Kafka)
    work.side.fill(work.topic, work.rows, work.body)


def tidy(work: Work) -> None:
    """Remove the files of the last query; not measured."""
    for entry in os.scandir(work.folder):
        shutil.rmtree(entry.path)


def rows_read(work: Work) -> dict[str, int]:
    """The number of rows that the last query read from its source, by Spark's own count; not measured.

    Empty for batch reads from Kafka, which is in ``spark.sql.sources.useV1SourceList``: Spark does not count
    the rows of such sources.
    """
    context = work.side.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    new = [job for job in _each(store.jobsList(None)) if job.jobId() > work.side.last_job]
    work.side.last_job = max((job.jobId() for job in new), default=work.side.last_job)
    stages = {stage for job in new for stage in _each(job.stageIds())}
    rows = sum(store.lastStageAttempt(stage).inputRecords() for stage in stages)
    return {"rows": rows} if rows or isinstance(work.side, Ours) else {}


def _each(found: Any) -> Iterator[Any]:
    """The elements of a sequence of the JVM."""
    return (found.apply(i) for i in range(found.size()))


def first_row(work: Work) -> None:
    assert work.side.table(work.topic).limit(1).collect()


def refused(work: Work) -> dict[str, str]:
    """The error of a read that cannot succeed."""
    try:
        count(work)
    except Exception as error:  # Kafka's error is none of PySpark's classes
        return {"error": str(error)}
    raise RuntimeError("a broker that is down was read")


QUERIES: dict[str, Callable[[Work], Any]] = {
    query.__name__: query
    for query in (
        default, wide, floor, floor_wide, count, count_pruned, length, length_pruned, stream, archive,
        archive_stream, spark_writer, save_parquet, parquet, sink, sink_exact, sink_floor,
        sink_rows, fill, tidy, rows_read, first_row, refused,
    )
}  # fmt: skip


def _made(work: Work) -> DataFrame:
    """Rows that Spark generates."""
    body = sf.repeat(sf.sha2(sf.col("id").cast("string"), 256), 16).cast("binary").alias("body")
    return work.side.spark.range(0, work.rows, 1, 2).select(sf.lpad(sf.hex("id"), 16, "0").alias("key"), body)


def _write(work: Work, delivery: str, *, state: str = "") -> None:
    work.side.writing(_made(work), f"{work.topic}-sink", delivery, state=state).mode("append").save()


def _until_now(writer: Any, folder: str) -> None:
    checkpoint = tempfile.mkdtemp(dir=folder)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


# -- queries that run across several orders ------------------------------------------------------------


@dataclass
class Running:
    """One streaming query, which runs from one order to the next."""

    query: StreamingQuery | None = None
    seen: list[tuple[float, list[float]]] = field(default_factory=list)

    def start_triggers(self, work: Work) -> None:
        """Start a stream of one row per trigger; returns after ``count`` triggers."""
        writer = work.side.stream(work.topic, 1).writeStream.format("noop")
        self.query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=work.folder)).start()
        self._wait(work.count - 1)

    def more_triggers(self, work: Work) -> dict[str, Any]:
        """Wait for ``count`` more triggers; returns the duration of each in milliseconds, and the rows of
        all.
        """
        assert self.query is not None
        last = self._wait(0)
        self._wait(last + work.count)
        new = [b for b in self.query.recentProgress if last < b["batchId"] <= last + work.count]
        return {
            "triggers": [batch["durationMs"]["triggerExecution"] for batch in new if batch["numInputRows"]],
            "rows": sum(batch["numInputRows"] for batch in new),
        }

    def start_arrivals(self, work: Work) -> None:
        """Start a stream that records when each row is seen."""

        def note(batch: DataFrame, _number: int) -> None:
            sent = [row[0] for row in batch.select(sf.col(work.side.born).cast("double")).collect()]
            self.seen.append((time.time(), sent))

        writer = work.side.arriving(work.topic).writeStream.foreachBatch(note)
        self.query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=work.folder)).start()

    def more_arrivals(self, work: Work) -> dict[str, Any]:
        """The ages in milliseconds, when they were seen, of the rows of the next ``count`` seconds."""
        self.seen.clear()
        time.sleep(work.count)
        ages = sorted((at - sent) * 1000 for at, rows in list(self.seen) for sent in rows)
        return {"batches": len(self.seen), "ages": ages}

    def stop(self, work: Work) -> None:
        assert self.query is not None
        self.query.stop()
        self.query = None

    def _wait(self, batch: int) -> int:
        """Wait until a batch is done; returns the number of the last one."""
        assert self.query is not None
        while (last := self.query.lastProgress) is None or last["batchId"] < batch:
            if not self.query.isActive:
                raise RuntimeError(f"the query ended: {self.query.exception()}")
            time.sleep(POLL_S)
        return int(last["batchId"])


def main() -> None:
    kind, address, kept, *more = sys.argv[1:]
    begin = time.monotonic()
    side: Side = Ours(address) if kind == "ours" else Kafka(address, *more)
    print(json.dumps({"version": side.spark.version, "seconds": time.monotonic() - begin}), flush=True)
    running = Running()
    live = (running.start_triggers, running.more_triggers, running.start_arrivals, running.more_arrivals,
            running.stop)  # fmt: skip
    orders = QUERIES | {method.__name__: method for method in live}
    scratch = tempfile.mkdtemp(dir=kept)
    for line in sys.stdin:
        order = json.loads(line)
        name = order.pop("query")
        begin = time.monotonic()
        outcome = orders[name](Work(side, folder=scratch, kept=kept, **order)) or {}
        print(json.dumps({"seconds": time.monotonic() - begin, **outcome}), flush=True)
    side.spark.stop()


if __name__ == "__main__":
    main()
