"""Sending the messages of one task in batches, many at a time, each once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.client.producer.budget import retryable_code
from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.batch import encode_batch
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import AUTO_CREATE_TOPIC
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.brokers import Brokers, Patience
from orbitmq.spark.errors import SchemaError, SinkStateError, UnreachableError
from orbitmq.spark.messages import Row, TaskId
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.replay import Replay
from orbitmq.spark.stored import StoredRows
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendBatchMessageRequest

log = logging.getLogger("orbitmq.spark")

DEFAULT_QUEUES = 4
# Rows of a replay wait until all stored messages are accounted for; past this they are sent all the same.
HELD_BYTES = 64 << 20
SAME_PARTITIONS = (
    "the rows of a replayed batch must be in the same partitions (sort or hash-partition the data frame "
    "by its content, keep the number of partitions)"
)

# The message is in the broker's log; the last three only say that a promise about it is late.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
# What a producer retries, and FLOW_CONTROL.
_ALSO_RETRIED = frozenset({ResponseCode.FLOW_CONTROL})


class Begun(NamedTuple):
    """How a task stands to a topic.

    Attributes:
        ends: where the topic's queues ended before this task first sent to it.
        again: whether an earlier attempt may have sent some of it.
    """

    ends: Offsets
    again: bool


Begin = Callable[[str, Brokers], Begun]


@dataclass(slots=True)
class _Topic:
    """One topic of a task: what is stored, and what is on its way.

    Attributes:
        held: rows that wait until it is known that the replay fits what is stored.
        rows: of the batch that is being filled; ``items`` are their encoded messages.
    """

    begun: Begun
    replay: Replay
    held: deque[Row] = field(default_factory=deque)
    held_bytes: int = 0
    rows: list[Row] = field(default_factory=list)
    items: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class _Batch(NamedTuple):
    rows: list[Row]
    items: list[bytes]

    @property
    def topic(self) -> str:
        return self.rows[0].message.topic


class TaskSender:
    """Sends the rows of one task.

    Args:
        options: limits and time-outs.
        task: whose rows.
        begin: called with each topic before the first message goes to it.
    """

    def __init__(self, options: WriteOptions, task: TaskId, begin: Begin) -> None:
        self.task = task
        self.sent = 0
        self._options = options
        self._begin = begin
        self._brokers = Brokers(options.name_servers, options.request_timeout_ms)
        self._stored = StoredRows(options, task, self._brokers)
        self._topics: dict[str, _Topic] = {}
        self._full: list[_Batch] = []
        self._next = task.partition

    def resume(self, topics: Iterable[str]) -> None:
        """Look up first what earlier attempts stored in ``topics``, also when no row goes there this time.

        Raises:
            UnreachableError: the brokers of a topic were away for longer than ``retryTimeout``.
        """
        for name in topics:
            self._topics[name] = self._first(name)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take the next rows; what fills a pipeline is sent.

        Raises:
            BrokerError: a broker refuses a message.
            UnreachableError: no broker took it before the deadline.
            SchemaError: a row is no message that could be sent.
        """
        for row in rows:
            name = row.message.topic
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._first(name)
            if topic.replay.take(row.digest):
                self._release(topic)
            elif topic.replay.counts.unmatched and topic.held_bytes < HELD_BYTES:
                topic.held.append(row)
                topic.held_bytes += len(row.message.body)
            else:
                self._add(topic, row)

    def flush(self) -> None:
        """Send what is left. Errors as with :meth:`add_all`.

        Raises:
            SinkStateError: an earlier attempt stored messages that no row of this one fits.
        """
        for name, topic in self._topics.items():
            matched, unmatched = topic.replay.counts
            if unmatched:
                raise SinkStateError(
                    f"task {self.task.text} stored {matched + unmatched} messages in {name!r} earlier; "
                    f"{unmatched} of them fit no row of this attempt, which sent {self.sent}: "
                    f"{SAME_PARTITIONS}"
                )
            self._release(topic)
            self._close(topic)
        self._send()

    def _first(self, name: str) -> _Topic:
        begun = self._begin(name, self._brokers)
        return _Topic(begun, Replay(self._stored.read(name, begun.ends) if begun.again else ()))

    def _release(self, topic: _Topic) -> None:
        """Send the rows that waited, once every stored message is accounted for."""
        if not topic.replay.counts.unmatched:
            topic.held_bytes = 0
            while topic.held:
                self._add(topic, topic.held.popleft())

    def _add(self, topic: _Topic, row: Row) -> None:
        item = self._encoded(row)
        if topic.items and topic.size_bytes + len(item) > self._options.batch_bytes:
            self._close(topic)
        topic.rows.append(row)
        topic.items.append(item)
        topic.size_bytes += len(item)
        if len(self._full) >= self._options.pipeline:
            self._send()

    def _encoded(self, row: Row) -> bytes:
        try:
            return encode_batch([row.message])
        except MessageFormatError as error:
            raise SchemaError(f"row {row.number} of {self.task.text} cannot be sent: {error}") from error

    def _close(self, topic: _Topic) -> None:
        if topic.rows:
            self._full.append(_Batch(topic.rows, topic.items))
            topic.rows, topic.items, topic.size_bytes = [], [], 0

    def _send(self) -> None:
        """Send all full batches; what a broker does not take goes to the next queue."""
        patience = Patience(self._options.retry_timeout_ms)
        todo, self._full = self._full, []
        while todo:
            todo, lost, reason = self._round(todo)
            if not todo:
                return
            if reason:
                if patience.is_over:
                    raise UnreachableError(
                        f"{sum(len(b.rows) for b in todo)} messages were not taken: {reason}"
                    )
                patience.pause()
            for name in sorted({batch.topic for batch in todo}):
                self._refresh(name)
                if lost:
                    # No answer does not mean not stored.
                    todo = self._without_stored(name, todo)

    def _refresh(self, name: str) -> None:
        try:
            self._brokers.route(name, refresh=True)
        except (UnreachableError, TopicNotFoundError) as error:
            log.info("no fresh route of %s, the known one is used: %s", name, error)

    def _without_stored(self, name: str, left: list[_Batch]) -> list[_Batch]:
        topic = self._topics[name]
        wanted = {(r.number, r.digest) for batch in left if batch.topic == name for r in batch.rows}
        stored = topic.replay.new_among(self._stored.read(name, topic.begun.ends), wanted)
        self.sent += len(stored)
        kept = []
        for batch in left:
            pairs = [
                (row, item)
                for row, item in zip(batch.rows, batch.items, strict=True)
                if batch.topic != name or (row.number, row.digest) not in stored
            ]
            if pairs:
                kept.append(_Batch([row for row, _ in pairs], [item for _, item in pairs]))
        return kept

    def _round(self, todo: list[_Batch]) -> tuple[list[_Batch], bool, str]:
        """Send each batch once: those that were not taken, whether answers were lost, and why."""
        by_address: dict[str, list[tuple[MessageQueue, _Batch]]] = {}
        left: list[_Batch] = []
        lost, reason = False, ""
        for batch in todo:
            try:
                queue, address = self._next_queue(batch.topic)
            except (UnreachableError, TopicNotFoundError) as error:
                reason = str(error)
                left.append(batch)
            else:
                by_address.setdefault(address, []).append((queue, batch))
        for address, chunks in by_address.items():
            commands = [self._command(queue, batch) for queue, batch in chunks]
            try:
                answers = self._brokers.ask(address, commands, repeatable=False)
            except UnreachableError as error:
                lost, reason = True, str(error)
                left += [batch for _, batch in chunks]
                continue
            for (_, batch), answer in zip(chunks, answers, strict=True):
                if answer.code in _STORED:
                    self.sent += len(batch.rows)
                elif retryable_code(answer.code, _ALSO_RETRIED):
                    reason = f"{address} answers {answer.code}: {answer.remark}"
                    left.append(batch)
                else:
                    left += self._refused(batch, answer, address)
        return left, lost, reason

    def _refused(self, batch: _Batch, answer: Command, address: str) -> list[_Batch]:
        """The batch in pieces, when one of its messages may be what the broker refuses.

        Raises:
            BrokerError: it refuses a single message, or any.
        """
        if answer.code != ResponseCode.MESSAGE_ILLEGAL:
            raise BrokerError(answer.code, answer.remark, address)
        if len(batch.rows) > 1:
            return [_Batch([row], [item]) for row, item in zip(batch.rows, batch.items, strict=True)]
        row = batch.rows[0]
        size = len(row.message.body)
        where = f"row {row.number} of {self.task.text}, a body of {size} bytes"
        raise BrokerError(answer.code, f"{where}: {answer.remark}", address)

    def _next_queue(self, topic: str) -> tuple[MessageQueue, str]:
        writable = self._brokers.route(topic).writable
        if not writable:
            raise UnreachableError(f"topic {topic!r} has no queue that can be written now")
        queue = sorted(writable)[self._next % len(writable)]
        self._next += 1
        return queue, writable[queue]

    def _command(self, queue: MessageQueue, batch: _Batch) -> Command:
        request = SendBatchMessageRequest(
            producer_group=self._options.producer_group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=this_worker().clock.now_ms(),
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=True,
            broker_name=queue.broker_name,
        )
        return request.command(b"".join(batch.items))
