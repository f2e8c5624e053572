"""The writers behind the format ``rocketmq``.

A task sends its rows and returns its result; the driver adds up the results and commits, by ``delivery``:

- *at-least-once*: no state is kept; a repeated task sends its rows again.
- *exactly-once*: messages have ids and digests, attempts note the ends of queues before they send, and a
replay leaves out the rows that are stored (:mod:`orbitmq.spark.write.replay`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.errors import TopicNotFoundError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import NotPermittedError, OptionError, SinkStateError, plainly
from orbitmq.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions
from orbitmq.spark.versions import StreamArrowWriter
from orbitmq.spark.write.commit import BatchCommit, Refused, Written, written_by
from orbitmq.spark.write.look import looked_up
from orbitmq.spark.write.rows import check_columns
from orbitmq.spark.write.send import LARGEST_SEND_BYTES, Begin, TaskSender, columns_of
from orbitmq.spark.write.sink_state import FolderState
from orbitmq.spark.write.task import TaskId, new_run
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.spark")

# The number of batches that a task reads although it cannot send them; otherwise Spark prints a broken pipe.
UNUSED_BATCHES = 64


class StreamWriter(StreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a streaming query.

    Raises:
        OptionError: there is no folder for the state that ``delivery`` needs, or ``batchBytes`` is more than
            a request can hold.
        SchemaError: a column is not one of a message.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        if options.is_exact and options.state_location is None:
            raise OptionError(f"delivery={EXACTLY_ONCE} needs the option checkpointLocation or stateLocation")
        _folder(options)
        self._options = replace(options, routes=looked_up(options))
        self._columns = columns_of(schema)
        # A token that is created on the driver for each batch and pickled into the batch's tasks.
        self._run = _token()

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Refused:
        return _final(self._write, iterator)

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise SinkStateError("Spark does not say which query and batch this task belongs to")
        task = TaskId(query_id, int(batch_id), context.partitionId(), self._run, context.taskAttemptId())
        state = _folder(self._options)
        if state is not None and state.is_committed(query_id, task.batch_id):
            state.check_last(query_id, task.batch_id)
            return Written(task, sum(batch.num_rows for batch in iterator))
        return written_by(TaskSender(self._options, task, self._columns, _begin(state, task)), iterator)

    @override
    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _raise_refused(messages)
        done = _written(messages)
        if done:
            BatchCommit(self._options, self._columns, done, _folder(self._options)).finish()

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log only: Spark also calls this after a commit, and sent messages cannot be withdrawn."""
        log.warning("batch %d failed; if it was not committed, a replay completes it", batchId)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a data frame once; needs ``mode("append")``.

    Raises:
        OptionError: ``mode("overwrite")`` is set, although messages cannot be replaced, or ``batchBytes`` is
            more than a request can hold.
        SchemaError: a column is not one of a message.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema)
        if overwrite:
            raise OptionError('topics cannot be overwritten; use mode("append")')
        if options.state_location is None:
            options = _without_state(options)
        _folder(options)
        self._options = replace(options, routes=looked_up(options))
        self._columns = columns_of(schema)
        # Created once on the driver and pickled into every task.
        self._run = _token()

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Refused:
        return _final(self._write, iterator)

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        task = TaskId(f"job-{self._run}", 0, context.partitionId(), self._run, context.taskAttemptId())
        state = _folder(self._options)
        return written_by(TaskSender(self._options, task, self._columns, _begin(state, task)), iterator)

    @override
    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _raise_refused(messages)
        done = _written(messages)
        if done:
            BatchCommit(self._options, self._columns, done, _folder(self._options)).finish_job()

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log only: sent messages cannot be withdrawn."""
        rows = sum(message.metrics.rows for message in _written(messages))
        log.warning("the job failed after %s had been sent", counted(rows, "message"))


def _check(options: WriteOptions, schema: StructType) -> None:
    """On the driver, refuse options with which no task could send."""
    check_columns(schema, options.topic)
    if options.batch_bytes > LARGEST_SEND_BYTES:
        raise OptionError(f"option batchBytes is above {LARGEST_SEND_BYTES}: a request holds no more")


def _without_state(options: WriteOptions) -> WriteOptions:
    """The delivery of a batch job without state: at least once, with a warning unless the option sets it.

    Raises:
        OptionError: the option is exactly once.
    """
    if options.delivery == EXACTLY_ONCE:
        raise OptionError(f"delivery={EXACTLY_ONCE} needs the option stateLocation, a folder, in a batch job")
    if options.delivery is None:
        log.warning(
            "rows of a task that Spark tries again are sent again (delivery=%s): "
            "with a folder as stateLocation each is stored once",
            AT_LEAST_ONCE,
        )
    return replace(options, delivery=AT_LEAST_ONCE)


def _begin(state: FolderState | None, task: TaskId) -> Begin:
    """The function that records the ends of queues in the state folder before an attempt sends."""
    return _nothing_earlier if state is None else partial(state.begin, task)


def _nothing_earlier(_topic: str, _ends: Offsets) -> None:
    return None


def _folder(options: WriteOptions) -> FolderState | None:
    """The state folder; ``None`` without state."""
    location = options.state_location
    return FolderState(location) if location is not None and options.is_exact else None


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkStateError("a writer runs inside a Spark task only")
    return context


def _token() -> str:
    """A name for a run, unique and higher than the names of earlier runs."""
    worker = this_worker()
    return new_run(worker.clock.now_ms(), worker.random.getrandbits(20))


def _final(
    write: Callable[[Iterator[pa.RecordBatch]], Written], batches: Iterator[pa.RecordBatch]
) -> Written | Refused:
    """The result of a task for the driver. An error that every attempt would meet is returned, not raised."""
    try:
        return write(batches)
    except (TopicNotFoundError, NotPermittedError) as error:
        # If a task does not read its remaining rows, Spark prints a broken pipe.
        for _ in islice(batches, UNUSED_BATCHES):
            pass
        return Refused(error)


def _raise_refused(messages: Sequence[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Refused):
            raise message.error


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]
