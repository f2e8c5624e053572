"""Hands messages in flight over to and from RocketMQ brokers: as check points and acknowledgements.

At a clean stop every delivery is written into the revive topic as a check point, so that a Java broker that
takes over the folder continues it. At a start the topic is read only if another broker has written check
points since: the check points then show which messages are in flight. Java brokers keep check points and
acknowledgements among the timer messages until they are due, so some of them arrive here later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from orbitmq.broker.change_feed import POPS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TableSaved, TablesReceived
from orbitmq.broker.messaging.delivery_sink import DeliverySink
from orbitmq.broker.messaging.stored import record_of
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.pop.in_flight import PopDelivery, PopQueue, Receipt
from orbitmq.broker.pop.receipts import revive_queue
from orbitmq.broker.pop.state import MARKS, PopState
from orbitmq.message import property_names, reserved
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import iter_records
from orbitmq.message.tags import tags_code
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import GetStatus, MessageFilter, MessageStore, NewMessage
from orbitmq.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wording import counted

log = logging.getLogger(__name__)

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
REVIVE_TAGS = MessageFilter(tags_code(tag) for tag in (CHECK_POINT, ACK, BATCH_ACK))
# A check point is due this long before its messages (PopAckConstants.ackTimeInterval).
CHECK_POINT_AHEAD_MS = 1000
# How many records are read, or written, in one turn of the event loop.
RECORDS_PER_TURN = 128
# The most acknowledgements kept that arrived before their check point; beyond that the oldest are dropped.
MAX_EARLY = 100_000


def marks(config: BrokerConfig, store: MessageStore) -> list[int]:
    """The ends of the timer topic and the revive queues. Later ends show that another broker has written."""
    topic = reserved.REVIVE_TOPIC_PREFIX + config.broker_cluster_name
    ends = [store.max_offset(topic, queue_id) for queue_id in range(config.revive_queue_num)]
    return [store.max_offset(reserved.TIMER_TOPIC, 0), *ends]


class CheckPoints:
    """Writes and reads the revive topic."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        events: Events,
        offsets: ConsumerOffsets,
        store: MessageStore,
        sink: DeliverySink,
        state: PopState,
    ) -> None:
        self._config = config
        self._clock = clock
        self._offsets = offsets
        self._store = store
        self._sink = sink
        self._state = state
        self._in_flight = state.in_flight
        self._topic = reserved.REVIVE_TOPIC_PREFIX + config.broker_cluster_name
        self._reads = False
        # Whether the tables came from another OrbitMQ broker, which had read all check points of its log.
        self._told = False
        # A receipt at least this old may belong to a check point that is still among the timer messages.
        self._adopted_ms = 0
        self._early: dict[tuple[str, Receipt], set[int]] = {}
        # The next offset to read of each revive queue.
        self._next: dict[int, int] = {}
        events.on_messages_arrived(self._arrived, topic=self._topic)
        events.subscribe(TablesReceived, self._on_tables_received)
        events.subscribe(TableSaved, self._saved)

    def _on_tables_received(self, _event: TablesReceived) -> None:
        self._told = True

    def _queues(self) -> Iterable[int]:
        return range(self._config.revive_queue_num)

    # -- taking over -----------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Begin with the state left by an earlier run, or with another broker's check points since."""
        self._early.clear()
        if await self._is_own():
            for queue_id in self._queues():
                self._next[queue_id] = self._store.max_offset(self._topic, queue_id)
            self._commit()
        else:
            for queue in self._in_flight if not self._told else ():
                self._in_flight.drop_queue(queue)
            self._adopted_ms = self._clock.now_ms()
            for queue_id in self._queues():
                done = self._offsets.query(REVIVE_GROUP, self._topic, queue_id)
                self._next[queue_id] = 0 if done is None else done + 1
                await self._read_slowly(queue_id)
            if len(self._in_flight):
                log.warning(
                    "%s in flight by another broker's check points", counted(len(self._in_flight), "message")
                )
        for queue_id in self._queues():
            self._read(queue_id)  # records added meanwhile
        if self._state.marks() != self._state.known_marks:
            self._state.note_marks()
        self._reads = True
        for queue_id in self._queues():
            self._store.watch(self._topic, queue_id)

    async def _is_own(self) -> bool:
        """Whether no other broker has written check points since this broker's table was written."""
        marks = self._state.marks()
        if not any(marks):
            return True
        # A table without a file is as new as the folder: the log was empty, or another broker sent the table.
        known = self._state.known_marks or [0] * len(marks)
        if len(known) != len(marks):
            return False
        for queue_id, (start, end) in enumerate(zip(known[1:], marks[1:], strict=True)):
            if start != end and not (self._state.known_marks and await self._has_left(queue_id, start, end)):
                return False
        return self._told or not await self._waits_among_timers(known[0])

    async def _has_left(self, queue_id: int, start: int, end: int) -> bool:
        """Whether this broker wrote these records at its stop, and was killed before it saved its table."""
        async for offset in in_slices(range(start, end), RECORDS_PER_TURN):
            record = record_of(self._store, self._topic, queue_id, offset)
            if record is None or decode_properties(record.properties).get(property_names.TAGS) != CHECK_POINT:
                return False
            try:
                point = PopCheckPoint.decode(record.body)
            except WireError:
                return False
            queue = self._in_flight.find(point.topic or "", point.cid or "", point.queue_id)
            if queue is None or (point.start_offset, point.pop_time) not in queue.deliveries:
                return False
        return start < end

    async def _waits_among_timers(self, offset: int) -> bool:
        """Whether timer messages from this offset on hold a check point or an acknowledgement.

        Only records with the tags codes of such messages are read: of a million perhaps none.
        """
        end = self._store.max_offset(reserved.TIMER_TOPIC, 0)
        while offset < end:
            found = self._store.get(reserved.TIMER_TOPIC, 0, offset, 32, filter=REVIVE_TAGS)
            for record in iter_records(found.body):
                if decode_properties(record.properties).get(property_names.REAL_TOPIC) == self._topic:
                    return True
            offset = max(found.next_offset, offset + (found.status is not GetStatus.MESSAGE_WAS_REMOVING))
            await asyncio.sleep(0)
        return False

    def end(self) -> None:
        """Stop reading."""
        self._reads = False

    def _arrived(self, _topic: str, queue_id: int, _max_offset: int) -> None:
        if self._reads:
            self._read(queue_id)
            self._state.note_marks()
            self._store.watch(self._topic, queue_id)

    async def _read_slowly(self, queue_id: int) -> None:
        while self._next[queue_id] < self._store.max_offset(self._topic, queue_id):
            self._read(queue_id, RECORDS_PER_TURN)
            await asyncio.sleep(0)

    def _read(self, queue_id: int, most: int | None = None) -> None:
        """Read the unread check points and acknowledgements of one queue."""
        end = self._store.max_offset(self._topic, queue_id)
        # A queue may begin above 0: old messages are deleted, or it continues another broker's queue.
        begin = max(self._next[queue_id], self._store.min_offset(self._topic, queue_id))
        end = end if most is None else min(end, begin + most)
        for offset in range(begin, end):
            record = record_of(self._store, self._topic, queue_id, offset)
            if record is None:
                continue
            try:
                self._take_up(decode_properties(record.properties).get(property_names.TAGS), record.body)
            except WireError as error:
                log.warning("message %d of %s@%d is left out: %s", offset, self._topic, queue_id, error)
        self._next[queue_id] = end

    def _saved(self, event: TableSaved) -> None:
        """Commit the check points that were read, since the table with their deliveries is on disk."""
        if event.table == POPS and MARKS in event.keys and self._reads:
            self._commit()

    def _commit(self) -> None:
        for queue_id, offset in self._next.items():
            if offset > 0:  # RocketMQ commits the offset of the last message that it has read
                self._offsets.commit(REVIVE_GROUP, self._topic, queue_id, offset - 1)

    def _take_up(self, tag: str | None, body: bytes) -> None:
        if tag == CHECK_POINT:
            point = PopCheckPoint.decode(body)
            if point.broker_name not in (None, "", self._config.broker_name):
                log.warning("a check point of broker %s is left to it: %s", point.broker_name, point)
            elif point.topic and point.cid:
                self._check_point(point)
        elif tag == ACK:
            ack = AckMsg.decode(body)
            self._acknowledged(ack, {ack.ack_offset})
        elif tag == BATCH_ACK:
            batch = BatchAckMsg.decode(body)
            self._acknowledged(batch, set(batch.ack_offset_list))

    def _check_point(self, point: PopCheckPoint) -> None:
        queue = self._in_flight.queue(point.topic, point.cid, point.queue_id)
        diffs = point.queue_offset_diff or range(point.num)
        left = {
            point.start_offset + diff for index, diff in enumerate(diffs) if not point.bit_map >> index & 1
        }
        receipt = (point.start_offset, point.pop_time)
        left -= self._early.pop((queue.key, receipt), set())
        if left:
            delivery = PopDelivery(queue, point.start_offset, point.pop_time, point.invisible_time, left)
            delivery.foreign = True
            self._state.adopt(queue, delivery)

    def _acknowledged(self, ack: AckMsg, offsets: set[int]) -> None:
        queue = self._in_flight.find(ack.topic, ack.consumer_group, ack.queue_id)
        if queue is not None:
            self._in_flight.acknowledge(queue, (ack.start_offset, ack.pop_time), offsets)

    def early(self, key: str, receipt: Receipt, invisible_ms: int, offsets: Iterable[int]) -> bool:
        """Keep acknowledgements whose check point may still arrive; returns whether they were kept.

        A consumer that popped from a Java broker acknowledges at this broker while the check point still lies
        among the timer messages.

        Args:
            key: the queue's key (``PopQueue.key``).
        """
        taken_ms = receipt[1]
        if taken_ms >= self._adopted_ms or self._clock.now_ms() >= taken_ms + invisible_ms:
            return False
        if len(self._early) >= MAX_EARLY:
            self._early.pop(next(iter(self._early)))
        known = self._early.setdefault((key, receipt), set())
        fresh = set(offsets) - known
        known |= fresh
        return bool(fresh)

    # -- leaving ---------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Write the deliveries in flight as check points, those due first before the others."""
        self._reads = False
        in_flight = [(delivery, queue) for queue in self._in_flight for delivery in queue.deliveries.values()]
        if not in_flight or not self._sink.own:
            return
        try:
            by_time = sorted(in_flight, key=lambda pair: pair[0].due_ms)
            async for delivery, queue in in_slices(by_time, RECORDS_PER_TURN):
                message, properties = self._message(queue, delivery)
                self._sink.hand(message, properties)
            await self._sink.settle()
        except RemotingError as error:
            log.error("messages in flight are not written as check points: %s", error)
            return
        self._state.note_marks()
        for queue in self._in_flight:
            self._offsets.keep(queue.group, queue.topic, queue.queue_id, queue.next)

    def _message(self, queue: PopQueue, delivery: PopDelivery) -> tuple[NewMessage, dict[str, str]]:
        offsets = sorted(delivery.left)
        point = PopCheckPoint(
            start_offset=delivery.start,
            pop_time=delivery.pop_time_ms,
            invisible_time=delivery.invisible_ms,
            num=len(offsets),
            queue_id=queue.queue_id,
            topic=queue.topic,
            cid=queue.group,
            queue_offset_diff=[offset - delivery.start for offset in offsets],
            broker_name=self._config.broker_name,
        )
        parts: list[Any] = [queue.topic, queue.queue_id, delivery.start, queue.group, delivery.pop_time_ms]
        key = "@".join(map(str, [*parts, self._config.broker_name, CHECK_POINT]))
        properties = {
            property_names.TAGS: CHECK_POINT,
            property_names.UNIQ_KEY: key,
            property_names.TIMER_DELIVER_MS: str(delivery.due_ms - CHECK_POINT_AHEAD_MS),
        }
        message = NewMessage(
            self._topic,
            revive_queue(delivery.pop_time_ms, self._config.revive_queue_num),
            point.encode(),
            encode_properties(properties),
            born_timestamp=self._clock.now_ms(),
            born_host=self._store.config.store_host,
            tags_code=tags_code(CHECK_POINT),
        )
        return message, properties
