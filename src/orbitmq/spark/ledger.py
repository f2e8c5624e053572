"""What a writer must know of earlier attempts, when it keeps no files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from orbitmq.message.model import MessageQueue
from orbitmq.spark.brokers import Brokers, offset_at
from orbitmq.spark.errors import SinkStateError
from orbitmq.spark.group_progress import GroupProgress
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.task import TaskId

log = logging.getLogger("orbitmq.spark")

# Clocks of driver and brokers may differ by this much when a batch job's task is tried again.
CLOCK_MARGIN_MS = 600_000


class ClusterLedger:
    """Keeps nothing but offsets of two groups in the brokers: where the topics ended after the last batches.

    Batches with an even number use one group, those with an odd number the other. A batch looks for its
    messages from where the one before it ended: that is what the other group says, also when the batch itself
    has already been committed. An offset that a broker lost, or never knew, means to look from further back.

    Args:
        brokers: the way to the cluster.
        query_id: names the groups.
    """

    def __init__(self, brokers: Brokers, query_id: str) -> None:
        self._brokers = brokers
        self._query_id = query_id

    def begin(self, topic: str, batch_id: int, queues: Iterable[MessageQueue]) -> Offsets:
        """Where to look for messages of the batch; queues without an offset from their beginning."""
        addresses = {
            queue: address
            for queue, address in self._brokers.readable([topic]).items()
            if self._brokers.is_master(topic, address)
        }
        found = self._brokers.committed(self.group(batch_id - 1), addresses)
        if batch_id and not found:
            log.warning("no end of batch %d is known: %s is read from its beginning", batch_id - 1, topic)
        wanted = set(queues)
        return Offsets({queue: offset for queue, offset in found.items() if queue in wanted and offset >= 0})

    def commit(self, batch_id: int, ends: Mapping[MessageQueue, int]) -> None:
        """Tell where the topics end after a batch. A broker that cannot be told makes a replay slower."""
        GroupProgress(self._brokers, self.group(batch_id)).publish(ends)

    def group(self, batch_id: int) -> str:
        """The group that holds where the topics ended after a batch."""
        return f"orbitmq-spark-sink-{self._query_id}-{batch_id % 2}"


class JobLedger:
    """Of a batch job: a task that is tried again looks from where the job began.

    Args:
        started_ms: by the driver's clock.
    """

    def __init__(self, brokers: Brokers, started_ms: int) -> None:
        self._brokers = brokers
        self._since_ms = started_ms - CLOCK_MARGIN_MS

    def begin(self, task: TaskId, topic: str, attempt: int) -> Offsets | None:
        """Where to look for messages of the task's earlier attempts; ``None``: there was none."""
        if not attempt:
            return None
        queues = self._brokers.readable([topic])
        if not queues:
            raise SinkStateError(f"what {task.text} stored in {topic!r} earlier cannot be read")
        return Offsets(self._brokers.offsets(queues, lambda queue: offset_at(queue, self._since_ms)))
