"""Finds the stored messages of a batch, after an earlier attempt or a lost answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from orbitmq.errors import TopicNotFoundError
from orbitmq.message import columns as names
from orbitmq.message import reserved
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import whole_number
from orbitmq.runtime.side_by_side import side_by_side
from orbitmq.spark.cluster.brokers import Brokers, RetryWindow, max_offset, min_offset
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import DataLossError, SinkStateError, UnreachableError
from orbitmq.spark.options import ReadOptions, WriteOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import BROKER, message_schema
from orbitmq.spark.write.fencing import Fencing
from orbitmq.spark.write.task import Since, StoredRow, stored_row
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.spark")

DISPATCH_BEHIND = "dispatchBehindBytes"
# Topics in which brokers keep messages until they are due; the messages stay readable there afterwards.
DELAY_HOMES = (reserved.SCHEDULE_TOPIC, reserved.TIMER_TOPIC)


T = TypeVar("T")


def patiently(limit_ms: int, call: Callable[[], T]) -> T:
    """The result of ``call``, repeated for up to ``limit_ms`` while the cluster does not answer.

    Raises:
        UnreachableError, TopicNotFoundError: the last error of ``call``. A name server that was just started
            has no topics yet, so the call is also repeated for an unknown topic.
    """
    window = RetryWindow(limit_ms)
    while True:
        try:
            return call()
        except (UnreachableError, TopicNotFoundError) as error:
            if window.is_over:
                raise
            log.info("the cluster is not ready: %s", error)
            window.pause()


class Found(NamedTuple):
    """A stored message of the batch, with its queue and offset."""

    row: StoredRow
    queue: MessageQueue
    body: bytes
    properties: bytes


class StoredRows:
    """Reads the stored messages of a batch.

    Args:
        options: limits and timeouts.
        brokers: the cluster.
        delayed: whether to search the topics of delayed messages, too.
        fencing: fences earlier attempts at the brokers before the search, so that none of their messages is
            stored later.
    """

    def __init__(
        self,
        options: WriteOptions,
        brokers: Brokers,
        *,
        delayed: bool = False,
        fencing: Fencing | None = None,
    ) -> None:
        self._options = options
        self._brokers = brokers
        self._fencing = fencing
        self._homes = DELAY_HOMES if delayed else ()

    def ends(self, topic: str) -> Offsets:
        """The ends of the queues of ``topic``; waits up to ``retryTimeout`` for an unreachable cluster.

        Raises:
            UnreachableError, TopicNotFoundError: the cluster was unreachable for longer, or the topic does
                not exist.
        """
        return patiently(self._options.retry_timeout_ms, lambda: self._ends_now(topic))

    def rows(self, topic: str, since: Since, mark: bytes) -> Iterator[StoredRow]:
        """The stored messages of the batch in ``topic``, from the offsets ``since`` on.

        Waits for unreachable brokers, and until each master has dispatched its stored messages: a message
        that is not readable yet must not be sent a second time.

        Raises:
            UnreachableError: the master of a queue was unreachable for longer than ``retryTimeout``.
            SinkStateError: a message has an earlier version of this format, or messages have expired.
        """
        seen: set[tuple[int, str, int]] = set()
        for block in self._blocks(topic, since, []):
            for properties in block[0]:
                if (row := stored_row(properties, mark)) is None:
                    continue
                if self._homes:
                    # A delivered delayed message is in its topic and still in the topic of delayed messages.
                    if row[:3] in seen:
                        continue
                    seen.add(row[:3])
                yield row

    def messages(self, topic: str, since: Since, mark: bytes) -> Iterator[Found]:
        """The stored messages of the batch like :meth:`rows`, with their bodies, queues and offsets."""
        for block in self._blocks(topic, since, [BROKER, names.QUEUE_ID, names.BODY]):
            for properties, broker, queue_id, body in zip(*block, strict=True):
                if (row := stored_row(properties, mark)) is not None:
                    yield Found(row, MessageQueue(topic, broker, queue_id), body, properties)

    def _blocks(self, topic: str, since: Since, more: list[str]) -> Iterator[list[list[Any]]]:
        ranges = self._ranges(topic, since)
        options = ReadOptions(
            topics=(topic,),
            name_servers=self._options.name_servers,
            identity=self._options.identity,
            group_id=self._options.producer_group,
            request_timeout_ms=self._options.request_timeout_ms,
            offset_timeout_ms=self._options.retry_timeout_ms,
        )
        maker = BatchMaker(message_schema([names.PROPERTIES, *more], properties="raw"))
        try:
            for batch in RangeReader(self._brokers, options).batches(ranges, maker):
                yield [column.to_pylist() for column in batch.columns]
        except DataLossError as error:
            raise SinkStateError(
                f"it cannot be found out any more which rows of the batch are stored in {topic!r}: "
                f"{str(error).partition(';')[0]}: {self._way_on()}"
            ) from error

    def _way_on(self) -> str:
        """The advice for a batch whose stored messages cannot be determined."""
        place = self._options.state_location
        return f"to send all rows, again those that are stored, remove its folder in {place}"

    def _ends_now(self, topic: str) -> Offsets:
        found: dict[MessageQueue, int] = {}
        for home in (topic, *self._homes):
            try:
                queues = self._brokers.readable([home], refresh=True)
            except TopicNotFoundError:
                if home == topic:
                    raise
                continue
            found |= self._brokers.offsets(queues, max_offset)
        return Offsets(found)

    def _ranges(self, topic: str, since: Since) -> list[QueueRange]:
        try:
            return patiently(self._options.retry_timeout_ms, lambda: self._ranges_now(topic, since))
        except (UnreachableError, TopicNotFoundError) as error:
            # A broker that was removed for good never answers, and without this advice each restart of the
            # query would wait for it.
            raise UnreachableError(
                f"what was stored in {topic!r} earlier cannot be read: {error}. If that stays so: "
                f"{self._way_on()}"
            ) from error

    def _ranges_now(self, topic: str, since: Since) -> list[QueueRange]:
        masters: dict[MessageQueue, str] = {}
        for home in (topic, *self._homes):
            masters |= self._masters(home, {queue for queue in since if queue.topic == home})
        if self._fencing is not None:
            self._fencing.end_earlier(set(masters.values()))
        self._check_dispatched(set(masters.values()))
        ends = self._brokers.offsets(masters, max_offset)
        known = {queue: at for queue, at in since.items() if at is not None}
        unknown = {queue: at for queue, at in masters.items() if queue not in known}
        begins = {**self._brokers.offsets(unknown, min_offset), **known}
        return [QueueRange(q, begins[q], end) for q, end in sorted(ends.items()) if begins[q] < end]

    def _masters(self, topic: str, named: Iterable[MessageQueue]) -> dict[MessageQueue, str]:
        try:
            route = self._brokers.route(topic, refresh=True)
        except TopicNotFoundError:
            if topic in self._homes and not named:
                return {}
            raise
        owners = {queue: route.readable.get(queue, "") for queue in sorted({*named, *route.writable})}
        masters = {address for address in set(owners.values()) if self._brokers.is_master(topic, address)}
        for queue, address in owners.items():
            if address not in masters:
                raise UnreachableError(f"the master of {queue} is away")
        return owners

    def _check_dispatched(self, addresses: set[str]) -> None:
        calls = [partial(self._behind, address) for address in sorted(addresses)]
        for outcome in side_by_side(calls) if calls else ():
            if isinstance(outcome, Exception):
                raise outcome

    def _behind(self, address: str) -> None:
        request = Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        (answer,) = self._brokers.ask(address, [request])
        if answer.code != ResponseCode.SUCCESS:
            raise UnreachableError(f"{address} does not tell its state: {answer.code} {answer.remark}")
        behind = KVTable.decode(answer.body).table.get(DISPATCH_BEHIND, "0")
        if whole_number(behind):
            raise UnreachableError(f"{address} has not dispatched {behind} bytes of its log yet")
