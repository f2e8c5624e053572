"""Which messages of a task are in a topic: asked after an earlier attempt or a lost answer."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.arrow import BatchMaker
from orbitmq.spark.brokers import Brokers, Patience, max_offset, min_offset
from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.messages import SPARK_ID, TaskId
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import ReadOptions, WriteOptions
from orbitmq.spark.partitions import QueueRange
from orbitmq.spark.pull import RangeReader
from orbitmq.spark.replay import Stored
from orbitmq.spark.schema import message_schema
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

DISPATCH_BEHIND = "dispatchBehindBytes"


class StoredRows:
    """Reads what a task has stored.

    Args:
        options: limits and time-outs.
        task: whose messages.
        brokers: the way to the cluster.
    """

    def __init__(self, options: WriteOptions, task: TaskId, brokers: Brokers) -> None:
        self._options = options
        self._task = task
        self._brokers = brokers

    def read(self, topic: str, since: Offsets) -> Iterator[Stored]:
        """The rows of the task that ``topic`` holds from ``since`` on.

        Waits for brokers that are away, and until each master has dispatched what it stored: a message that
        cannot be seen yet must not be sent a second time.

        Raises:
            UnreachableError: the master of a queue was away for longer than ``retryTimeout``.
            SinkStateError: a message names the task, but not the digest of its row.
        """
        ranges = self._ranges(topic, since)
        options = ReadOptions(
            topics=(topic,),
            name_servers=self._options.name_servers,
            group_id=self._options.producer_group,
            request_timeout_ms=self._options.request_timeout_ms,
            offset_timeout_ms=self._options.retry_timeout_ms,
        )
        maker = BatchMaker(message_schema(["message_id", "properties"]))
        prefix = self._task.prefix
        for batch in RangeReader(self._brokers, options).batches(ranges, maker):
            for i, key in enumerate(batch.column(0).to_pylist()):
                row = self._task.row_of(key, prefix)
                if row is not None:
                    yield row, _digest(dict(batch.column(1)[i].as_py()), key)

    def _ranges(self, topic: str, since: Offsets) -> list[QueueRange]:
        patience = Patience(self._options.retry_timeout_ms)
        while True:
            try:
                return self._ranges_now(topic, since)
            except (UnreachableError, TopicNotFoundError) as error:
                if patience.is_over:
                    raise UnreachableError(
                        f"what task {self._task.text} stored in {topic!r} cannot be read: {error}"
                    ) from error
                patience.pause()

    def _ranges_now(self, topic: str, since: Offsets) -> list[QueueRange]:
        route = self._brokers.route(topic, refresh=True)
        masters: dict[MessageQueue, str] = {}
        for queue in sorted({*since, *route.writable}):
            address = route.readable.get(queue, "")
            if address not in route.masters:
                raise UnreachableError(f"the master of {queue} is away")
            masters[queue] = address
        for address in sorted(set(masters.values())):
            self._check_dispatched(address)
        ends = self._brokers.offsets(masters, max_offset)
        unknown = {queue: at for queue, at in masters.items() if queue not in since}
        begins = {**self._brokers.offsets(unknown, min_offset), **since}
        return [QueueRange(q, begins[q], end) for q, end in sorted(ends.items()) if begins[q] < end]

    def _check_dispatched(self, address: str) -> None:
        request = Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        (answer,) = self._brokers.ask(address, [request])
        if answer.code != ResponseCode.SUCCESS:
            raise UnreachableError(f"{address} does not tell its state: {answer.code} {answer.remark}")
        behind = KVTable.decode(answer.body).table.get(DISPATCH_BEHIND, "0")
        if behind.isdigit() and int(behind):
            raise UnreachableError(f"{address} has not dispatched {behind} bytes of its log yet")


def _digest(properties: dict[str, str], key: str) -> str:
    digest = properties.get(SPARK_ID, "").rpartition("/")[2]
    if len(digest) != 16:
        raise SinkStateError(
            f"message {key} was sent by a version of this format that knew rows by number only; "
            f"let that version finish its batch"
        )
    return digest
