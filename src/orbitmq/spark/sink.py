"""The writers behind the format ``rocketmq``: each row is sent once, also when a batch is replayed.

A message's id is (query, batch, partition, row), and it carries a digest of its row. Before a task sends, it
records where its queues end. A task that finds such a record reads the queues from there, matches what it
finds with its rows by their digests, and sends only what is missing. The order of the rows in a partition
does not matter, but each row must be in the same partition again: stored messages without a row are an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
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

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.system import SystemFiles
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.brokers import Brokers, Patience, max_offset, offset_at
from orbitmq.spark.errors import OptionError, SinkStateError, UnreachableError
from orbitmq.spark.messages import TaskId, check_columns, messages
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.send import Begun, TaskSender
from orbitmq.spark.sink_state import SinkState
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.spark")

# Clocks of driver and brokers may differ by this much when a batch job's task is tried again.
CLOCK_MARGIN_MS = 600_000


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task did: its rows, and how many of them it had to send."""

    task: TaskId
    rows: int
    sent: int


def _offsets(
    topic: str, brokers: Brokers, options: WriteOptions, request: Callable[[MessageQueue], Command]
) -> Offsets:
    """An offset of every queue of ``topic``; waits for a cluster that is away, up to ``retryTimeout``."""
    patience = Patience(options.retry_timeout_ms)
    while True:
        try:
            return Offsets(brokers.offsets(brokers.readable([topic], refresh=True), request))
        except (UnreachableError, TopicNotFoundError) as error:
            if patience.is_over:
                raise
            log.info("the queues of %s are not known yet: %s", topic, error)
            patience.pause()


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
            self._options,
            task,
            lambda topic, brokers: state.intend(
                task, topic, _offsets(topic, brokers, self._options, max_offset)
            ),
        )
        sender.resume(state.topics_of(task))
        return _send_all(sender, iterator, self._options.topic)

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = [message for message in messages if isinstance(message, Written)]
        if not done:
            return
        facts = {"partitions": len(done), "rows": sum(message.rows for message in done)}
        self._state().check_partitions(done[0].task.query_id, batchId, {m.task.partition for m in done})
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
        self._job_id = f"job-{this_worker().random.getrandbits(64):016x}"
        self._started_ms = this_worker().clock.now_ms()

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        task = TaskId(self._job_id, 0, context.partitionId())
        begin = self._begin_again if context.attemptNumber() else self._begin_first
        return _send_all(TaskSender(self._options, task, begin), iterator, self._options.topic)

    def _begin_first(self, topic: str, brokers: Brokers) -> Begun:
        return Begun(_offsets(topic, brokers, self._options, max_offset), again=False)

    def _begin_again(self, topic: str, brokers: Brokers) -> Begun:
        since = self._started_ms - CLOCK_MARGIN_MS
        found = _offsets(topic, brokers, self._options, lambda queue: offset_at(queue, since))
        return Begun(found, again=True)

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what was sent is there."""

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Messages cannot be taken back."""
        done = [message for message in messages if isinstance(message, Written)]
        log.warning("the job failed after %d messages were sent", sum(message.sent for message in done))
