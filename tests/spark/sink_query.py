"""A streaming query as the sink sees it, without Spark: for tests against brokers of either kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructType

from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write import sink
from orbitmq.spark.write.commit import Written
from orbitmq.spark.write.scan import Found, StoredRows
from orbitmq.spark.write.sink import BatchWriter, StreamWriter
from orbitmq.spark.write.task import id_mark

TYPES = {
    "body": StringType(),
    "keys": ArrayType(StringType()),
    "properties": MapType(StringType(), StringType()),
    "sharding_key": StringType(),
    "delay_level": IntegerType(),
    "deliver_at": LongType(),
}
QUERY = "9a7c2d50-0000-0000-0000-00000000cafe"


class Context:
    """What Spark tells a task."""

    def __init__(self, batch: int, partition: int, attempt: int) -> None:
        self._properties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(batch)}
        self._partition, self._attempt = partition, attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return self._partition

    def taskAttemptId(self) -> int:
        return self._attempt

    def attemptNumber(self) -> int:
        """Counted anew in each attempt of a stage."""
        return 0


def write(writer: StreamWriter | BatchWriter, context: Context, columns: dict[str, Any]) -> Written:
    """Run one task."""
    told_by_spark = sink._context
    sink._context = lambda: context
    try:
        return writer.write(iter([pa.record_batch(columns)]))
    finally:
        sink._context = told_by_spark


class Query:
    """A streaming query as the sink sees it."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...] = ("body",)) -> None:
        self.options = options
        self._schema = StructType()
        for name in columns:
            self._schema = self._schema.add(name, TYPES[name])
        self._attempts = 0

    def run(self, batch: int, parts: list[dict[str, Any]], *, commit: bool = True) -> list[Written]:
        """One run of a batch: its tasks and, unless it is killed before, its commit."""
        writer = StreamWriter(self.options, self._schema)
        done = []
        for partition, columns in enumerate(parts):
            self._attempts += 1
            context = Context(batch, partition, self._attempts)
            done.append(write(writer, context, columns))
        if commit:
            StreamWriter(self.options, self._schema).commit(done, batch)
        return done

    def stored(self, batch: int) -> list[Found]:
        brokers = Brokers(self.options.name_servers, 5000)
        assert self.options.topic is not None
        ends = StoredRows(self.options, brokers).ends(self.options.topic)
        beginning = type(ends)(dict.fromkeys(ends, 0))
        return list(
            StoredRows(self.options, brokers).messages(self.options.topic, beginning, id_mark(QUERY, batch))
        )

    def bodies(self, batch: int) -> list[int]:
        return sorted(int(found.body) for found in self.stored(batch))


def bodies(numbers: range) -> dict[str, Any]:
    """The rows of one partition."""
    return {"body": [str(number) for number in numbers]}
