"""What a writer must know of earlier attempts, when it keeps no files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers, by_address, offset_at
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.read.group_progress import register, tell_offsets
from orbitmq.spark.write.task import Since, TaskId

log = logging.getLogger("orbitmq.spark")

# Clocks of driver and brokers may differ by this much when a batch job's task is tried again.
CLOCK_MARGIN_MS = 600_000
# Under numbers of queues that no topic has: which batch the offsets are of, and the last batch of all.
MARK_QUEUE, LAST_QUEUE = 65_535, 65_534
# Which job wrote partition 0, 1, ... last: a topic keeps one number for each, whatever the number of jobs.
JOBS_GROUP = "orbitmq-spark-jobs"
SINK_GROUPS = "orbitmq-spark-sink-"
JOB_QUEUE, JOB_QUEUES = 65_533, 32_768


def is_of_writers(group: str) -> bool:
    """Whether a group is no consumer: its offsets are what writers keep in the brokers."""
    return group == JOBS_GROUP or group.startswith(SINK_GROUPS)


class ClusterLedger:
    """Keeps nothing but offsets of two groups in the brokers: where the topics ended after the last batches.

    Batches with an even number use one group, those with an odd number the other. A batch looks for its
    messages from where the one before it ended: that is what the other group says, also when the batch itself
    has already been committed. Each broker says of which batch its offsets are. Those of an older batch mean
    to look from further back; those of a later one do not count. When somebody has brought back an old
    checkpoint, nothing is known until its batches have overtaken those that were there.

    Args:
        brokers: the way to the cluster.
        query_id: names the groups.
    """

    def __init__(self, brokers: Brokers, query_id: str) -> None:
        self._brokers = brokers
        self._query_id = query_id

    def begin(self, topic: str, batch_id: int, queues: Iterable[MessageQueue]) -> Offsets:
        """Where to look for messages of the batch; queues without an offset from their beginning."""
        addresses = _at_masters(self._brokers, topic)
        marks = {_at(queue, MARK_QUEUE): address for queue, address in addresses.items()}
        found = self._brokers.committed(self.group(batch_id - 1), addresses | marks)
        known = {
            queue: offset
            for queue, offset in found.items()
            if queue in addresses
            and 0 <= found.get(_at(queue, MARK_QUEUE), batch_id) < batch_id
            and offset >= 0
        }
        if batch_id and not known:
            log.warning("no end of batch %d is known: %s is read from its beginning", batch_id - 1, topic)
        wanted = set(queues)
        return Offsets({queue: offset for queue, offset in known.items() if queue in wanted})

    def commit(self, batch_id: int, ends: Mapping[MessageQueue, int]) -> None:
        """Tell where the topics end after a batch. A broker that cannot be told makes a replay slower."""
        for topic in {queue.topic for queue in ends}:
            addresses = _at_masters(self._brokers, topic)
            for address, owned in by_address(addresses).items():
                own = {queue: ends[queue] for queue in owned if queue in ends}
                try:
                    self._tell(address, batch_id, own)
                except OrbitError as error:
                    log.warning("the end of batch %d is not kept by all brokers: %s", batch_id, error)

    def _tell(self, address: str, batch_id: int, ends: Mapping[MessageQueue, int]) -> None:
        queue = next(iter(ends), None)
        if queue is None:
            return
        group = self.group(batch_id)
        last = _at(queue, LAST_QUEUE)
        known = self._brokers.committed(self.group(0), {last: address}).get(last, batch_id)
        for name in {group, self.group(0)}:
            register(self._brokers, address, name, {queue.topic})
        # The number first: an old offset with a new number is only further back.
        tell_offsets(self._brokers, address, group, {_at(queue, MARK_QUEUE): batch_id})
        tell_offsets(self._brokers, address, self.group(0), {last: max(known, batch_id)})
        tell_offsets(self._brokers, address, group, ends if known <= batch_id else dict.fromkeys(ends, 0))

    def group(self, batch_id: int) -> str:
        """The group that holds where the topics ended after a batch."""
        return f"{SINK_GROUPS}{self._query_id}-{batch_id % 2}"


def _at_masters(brokers: Brokers, topic: str) -> dict[MessageQueue, str]:
    """The queues that a master serves, and its address."""
    route = brokers.route(topic)
    return {queue: at for queue, at in route.readable.items() if at in route.masters}


def _at(queue: MessageQueue, queue_id: int) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker_name, queue_id)


class JobLedger:
    """Of a batch job: a task that is tried again looks from where the job began.

    Spark counts a task's attempts anew when it runs a stage again, and does not tell Python which attempt of
    the stage it is. So each attempt leaves its job's run in every master of the topic before it sends, as the
    offset of one group for all jobs, under a queue number of the partition's own. Who finds the mark of its
    own run is not the first. A later run may have written over it: who finds one looks, too. Runs go by the
    drivers' clocks.

    Args:
        started_ms: by the driver's clock.
        known: the queues that the driver saw then. A broker of theirs that is away now is waited for.
    """

    def __init__(self, brokers: Brokers, started_ms: int, known: frozenset[MessageQueue]) -> None:
        self._brokers = brokers
        self._since_ms = started_ms - CLOCK_MARGIN_MS
        self._known = known

    def begin(self, task: TaskId, topic: str, attempt: int) -> Since | None:
        """Where to look for messages of the task's earlier attempts; ``None``: there was none.

        Raises:
            UnreachableError: a broker does not answer.
        """
        if not self._is_marked(task, topic) and not attempt:
            return None
        queues = self._brokers.readable([topic])
        if not queues:
            raise SinkStateError(f"what {task.text} stored in {topic!r} earlier cannot be read")
        known: Since = {queue: None for queue in self._known if queue.topic == topic}
        return {**known, **self._brokers.offsets(queues, lambda queue: offset_at(queue, self._since_ms))}

    def _is_marked(self, task: TaskId, topic: str) -> bool:
        """Whether an attempt of this partition was here before this one, which leaves its mark now."""
        # Partitions that share a number only look without need.
        queue_id = JOB_QUEUE - task.partition % JOB_QUEUES
        marks = {_at(queue, queue_id): at for queue, at in _at_masters(self._brokers, topic).items()}
        try:
            found = self._brokers.committed(JOBS_GROUP, marks)
            for queue, address in marks.items():
                if found.get(queue, 0) < task.run_number:
                    self._mark(address, queue, task.run_number)
        except UnreachableError:
            raise
        except OrbitError as error:
            log.warning("%s sends again what it has sent if its stage is tried again: %s", task.text, error)
            return False
        return any(run >= task.run_number for run in found.values())

    def _mark(self, address: str, queue: MessageQueue, run: int) -> None:
        try:
            tell_offsets(self._brokers, address, JOBS_GROUP, {queue: run})
        except UnreachableError:
            raise
        except OrbitError:  # RocketMQ's brokers want to know the group
            register(self._brokers, address, JOBS_GROUP, {queue.topic})
            tell_offsets(self._brokers, address, JOBS_GROUP, {queue: run})
