"""The results of tasks, and the commit on the driver when all tasks of a batch have ended."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from orbitmq.errors import OrbitError
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import SinkStateError
from orbitmq.spark.garbage import spare_modules
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.metrics import SendMetrics, added_up
from orbitmq.spark.write.reconciliation import BatchReconciliation, driver_task
from orbitmq.spark.write.rows import DELAYING
from orbitmq.spark.write.send import TaskSender
from orbitmq.spark.write.sink_state import FolderState
from orbitmq.spark.write.task import TaskId

log = logging.getLogger("orbitmq.spark")


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The result of one task.

    Attributes:
        topics: the ends of the queues before the task sent, by topic.
        matched: digests, of eight bytes each, of the rows that the task did not send because earlier attempts
            had stored them.
    """

    task: TaskId
    rows: int
    metrics: SendMetrics = field(default_factory=SendMetrics)
    topics: dict[str, Offsets] = field(default_factory=dict)
    matched: bytes = b""


def written_by(sender: TaskSender, batches: Iterable[pa.RecordBatch]) -> Written:
    """Send all rows. Errors as with :class:`TaskSender`."""
    try:
        for batch in batches:
            sender.add(batch)
        sender.finish()
    finally:
        sender.close()
        spare_modules()
    return Written(
        sender.task,
        sender.rows,
        sender.metrics,
        sender.topics,
        sender.replay.matched.tobytes(),
    )


@dataclass
class Refused(WriterCommitMessage):  # type: ignore[misc]
    """An error that every attempt of a task would meet. It is returned so that the driver raises it: after a
    raised error Spark would repeat the task.
    """

    error: OrbitError


class BatchCommit:
    """Commits one batch.

    Args:
        done: the results of the tasks; at least one.
        state: the state folder; ``None`` without state: rows are sent at least once.
    """

    def __init__(
        self,
        options: WriteOptions,
        columns: frozenset[str],
        done: Sequence[Written],
        state: FolderState | None,
    ) -> None:
        self.task = done[0].task
        self._options = options
        self._delayed = bool(columns & DELAYING)
        self._done = done
        self._state = state
        self._brokers = Brokers(
            options.name_servers, options.request_timeout_ms, options.routes, options.identity
        )
        self._successful = {message.task.partition: message.task.attempt_text for message in done}
        self._rows = sum(message.rows for message in done)
        self._metrics = added_up(message.metrics for message in done)

    @property
    def facts(self) -> dict[str, object]:
        """The facts for the commit file."""
        return {"partitions": len(self._done), "rows": self._rows, **self._metrics.facts()}

    def finish(self) -> None:
        """Commit a batch of a stream, or continue an interrupted commit.

        Raises:
            SinkStateError: the stored messages do not match the rows; the batch stays uncommitted.
            UnreachableError: a broker was away for too long.
        """
        state, task = self._state, self.task
        if state is not None:
            record = state.commit_record(task.query_id, task.batch_id)
            if record is not None:
                log.info("batch %d was committed before", task.batch_id)
                self._check_same(record, state)
                return
            self._reconcile(
                state, f"To go on all the same, remove {state.folder(task.query_id, task.batch_id)}"
            )
            state.commit(task.query_id, task.batch_id, task.run, self.facts)
        log.info("batch %d is committed: %s", task.batch_id, self.facts)

    def finish_job(self) -> None:
        """End a batch job, which is never repeated under its name. Errors as with :meth:`finish`."""
        if self._state is not None:
            again = "What the job has sent is in the topic; run again, it sends all of its rows anew"
            self._reconcile(self._state, again)
        log.info("the job is done: %s", self.facts)

    def _check_same(self, record: Mapping[str, Any], state: FolderState) -> None:
        """Check that a committed batch is the same one: Spark repeats a batch whose commit it did not
        record.
        """
        before = record.get("rows", self._rows)
        if before != self._rows:
            raise SinkStateError(
                f"batch {self.task.batch_id} was committed with {before} rows and has {self._rows} now: a "
                f"replay gives other rows, or the checkpoint is older than what {state.location} says. "
                f"{state.remedy(self.task.query_id)}"
            )

    def _reconcile(self, state: FolderState, remedy: str) -> None:
        """Make sure that each row is stored exactly once, if other attempts have sent some rows."""
        task = self.task
        begun = state.begun(task.query_id, task.batch_id, self._successful)
        if not begun:
            return
        reconciliation = BatchReconciliation(
            self._options,
            self._brokers,
            driver_task(task.query_id, task.batch_id, task.run),
            begun,
            delayed=self._delayed,
            remedy=remedy,
        )
        matched = _digests(message.matched for message in self._done)
        sent = reconciliation.reconcile(self._successful, matched, self._rows)
        self._metrics = added_up([self._metrics, sent])


def _digests(parts: Iterable[bytes]) -> Iterator[int]:
    for part in parts:
        found = array("Q")
        found.frombytes(part)
        yield from found
