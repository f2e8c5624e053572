"""Acknowledging popped messages, or keeping them invisible for longer.

RocketMQ's AckMessageProcessor and ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from orbitmq.broker.change_feed import OFFSETS, POP_ORDERS, POPS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.pop.in_flight import InFlight, PopQueue, Receipt, queue_key
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.pop.receipts import check_invisible_time, check_leads, revive_queue
from orbitmq.broker.role import RoleState
from orbitmq.message import reserved
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore, StoreClosedError
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.pop import BatchAck
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """Messages of one queue with their receipt.

    Attributes:
        topic: where they are stored: the retry topic for a redelivered message.
        receipt: the receipt's text from the client's request (``extraInfo``).
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    receipt: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The messages that one pop took from one queue.

    Attributes:
        start: the offset at which the pop began to read the queue.
        in_order: whether no more of the queue goes out before these messages are done.
    """

    topic: str
    group: str
    queue_id: int
    start: int
    pop_time_ms: int
    in_order: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """The new receipt of a message. Times are milliseconds."""

    pop_time_ms: int
    invisible_ms: int
    revive_queue: int


T = TypeVar("T")

# Offsets by the number of the acknowledgement that named them.
Missed: TypeAlias = dict[int, list[int]]

# Called when a queue may deal out messages again: topic, group, queue id.
Freed = Callable[[str, str, int], object]


# Called with the key of a queue, a receipt, its invisible time and offsets (``CheckPoints.early``).
Early = Callable[[str, Receipt, int, Iterable[int]], bool]


class Acknowledging:
    """Acknowledges messages in flight, or extends their invisible time.

    A method takes effect before it returns. With SYNC_FLUSH its result is awaitable, and ready when the
    change is on disk; otherwise the change is on disk within ``flushIntervalCommitLog``.

    Args:
        freed: called when an acknowledgement frees a blocked queue.
        early: keeps acknowledgements whose delivery may still come from another broker.
        save_soon: schedules a write of the tables within ``flushIntervalCommitLog``.
    """

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        clock: Clock,
        metadata: MetadataAccess,
        offsets: ConsumerOffsets,
        store: MessageStore,
        in_flight: InFlight,
        orders: OrderedPops,
        *,
        freed: Freed,
        early: Early,
        save_soon: Callable[[], object],
    ) -> None:
        self._config = config
        self._role = role
        self._clock = clock
        self._metadata = metadata
        self._offsets = offsets
        self._store = store
        self._in_flight = in_flight
        self._orders = orders
        self._freed = freed
        self._early = early
        self._save_soon = save_soon

    def acknowledge(self, settled: MessageReceipt) -> Awaitable[None] | None:
        """Acknowledge a message.

        Raises:
            RemotingError: the message is not in flight under this receipt (NO_MESSAGE), or cannot be.
        """
        info = self._checked(settled)
        if info.is_orderly:
            self._done_in_order(settled, info.pop_time)
            return self._after(None, POP_ORDERS, OFFSETS)
        done = self._done(
            settled.topic,
            settled.group,
            settled.queue_id,
            (info.check_point_offset, info.pop_time),
            info.invisible_time,
            (settled.offset,),
        )
        if not done:
            raise self._not_in_flight(settled, info)
        return self._after(None, POPS, log_end=self._end_of(settled.topic, settled.queue_id, settled.offset))

    def end(self, topic: str, group: str, queue_id: int, offset: int, receipt: Receipt) -> bool:
        """Acknowledge a message of a pop that was not in order; :meth:`saved` follows.

        Returns:
            Whether it was in flight under this receipt; if not, nothing was done.
        """
        queue = self._in_flight.find(topic, group, queue_id)
        if queue is None or not self._role.leads or offset < self._store.min_offset(topic, queue_id):
            return False
        return bool(self._done_in_flight(queue, receipt, (offset,)))

    def saved(self) -> Awaitable[None] | None:
        """With SYNC_FLUSH an awaitable that ends when the calls of :meth:`end` so far are on disk."""
        return self._after(None, POPS)

    def acknowledge_many(self, acks: Sequence[BatchAck]) -> Awaitable[Missed] | Missed:
        """Acknowledge messages of several pops; returns those not in flight, by acknowledgement.

        Raises:
            RemotingError: none of the messages was in flight (NO_MESSAGE), or a queue does not exist.
        """
        asked = log_end = 0
        tables: dict[str, None] = {}
        missed: Missed = {}
        places = [(pop_info.retry_topic(ack.topic, ack.consumer_group, ack.retry), ack) for ack in acks]
        for topic, ack in places:
            self._checked_queue(topic, ack.queue_id)
        for number, (topic, ack) in enumerate(places):
            offsets = ack.offsets()
            asked += len(offsets)
            if ack.revive_queue_id == pop_info.ORDERLY_REVIVE_QUEUE:
                tables.update({POP_ORDERS: None, OFFSETS: None})
                done = {
                    offset
                    for offset in offsets
                    if self._commit_in_order(topic, ack.consumer_group, ack.queue_id, offset, ack.pop_time)
                }
            else:
                tables[POPS] = None
                receipt = (ack.start_offset, ack.pop_time)
                done = self._done(
                    topic, ack.consumer_group, ack.queue_id, receipt, ack.invisible_time, offsets
                )
                if topic.startswith(reserved.RETRY_PREFIX):
                    log_end = max([log_end, *(self._end_of(topic, ack.queue_id, each) for each in done)])
            if len(done) < len(offsets):
                missed[number] = [offset for offset in offsets if offset not in done]
        if sum(map(len, missed.values())) == asked:
            first = acks[0]
            raise RemotingError(
                ResponseCode.NO_MESSAGE,
                f"acks: none of {asked} messages is in flight; the first ack is of queue {first.topic}@"
                f"{first.queue_id} from offset {first.start_offset}, popTime {first.pop_time}",
            )
        return self._after(missed, *tables, log_end=log_end)

    def change(self, settled: MessageReceipt, invisible_ms: int) -> Awaitable[Changed] | Changed:
        """Keep a message invisible for ``invisible_ms`` from now on.

        Raises:
            RemotingError: as :meth:`acknowledge`; the time is out of its limits.
        """
        check_invisible_time(invisible_ms)
        info = self._checked(settled)
        now = self._clock.now_ms()
        if info.is_orderly:
            if not self._orders.change(
                settled.topic,
                settled.group,
                settled.queue_id,
                settled.offset,
                info.pop_time,
                now + invisible_ms,
            ):
                raise self._not_in_flight(settled, info)
            self._freed(settled.topic, settled.group, settled.queue_id)
            changed_in_order = Changed(
                info.pop_time, now + invisible_ms - info.pop_time, info.revive_queue_id
            )
            return self._after(changed_in_order, POP_ORDERS)
        receipt = (info.check_point_offset, info.pop_time)
        place = (settled.topic, settled.group, settled.queue_id)
        queue = self._in_flight.find(*place)
        changed = queue and self._in_flight.change(
            queue, receipt, settled.offset, now_ms=now, invisible_ms=invisible_ms
        )
        if not changed and self._early(queue_key(*place), receipt, info.invisible_time, (settled.offset,)):
            changed = self._in_flight.add(
                self._in_flight.queue(*place), settled.offset, now_ms=now, invisible_ms=invisible_ms
            )
        if not changed:
            raise self._not_in_flight(settled, info)
        time = changed.pop_time_ms
        new = Changed(time, invisible_ms, revive_queue(time, self._config.revive_queue_num))
        log_end = self._end_of(settled.topic, settled.queue_id, settled.offset)
        return self._after(new, POPS, log_end=log_end)

    def extend(self, taken: Taken, invisible_ms: int) -> bool:
        """Keep a pop's remaining messages invisible for ``invisible_ms`` from now on.

        Their receipts stay as they are. The change is on disk with the next write of the tables: a crash
        before that leaves the previous deadline.

        Returns:
            Whether any message remains.

        Raises:
            RemotingError: this broker does not deal messages out; the time is out of its limits.
        """
        check_invisible_time(invisible_ms)
        check_leads(self._role)
        due_ms = self._clock.now_ms() + invisible_ms
        place = (taken.topic, taken.group, taken.queue_id)
        if taken.in_order:
            until = self._orders.blocked_until(*place, None, self._clock.now_ms())
            extended = self._orders.extend(*place, taken.pop_time_ms, due_ms)
            if extended and until is not None and due_ms < until:
                self._freed(*place)  # pops that wait for the queue may try again earlier
        else:
            queue = self._in_flight.find(*place)
            receipt = (taken.start, taken.pop_time_ms)
            extended = queue is not None and self._in_flight.extend(queue, receipt, due_ms=due_ms)
        if extended:
            self._save_soon()
        return extended

    def own(self, taken: Taken, client_id: str) -> None:
        """Note that a client keeps a pop's remaining messages invisible; the note survives a restart."""
        place = (taken.topic, taken.group, taken.queue_id)
        if not self._role.leads:
            return
        if taken.in_order:
            self._orders.own(*place, taken.pop_time_ms, client_id)
            return
        queue = self._in_flight.find(*place)
        if queue is not None:
            self._in_flight.own(queue, (taken.start, taken.pop_time_ms), client_id)

    def owned(self) -> Iterator[tuple[str, Taken, int]]:
        """The client, the pop and its deadline (ms) for all messages that a client keeps invisible."""
        for queue in self._in_flight:
            for delivery in list(queue.deliveries.values()):
                if delivery.owner and not delivery.leaving:
                    place = queue.topic, queue.group, queue.queue_id
                    taken = Taken(*place, delivery.start, delivery.pop_time_ms, in_order=False)
                    yield delivery.owner, taken, delivery.due_ms
        for topic, group, queue_id, batch in self._orders.owned():
            taken = Taken(topic, group, queue_id, batch.offsets[0], batch.pop_time_ms, in_order=True)
            yield batch.owner, taken, batch.free_at_ms()

    def give_up(self, settled: MessageReceipt, reason: str, client_id: str) -> Awaitable[None] | None:
        """Make a message a dead letter.

        One change of the table of messages in flight ends the flight and notes the dead letter, which is then
        stored because of that note. So a crash leaves one dead letter and no redelivery.

        Args:
            reason, client_id: stored with the dead letter, unless a crash comes first.

        Raises:
            RemotingError: as :meth:`acknowledge`.
        """
        info = self._checked(settled)
        place = (settled.topic, settled.group, settled.queue_id)
        now, why = self._clock.now_ms(), (reason, client_id)
        if info.is_orderly:
            if not self._orders.is_out(*place, settled.offset, info.pop_time):
                raise self._not_in_flight(settled, None)
            # Add the message here before the table of ordered pops drops it: at every moment one has it.
            self._in_flight.add_dead(self._in_flight.queue(*place), settled.offset, now_ms=now, why=why)
            self._done_in_order(settled, info.pop_time)
            return self._after(None, POP_ORDERS, OFFSETS, POPS)
        found = self._in_flight.find(*place)
        receipt = (info.check_point_offset, info.pop_time)
        if found is None or not self._in_flight.give_up(found, receipt, settled.offset, now_ms=now, why=why):
            raise self._not_in_flight(settled, info)
        return self._after(None, POPS, log_end=self._end_of(settled.topic, settled.queue_id, settled.offset))

    # -- inside ----------------------------------------------------------------------------------------

    def _checked(self, settled: MessageReceipt) -> pop_info.ExtraInfo:
        """The receipt, checked to be from this broker and for one of its messages."""
        self._checked_queue(settled.topic, settled.queue_id)
        low = self._store.min_offset(settled.topic, settled.queue_id)
        high = self._store.max_offset(settled.topic, settled.queue_id)
        if not low <= settled.offset < high:
            raise RemotingError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{settled.topic}@{settled.queue_id}, "
                f"commit:{settled.offset}, store:{low}~{high}",
            )
        info = pop_info.ExtraInfo.decode(settled.receipt)
        if info.broker_name != self._config.broker_name or info.queue_id != settled.queue_id:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"extraInfo is of queue {info.queue_id} of broker {info.broker_name}: "
                f"this is queue {settled.queue_id} of broker {self._config.broker_name}",
            )
        return info

    def _checked_queue(self, topic: str, queue_id: int) -> None:
        check_leads(self._role)
        config = self._metadata.topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )

    def _done(
        self,
        topic: str,
        group: str,
        queue_id: int,
        receipt: Receipt,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> set[int]:
        """Acknowledge the messages at these offsets; returns the offsets that were in flight."""
        queue = self._in_flight.find(topic, group, queue_id)
        done = set() if queue is None else self._done_in_flight(queue, receipt, offsets)
        if done:
            return done
        key = queue_key(topic, group, queue_id)
        return set(offsets) if self._early(key, receipt, invisible_ms, offsets) else set()

    def _done_in_flight(self, queue: PopQueue, receipt: Receipt, offsets: Sequence[int]) -> set[int]:
        """Acknowledge offsets, and wake the pops that wait for a queue that was full; returns those offsets
        that were in flight."""
        was_full = queue.in_flight > self._config.pop_in_flight_threshold
        done = self._in_flight.acknowledge(queue, receipt, offsets)
        if done and was_full and self._config.pop_threshold_enable:
            self._freed(queue.topic, queue.group, queue.queue_id)
        return done

    def _done_in_order(self, settled: MessageReceipt, pop_time_ms: int) -> None:
        if not self._commit_in_order(
            settled.topic, settled.group, settled.queue_id, settled.offset, pop_time_ms
        ):
            raise self._not_in_flight(settled, None)

    def _commit_in_order(self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int) -> bool:
        """Acknowledge in order; returns whether the message was dealt out. Moves the group's offset."""
        following = self._orders.acknowledge(topic, group, queue_id, offset, pop_time_ms)
        if following is None:
            return False
        if not self._offsets.has_reset(group, topic, queue_id):
            queue = self._in_flight.queue(topic, group, queue_id)
            if following > queue.next:
                self._in_flight.skip(queue, following)
        if self._orders.blocked_until(topic, group, queue_id, None, self._clock.now_ms()) is None:
            self._freed(topic, group, queue_id)
        return True

    def _not_in_flight(self, settled: MessageReceipt, info: pop_info.ExtraInfo | None) -> RemotingError:
        why = "it is done, its receipt was replaced by a later one, or its invisible time is over"
        over = info is not None and info.pop_time + info.invisible_time <= self._clock.now_ms()
        if over and info is not None:
            why = f"its invisible time of {info.invisible_time} ms is over, or it is done"
        return RemotingError(
            ResponseCode.NO_MESSAGE,
            f"extraInfo: offset {settled.offset} of {settled.topic}@{settled.queue_id} is not in flight "
            f"for group {settled.group} under this receipt: {why}",
        )

    def _end_of(self, topic: str, queue_id: int, offset: int) -> int:
        """The log offset up to which the disk must have the log before an answer about a message is sent.

        A redelivery that the disk loses in a crash is stored again, even if a client has already acknowledged
        it and got the answer.
        """
        if not topic.startswith(reserved.RETRY_PREFIX):
            return 0
        entry = self._store.entry(topic, queue_id, offset)
        return 0 if entry is None else entry[0] + entry[1]

    def _after(self, value: T, *tables: str, log_end: int = 0) -> Awaitable[T] | T:
        """The value; with SYNC_FLUSH it comes when these tables, and the log to ``log_end``, are on disk."""
        if self._config.flush_disk_type == "SYNC_FLUSH":
            return self._when_saved(value, tables, log_end)
        self._save_soon()
        return value

    async def _when_saved(self, value: T, tables: Iterable[str], log_end: int) -> T:
        if log_end > self._store.flushed_offset:
            try:
                await self._store.stored(log_end)
            except StoreClosedError as error:
                raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        await self._metadata.save(*tables)
        return value
