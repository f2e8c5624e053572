"""Sends the rows of one task: encoded into batches, with several requests in flight to each broker."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.batch import iter_batch
from orbitmq.message.batch_encoder import BatchEncoder
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers, RetryWindow
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import SchemaError, UnreachableError
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.fencing import Fencing
from orbitmq.spark.write.in_flight import Failure, InFlight, SendRequest
from orbitmq.spark.write.look import route_to_write
from orbitmq.spark.write.metrics import SendMetrics
from orbitmq.spark.write.replay import Replay
from orbitmq.spark.write.rows import DELAYING, QUEUE_ID, Portion, RowLoader
from orbitmq.spark.write.scan import StoredRows, patiently
from orbitmq.spark.write.task import SPARK_ID, Since, TaskId, id_mark, row_of_key
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.frame import MAX_FRAME_BYTES

log = logging.getLogger("orbitmq.spark")

# Most bytes of messages in a request: the limit of a frame without its header.
LARGEST_SEND_BYTES = MAX_FRAME_BYTES - (128 << 10)
# Most batches that are filled at a time: one for each queue of rows with an order.
MAX_OPEN = 256
# Most messages of one batch: the fast path of OrbitMQ's brokers accepts no more, and the slow path costs
# several times as much.
MAX_ITEMS = 256

# Called before a task's first send to a topic, with the ends of its queues; returns the offsets at which the
# search for messages of earlier attempts begins, if there may be any.
Begin = Callable[[str, Offsets], Since | None]


@dataclass(slots=True)
class _Open:
    """A batch that is being filled."""

    out: memoryview
    used: int = 0
    count: int = 0


class TaskSender:
    """Sends the rows of one task.

    Args:
        options: limits, timeouts, delivery.
        task: the task of the rows.
        columns: names of the data frame's columns.
        begin: called with each topic and the ends of its queues before the first message is sent to it.
    """

    def __init__(self, options: WriteOptions, task: TaskId, columns: frozenset[str], begin: Begin) -> None:
        self.task = task
        self.metrics = SendMetrics()
        self.replay = Replay(task)
        self.topics: dict[str, Offsets] = {}
        self._options = options
        self._begin = begin
        self._brokers = Brokers(
            options.name_servers, options.request_timeout_ms, options.routes, options.identity
        )
        delayed = bool(columns & DELAYING)
        self._fencing = Fencing(self._brokers, task) if options.is_exact else None
        self._stored = StoredRows(options, self._brokers, delayed=delayed, fencing=self._fencing)
        self._has_queue_ids = QUEUE_ID in columns
        self._knows_rows = options.is_exact
        self._encoder = BatchEncoder(task.key_prefix, task.id_head if self._knows_rows else b"", (SPARK_ID,))
        self._loader = RowLoader(self._encoder, task, options.topic)
        self._flights = InFlight(self._brokers, options, self.metrics, task.partition, self._fencing)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._open: dict[tuple[str, int | None], _Open] = {}

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._loader.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows, and send full batches.

        Raises:
            BrokerError: a broker refuses a message.
            UnreachableError: no broker accepted it before the deadline.
            SchemaError: a row is no valid message.
        """
        if not batch.num_rows:
            return
        self._loader.load(batch)
        for topic in self._loader.topics:
            if topic not in self.topics:
                self._first(topic)
        wanted = self._not_stored(batch.num_rows) if self.replay.earlier else None
        counts = {topic: len(self._queues[topic]) for topic in self._loader.topics}
        for portion in self._loader.portions(counts, wanted):
            if portion.delayed:
                self._send_alone(portion)
            else:
                self._fill(portion)
        if len(self._open) > MAX_OPEN:
            self._ship_all()

    def finish(self) -> None:
        """Send the remaining batches and wait until all rows are stored. Errors as with :meth:`add`."""
        self._ship_all()
        self._flights.drain()
        self._recover()

    def close(self) -> None:
        """Close the connections."""
        self._flights.close()

    def _first(self, topic: str) -> None:
        """Find the queues of a topic, the ends of the queues, and the messages of earlier attempts."""
        route_to_write(self._brokers, topic, self._options, self._options.retry_timeout_ms)
        ends = self._stored.ends(topic) if self._knows_rows else Offsets({})
        self.topics[topic] = ends
        self._queues[topic] = self._writable(topic)
        earlier = self._begin(topic, ends)
        if earlier is not None:
            mark = id_mark(self.task.query_id, self.task.batch_id)
            self.replay.found(self._stored.rows(topic, earlier, mark))

    def _writable(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic; they stay the same for the whole task, so that a key keeps its queue."""

        def ask() -> list[MessageQueue]:
            found = sorted(self._brokers.route(topic, refresh=True).writable)
            if not found:
                raise UnreachableError(f"topic {topic!r} has no queue that can be written now")
            return found

        return patiently(self._options.retry_timeout_ms, ask)

    def _not_stored(self, rows: int) -> memoryview:
        digests = self._encoder.digests
        return memoryview(array("q", [row for row in range(rows) if not self.replay.take(digests[row])]))

    def _queue(self, portion: Portion) -> MessageQueue | None:
        if portion.lane is None:
            return None
        queues = self._queues[portion.topic]
        if not self._has_queue_ids:
            return queues[portion.lane]
        for queue in queues:
            if queue.queue_id == portion.lane:
                return queue
        raise SchemaError(f"topic {portion.topic!r} has no queue {portion.lane} that can be written")

    def _fill(self, portion: Portion) -> None:
        queue = self._queue(portion)
        limit = self._options.batch_bytes
        key = portion.topic, portion.lane
        opened = self._open.get(key)
        if opened is None:
            opened = self._open[key] = _Open(self._memory())
        encoder, at, stop = self._encoder, 0, len(portion.selection)
        while at < stop:
            encoder.used = opened.used
            most = min(stop, at + MAX_ITEMS - opened.count)
            reached = encoder.fill(portion.selection, at, most, opened.out, limit)
            opened.count += reached - at
            opened.used, at = encoder.used, reached
            if at < stop and not opened.used:
                # A long message is not sent as a batch of one: its body alone may have the longest size that
                # a broker allows.
                self._put(SendRequest(portion.topic, self._item(portion, at), 1, queue, alone=True))
                at += 1
            elif at < stop:
                self._ship(portion.topic, opened, queue)

    def _send_alone(self, portion: Portion) -> None:
        queue = self._queue(portion)
        for at in range(len(portion.selection)):
            self._put(SendRequest(portion.topic, self._item(portion, at), 1, queue, alone=True))

    def _item(self, portion: Portion, at: int) -> bytes:
        row = portion.selection[at]
        size = self._encoder.sizes[row]
        if size > LARGEST_SEND_BYTES:
            number = self._loader.rows - len(self._encoder.sizes) + row
            raise SchemaError(
                f"row {number} of {self.task.text} is a message of {size} bytes, a request holds "
                f"{LARGEST_SEND_BYTES}"
            )
        out = memoryview(bytearray(size))
        self._encoder.used = 0
        self._encoder.fill(portion.selection, at, at + 1, out, size)
        return bytes(out)

    def _ship_all(self) -> None:
        for (topic, lane), opened in self._open.items():
            if opened.count:
                nothing = memoryview(array("q"))
                self._ship(topic, opened, self._queue(Portion(topic, lane, False, nothing)))
        self._open.clear()

    def _ship(self, topic: str, opened: _Open, queue: MessageQueue | None) -> None:
        items = opened.out[: opened.used]
        request = SendRequest(topic, items, opened.count, queue, memory=opened.out)
        opened.out, opened.used, opened.count = self._memory(), 0, 0
        self._put(request)

    def _memory(self) -> memoryview:
        """A buffer for one batch: reused from a batch that a broker has accepted, or a new one."""
        spent = self._flights.spent
        return spent.pop() if spent else memoryview(bytearray(self._options.batch_bytes))

    def _put(self, request: SendRequest) -> None:
        self._flights.send(request)
        if self._flights.failures:
            self._flights.drain()
            self._recover()

    # -- failures -------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Send failed requests again until ``retryTimeout`` is over, with no other request in flight."""
        window = RetryWindow(self._options.retry_timeout_ms)
        while failures := self._flights.failures:
            self._flights.failures = []
            before = self.metrics.rows
            todo = [request for failure in failures for request in self._again(failure)]
            refused = any(failure.refused is not None for failure in failures)
            if not refused:
                if window.is_over:
                    count = sum(request.count for request in todo)
                    raise UnreachableError(f"{count} messages were not taken: {failures[0].reason}")
                window.pause()
            lost = {failure.request.topic for failure in failures if failure.lost}
            if lost and self._fencing is not None:
                # All connections belong to the turn that ends here, even those that still work.
                self._flights.close()
                self._fencing.next_turn()
            for topic in sorted({request.topic for request in todo}):
                self._refresh(topic)
                if topic in lost and self._fencing is not None:
                    # A message without an answer may be stored nevertheless.
                    todo = list(self._without_stored(topic, todo))
            self.metrics.retries += len(todo)
            for request in todo:
                self._flights.send(request)
            self._flights.drain()
            if self.metrics.rows > before:
                window.succeeded()

    def _again(self, failure: Failure) -> list[SendRequest]:
        """The requests to send again: the failed request, or one request per message if one message is
        refused.

        Raises:
            BrokerError: the broker refuses a single message, or the refusal is not about a message.
        """
        answer, request = failure.refused, failure.request
        if answer is None:
            return [request]
        if answer.code != ResponseCode.MESSAGE_ILLEGAL:
            raise BrokerError(answer.code, answer.remark, failure.address)
        if request.count > 1:
            return [
                SendRequest(request.topic, item, 1, request.queue, alone=True)
                for item, _, _ in _items(request)
            ]
        ((_, body, properties),) = _items(request)
        row = row_of_key(properties, self.task.key_prefix)
        where = f"row {row} of {self.task.text}, a body of {body} bytes"
        raise BrokerError(answer.code, f"{where}: {answer.remark}", failure.address)

    def _refresh(self, topic: str) -> None:
        try:
            self._brokers.route(topic, refresh=True)
        except (UnreachableError, TopicNotFoundError) as error:
            log.info("no fresh route of %s, the known one is used: %s", topic, error)

    def _without_stored(self, topic: str, todo: list[SendRequest]) -> Iterator[SendRequest]:
        mark = id_mark(self.task.query_id, self.task.batch_id)
        stored = {
            row.row
            for row in self._stored.rows(topic, self.topics[topic], mark)
            if row.partition == self.task.partition and row.attempt == self.task.attempt_text
        }
        for request in todo:
            if request.topic != topic:
                yield request
                continue
            left = [
                item
                for item, _, properties in _items(request)
                if row_of_key(properties, self.task.key_prefix) not in stored
            ]
            self.metrics.rows += request.count - len(left)
            if left:
                yield SendRequest(topic, b"".join(left), len(left), request.queue, request.alone)


def _items(request: SendRequest) -> Iterator[tuple[bytes, int, bytes]]:
    """The encoded items of a request, each with the size of its body and its properties."""
    at, items = 0, bytes(request.items)
    for item in iter_batch(items):
        size = int.from_bytes(items[at : at + 4], "big")
        yield items[at : at + size], len(item.body), item.properties
        at += size


def columns_of(schema: Any) -> frozenset[str]:
    """The names of a data frame's columns in lower case."""
    return frozenset(field.name.lower() for field in schema.fields)
