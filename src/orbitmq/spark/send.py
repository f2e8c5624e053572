"""Sending the messages of one task in batches, many at a time, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from orbitmq.errors import BrokerError
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.reserved import AUTO_CREATE_TOPIC
from orbitmq.runtime.system import SystemClock
from orbitmq.spark.arrow import BatchMaker, message_schema
from orbitmq.spark.brokers import Brokers, Patience, is_busy, max_offset
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.messages import TaskId
from orbitmq.spark.offsets import Offsets, backlog
from orbitmq.spark.options import ReadOptions, WriteOptions
from orbitmq.spark.partitions import QueueRange
from orbitmq.spark.pull import RangeReader
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendBatchMessageRequest

DEFAULT_QUEUES = 4
# What a message takes in a batch beside its body: lengths, flag, and about this much of properties.
ITEM_BYTES = 200

# The message is in the broker's log; the last three only say that a promise about it is late.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


class Begun(NamedTuple):
    """How a task stands to a topic.

    Attributes:
        ends: where the topic's queues ended before this task first sent to it.
        again: whether an earlier attempt may have sent some of it.
    """

    ends: Offsets
    again: bool


Begin = Callable[[str, Brokers], Begun]
Numbered = tuple[int, Message]


class TaskSender:
    """Sends the rows of one task.

    Args:
        options: limits and time-outs.
        task: who sends.
        begin: called with each topic before the first message goes to it.
    """

    def __init__(self, options: WriteOptions, task: TaskId, begin: Begin) -> None:
        self.task = task
        self.sent = 0
        self._options = options
        self._begin = begin
        self._brokers = Brokers(options.name_servers, options.request_timeout_ms)
        self._before: dict[str, Offsets] = {}
        self._stored: set[int] = set()
        self._rows = 0
        self._open: dict[str, list[Numbered]] = {}
        self._open_bytes: dict[str, int] = {}
        self._full: list[list[Numbered]] = []
        self._next = task.partition

    def add_all(self, messages: Iterable[Message]) -> None:
        """Take the next rows; what fills a pipeline is sent.

        Raises:
            BrokerError: a broker refuses a message.
            UnreachableError: no broker took it before the deadline.
        """
        for message in messages:
            if message.topic not in self._before:
                self._first(message.topic)
            row = self._rows
            self._rows += 1
            if row not in self._stored:
                self._add(row, message)

    def flush(self) -> None:
        """Send what is left. Errors as with :meth:`add_all`."""
        self._full += [rows for rows in self._open.values() if rows]
        self._open.clear()
        self._open_bytes.clear()
        self._send()

    def _first(self, topic: str) -> None:
        begun = self._begin(topic, self._brokers)
        self._before[topic] = begun.ends
        if begun.again:
            self._stored |= self._find_stored(topic)

    def _add(self, row: int, message: Message) -> None:
        topic = message.topic
        self._open.setdefault(topic, []).append((row, message))
        size = self._open_bytes.get(topic, 0) + len(message.body) + ITEM_BYTES
        self._open_bytes[topic] = size
        if size >= self._options.batch_bytes:
            self._full.append(self._open.pop(topic))
            del self._open_bytes[topic]
            if len(self._full) >= self._options.pipeline:
                self._send()

    def _send(self) -> None:
        """Send all full batches; what a broker does not take goes to the next queue."""
        patience = Patience(self._options.retry_timeout_ms)
        todo, self._full = self._full, []
        while todo:
            left, lost, reason = self._round(todo)
            if not left:
                return
            if patience.is_over:
                raise UnreachableError(f"{sum(map(len, left))} messages were not taken: {reason}")
            patience.pause()
            topics = {rows[0][1].topic for rows in left}
            for topic in topics:
                self._brokers.route(topic, refresh=True)
                if lost:
                    # No answer does not mean not stored.
                    self._stored |= self._find_stored(topic)
            kept = [[entry for entry in rows if entry[0] not in self._stored] for rows in left]
            todo = [rows for rows in kept if rows]

    def _round(self, todo: list[list[Numbered]]) -> tuple[list[list[Numbered]], bool, str]:
        """Send each batch once: those that were not taken, whether answers were lost, and why."""
        by_address: dict[str, list[tuple[MessageQueue, list[Numbered]]]] = {}
        for rows in todo:
            queue, address = self._next_queue(rows[0][1].topic)
            by_address.setdefault(address, []).append((queue, rows))
        left: list[list[Numbered]] = []
        lost, reason = False, ""
        for address, chunks in by_address.items():
            commands = [self._command(queue, rows) for queue, rows in chunks]
            try:
                answers = self._brokers.ask(address, commands)
            except UnreachableError as error:
                lost, reason = True, str(error)
                left += [rows for _, rows in chunks]
                continue
            for (_, rows), answer in zip(chunks, answers, strict=True):
                if answer.code in _STORED:
                    self.sent += len(rows)
                elif is_busy(answer.code):
                    reason = f"{address} is busy: {answer.remark}"
                    left.append(rows)
                else:
                    raise BrokerError(answer.code, answer.remark, address)
        return left, lost, reason

    def _next_queue(self, topic: str) -> tuple[MessageQueue, str]:
        writable = self._brokers.route(topic).writable
        if not writable:
            raise UnreachableError(f"topic {topic!r} has no writable queue")
        queue = sorted(writable)[self._next % len(writable)]
        self._next += 1
        return queue, writable[queue]

    def _command(self, queue: MessageQueue, rows: list[Numbered]) -> Command:
        request = SendBatchMessageRequest(
            producer_group=self._options.producer_group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=SystemClock().now_ms(),
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=True,
            broker_name=queue.broker_name,
        )
        return request.command(encode_batch([message for _, message in rows]))

    def _find_stored(self, topic: str) -> set[int]:
        """The rows of this task that are in the topic already."""
        before = self._before[topic]
        queues = self._brokers.readable([topic], refresh=True)
        now = Offsets(self._brokers.offsets(queues, max_offset))
        ranges = [QueueRange(q, before.get(q, 0), now[q]) for q in backlog(before, now)]
        options = ReadOptions(
            topics=(topic,),
            name_servers=self._options.name_servers,
            consumer_group=self._options.producer_group,
            request_timeout_ms=self._options.request_timeout_ms,
            offset_timeout_ms=self._options.retry_timeout_ms,
        )
        maker = BatchMaker(message_schema(["message_id"]))
        prefix = self.task.prefix
        found: set[int] = set()
        for batch in RangeReader(self._brokers, options).batches(ranges, maker):
            rows = (self.task.row_of(key, prefix) for key in batch.column(0).to_pylist())
            found.update(row for row in rows if row is not None)
        return found
