"""The writers behind the format ``rocketmq``: each row is sent once, also when a batch is replayed.

A message's id is (query, batch, partition, row), so the rows of a batch must come in the same order when it
is replayed; sort or hash-partition a data frame whose order may change. Before a task sends, it records where
its queues end. A task that finds such a record reads the queues from there, and sends only what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.runtime.system import SystemClock, SystemFiles, system_runtime
from orbitmq.spark.brokers import Brokers, max_offset, offset_at
from orbitmq.spark.errors import OptionError, SinkStateError
from orbitmq.spark.messages import TaskId, check_columns, messages
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.send import Begun, TaskSender
from orbitmq.spark.sink_state import SinkState

log = logging.getLogger("orbitmq.spark")

# Clocks of driver and brokers may differ by this much when a batch job's task is tried again.
CLOCK_MARGIN_MS = 600_000


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task did: its rows, and how many of them it had to send."""

    task: TaskId
    rows: int
    sent: int


def _ends(topic: str, brokers: Brokers) -> Offsets:
    return Offsets(brokers.offsets(brokers.readable([topic]), max_offset))


def _begin_first(topic: str, brokers: Brokers) -> Begun:
    return Begun(_ends(topic, brokers), again=False)


def _send_all(sender: TaskSender, batches: Iterator[pa.RecordBatch], topic: str | None) -> Written:
    rows = 0
    for batch in batches:
        sender.add_all(messages(batch, sender.task, rows, topic))
        rows += batch.num_rows
    sender.flush()
    return Written(sender.task, rows, sender.sent)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkStateError("a writer runs inside a Spark task only")
    return context


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a streaming query.

    Raises:
        OptionError: there is neither ``stateLocation`` nor ``checkpointLocation``.
        SchemaError: the columns are not those of messages.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        if options.state_location is None:
            raise OptionError("a streaming write needs the option checkpointLocation or stateLocation")
        self._options = options
        self._location = options.state_location
        self._state()

    def _state(self) -> SinkState:
        return SinkState(SystemFiles(), self._location)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise SinkStateError("Spark does not say which query and batch this task belongs to")
        task = TaskId(query_id, int(batch_id), context.partitionId())
        state = self._state()
        if state.is_committed(query_id, task.batch_id):
            return Written(task, sum(batch.num_rows for batch in iterator), 0)
        sender = TaskSender(
            self._options, task, lambda topic, brokers: state.intend(task, topic, _ends(topic, brokers))
        )
        return _send_all(sender, iterator, self._options.topic)

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = [message for message in messages if isinstance(message, Written)]
        if not done:
            return
        facts = {"partitions": len(done), "rows": sum(message.rows for message in done)}
        if not self._state().commit(done[0].task.query_id, batchId, facts):
            log.info("batch %d was committed before", batchId)

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Never undoes anything: Spark also calls this after a commit that took effect."""
        done = [message for message in messages if isinstance(message, Written)]
        committed = bool(done) and self._state().is_committed(done[0].task.query_id, batchId)
        log.warning(
            "batch %d %s", batchId, "is committed, kept" if committed else "failed, a replay completes it"
        )


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a data frame once; needs ``mode("append")``.

    Raises:
        OptionError: ``mode("overwrite")``; messages cannot be replaced.
        SchemaError: the columns are not those of messages.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        check_columns(schema, options.topic)
        if overwrite:
            raise OptionError('topics cannot be overwritten; use mode("append")')
        self._options = options
        # Made once on the driver and pickled into every task.
        self._job_id = f"job-{system_runtime().random.getrandbits(64):016x}"
        self._started_ms = SystemClock().now_ms()

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        task = TaskId(self._job_id, 0, context.partitionId())
        begin = self._begin_again if context.attemptNumber() else _begin_first
        return _send_all(TaskSender(self._options, task, begin), iterator, self._options.topic)

    def _begin_again(self, topic: str, brokers: Brokers) -> Begun:
        since = self._started_ms - CLOCK_MARGIN_MS
        queues = brokers.readable([topic])
        return Begun(Offsets(brokers.offsets(queues, lambda queue: offset_at(queue, since))), again=True)

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what was sent is there."""

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Messages cannot be taken back."""
        done = [message for message in messages if isinstance(message, Written)]
        log.warning("the job failed after %d messages were sent", sum(message.sent for message in done))
