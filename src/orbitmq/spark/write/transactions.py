"""Transactional delivery: half messages that nobody sees, committed when the batch is.

The commit record names all half messages of the batch. Once it is written the batch is committed, whatever
happens: who runs the batch again ends what is not ended yet, by looking which messages are there. Half
messages that the record does not name are rolled back.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.record import iter_records
from orbitmq.settings import properties_text
from orbitmq.spark.cluster.brokers import Brokers, Patience, max_offset, messages_at, min_offset
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.flights import Taken
from orbitmq.spark.write.scan import StoredRows
from orbitmq.spark.write.task import Since, StoredRow, TaskId, id_mark, row_of_key, stored_row
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import EndTransactionRequest

# RocketMQ's fileReservedTime, for brokers that do not tell theirs.
USUAL_RETENTION_HOURS = 72
ENDS_AT_A_TIME = 256
PULLED_AT_A_TIME = 32


def retention_s(brokers: Brokers, topic: str) -> int:
    """How long the brokers of a topic keep messages, the longest of them.

    Raises:
        UnreachableError: one does not answer.
    """
    hours = [USUAL_RETENTION_HOURS]
    for address in sorted(set(brokers.route(topic).writable.values())):
        (answer,) = brokers.ask(address, [Command(RequestCode.GET_BROKER_CONFIG)])
        told = properties_text.parse(answer.body.decode()).get("fileReservedTime", "")
        hours.append(whole_number(told, INT32) or 0)
    return max(hours) * 3600


def half_properties(group: str, immunity_s: int) -> str:
    """What makes a message a half message.

    Args:
        immunity_s: how long brokers ask nobody about it: as long as it can be there. No process of a stopped
            query could answer, and after 15 questions without an answer a broker gives the message up.
    """
    return (
        f"{property_names.TRANSACTION_PREPARED}\x01true\x02{property_names.PRODUCER_GROUP}\x01{group}\x02"
        f"{property_names.CHECK_IMMUNITY_TIME_IN_SECONDS}\x01{immunity_s}\x02"
    )


class Half(NamedTuple):
    """A half message: which row it is, and where it is."""

    partition: int
    attempt: str
    row: int
    broker: str
    table_offset: int
    log_offset: int


def packed(taken: Iterable[Taken], task: TaskId) -> dict[str, bytes]:
    """The half messages of one task by broker: row, place in the half queue, place in the log of each."""
    found: dict[str, array[int]] = {}
    for entry in taken:
        row = row_of_key(bytes(entry.shipment.items), task.key_prefix)
        log_offset = parse_offset_message_id(entry.answer.msg_id.partition(",")[0])[2]
        numbers = found.setdefault(entry.queue.broker_name, array("q"))
        numbers.extend((-1 if row is None else row, entry.answer.queue_offset, log_offset))
    return {broker: numbers.tobytes() for broker, numbers in found.items()}


def unpacked(partition: int, attempt: str, halves: Mapping[str, bytes]) -> Iterator[Half]:
    """The other way."""
    for broker, data in halves.items():
        numbers = array("q")
        numbers.frombytes(data)
        for i in range(0, len(numbers), 3):
            yield Half(partition, attempt, numbers[i], broker, numbers[i + 1], numbers[i + 2])


class Committed(NamedTuple):
    """What a commit record says of half messages.

    Attributes:
        parts: partition, attempt and packed half messages of each task.
        ends: where the target queues ended before, by topic.
    """

    parts: Sequence[tuple[int, str, Mapping[str, bytes]]]
    ends: Mapping[str, Offsets]

    def to_json(self) -> dict[str, Any]:
        parts = [
            [partition, attempt, {broker: base64.b64encode(data).decode() for broker, data in halves.items()}]
            for partition, attempt, halves in self.parts
        ]
        return {"halves": parts, "ends": {topic: ends.to_json() for topic, ends in self.ends.items()}}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Committed:
        parts = [
            (partition, attempt, {broker: base64.b64decode(data) for broker, data in halves.items()})
            for partition, attempt, halves in record.get("halves", ())
        ]
        ends = {topic: Offsets.from_json(value) for topic, value in record.get("ends", {}).items()}
        return cls(parts, ends)

    def halves(self) -> list[Half]:
        return [half for part in self.parts for half in unpacked(*part)]


def left_to_end(halves: Iterable[Half], stored: Iterable[StoredRow]) -> list[Half]:
    """The half messages whose final messages are not there. A pure decision."""
    there = {(row.partition, row.attempt, row.row) for row in stored}
    return [half for half in halves if half[:3] not in there]


def to_roll_back(found: Iterable[Half], committed: Iterable[Half]) -> list[Half]:
    """The half messages of a batch that its commit does not name. A pure decision."""
    named = {(half.broker, half.table_offset) for half in committed}
    return [half for half in found if (half.broker, half.table_offset) not in named]


class Transactions:
    """Ends the half messages of a batch."""

    def __init__(self, options: WriteOptions, brokers: Brokers, query_id: str, batch_id: int) -> None:
        self._options = options
        self._brokers = brokers
        self._stored = StoredRows(options, brokers)
        self._mark = id_mark(query_id, batch_id)
        self._addresses: dict[str, str] = {}

    def half_ends(self, topic: str) -> Offsets:
        """Where the half queues of the brokers of ``topic`` end."""
        return Offsets(self._brokers.offsets(self._half_queues([topic]), max_offset))

    def commit(self, committed: Committed, *, again: bool) -> None:
        """Make the messages visible; each is committed once, also after lost answers.

        Args:
            again: an earlier attempt may have done some of it.

        Raises:
            UnreachableError, SinkStateError: not all could be committed; to run the batch again goes on.
        """
        left = committed.halves()
        topics = list(committed.ends)
        patience = Patience(self._options.retry_timeout_ms)
        reason = ""
        while left:
            if again:
                stored = [row for t, ends in committed.ends.items() for row in self._rows(t, ends)]
                left = left_to_end(left, stored)
            left, reason = self._end(left, topics, sysflag.TRANSACTION_COMMIT)
            if left:
                again = True
                if patience.is_over:
                    raise SinkStateError(f"{len(left)} half messages could not be committed: {reason}")
                patience.pause()

    def roll_back(self, begun: Mapping[str, Since], committed: Committed) -> int:
        """Roll back what attempts without success left; how many half messages.

        Args:
            begun: where the half queues ended before the batch, by topic; ``None``: from the first message.

        Raises:
            UnreachableError: a broker is away, or does not show its half messages (those of RocketMQ 4.9
                never do); those of the others are rolled back.
        """
        named: dict[MessageQueue, int | None] = {}
        for ends in begun.values():
            for queue, offset in ends.items():
                if queue.topic == reserved.TRANS_HALF_TOPIC:
                    before = named.get(queue, offset)
                    named[queue] = None if offset is None or before is None else min(offset, before)
        addresses = self._half_queues(list(begun))
        unknown = {queue: at for queue, at in addresses.items() if named.get(queue) is None}
        lows = self._brokers.offsets(unknown, min_offset)
        lows |= {queue: at for queue, at in named.items() if at is not None and queue in addresses}
        halves = [half for queue, low in lows.items() for half in self._halves(queue, addresses[queue], low)]
        wrong = to_roll_back(halves, committed.halves())
        self._end(wrong, list(begun), sysflag.TRANSACTION_ROLLBACK)
        for queue in sorted(named.keys() - addresses.keys()):
            raise UnreachableError(f"the master of {queue.broker_name} is away")
        return len(wrong)

    def _rows(self, topic: str, ends: Offsets) -> Iterator[StoredRow]:
        own = Offsets({queue: at for queue, at in ends.items() if queue.topic == topic})
        return self._stored.rows(topic, own, self._mark)

    def _half_queues(self, topics: Sequence[str]) -> dict[MessageQueue, str]:
        found: dict[MessageQueue, str] = {}
        for topic in topics:
            for queue, address in self._brokers.route(topic, refresh=True).writable.items():
                found[MessageQueue(reserved.TRANS_HALF_TOPIC, queue.broker_name, 0)] = address
        return found

    def _end(self, halves: Sequence[Half], topics: Sequence[str], state: int) -> tuple[list[Half], str]:
        """End each once; those that no broker has confirmed, and why."""
        addresses = {queue.broker_name: at for queue, at in self._half_queues(topics).items()}
        left: list[Half] = []
        reason = ""
        by_broker: dict[str, list[Half]] = {}
        for half in halves:
            by_broker.setdefault(half.broker, []).append(half)
        for broker, owned in by_broker.items():
            if broker not in addresses:
                left, reason = left + owned, f"the master of {broker} is away"
                continue
            for first in range(0, len(owned), ENDS_AT_A_TIME):
                some = owned[first : first + ENDS_AT_A_TIME]
                try:
                    requests = [self._request(half, state) for half in some]
                    answers = self._brokers.ask(addresses[broker], requests, repeatable=False)
                except UnreachableError as error:
                    left, reason = left + some, str(error)
                    continue
                for half, answer in zip(some, answers, strict=True):
                    if answer.code != ResponseCode.SUCCESS:
                        left.append(half)
                        reason = f"{addresses[broker]} answers {answer.code}: {answer.remark}"
        return left, reason

    def _request(self, half: Half, state: int) -> Command:
        task = f"{half.partition}/{half.attempt}/{half.row}"
        request = EndTransactionRequest(
            producer_group=self._options.producer_group,
            tran_state_table_offset=half.table_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=state,
            msg_id=task,
            # An answer from the record, as to a question of the broker: not bound to the immunity.
            from_transaction_check=True,
            bname=half.broker,
        )
        return request.command()

    def _halves(self, queue: MessageQueue, address: str, low: int) -> Iterator[Half]:
        high = self._brokers.offsets({queue: address}, max_offset)[queue]
        while low < high:
            request = messages_at(queue, low, PULLED_AT_A_TIME, self._options.producer_group)
            (answer,) = self._brokers.ask(address, [request])
            if answer.code != ResponseCode.SUCCESS:
                raise UnreachableError(
                    f"{address} does not show its half messages: {answer.code} {answer.remark}"
                )
            for record in iter_records(answer.body):
                low = record.queue_offset + 1
                row = stored_row(record.properties, self._mark)
                if row is not None:
                    yield Half(
                        row.partition,
                        row.attempt,
                        row.row,
                        queue.broker_name,
                        record.queue_offset,
                        record.physical_offset,
                    )
