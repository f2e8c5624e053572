"""Popping messages: the broker chooses the queue and notes the messages in flight (PopMessageProcessor)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.messaging.queue_offsets import is_young
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.in_flight import InFlight, PopQueue
from orbitmq.broker.pop.ordered import MAX_BATCH, Batch, OrderedPops
from orbitmq.broker.pop.receipts import (
    check_invisible_time,
    check_leads,
    revive_queue,
    with_receipt,
)
from orbitmq.broker.pop.requests import MAX_MESSAGES, Popped, PopRequest, Sources
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.message import reserved
from orbitmq.message.record import encode_record, iter_records
from orbitmq.message.record_layout import QUEUE_OFFSET_AT
from orbitmq.store import GetResult, GetStatus, MessageFilter, MessageStore
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

if TYPE_CHECKING:
    from random import Random

# How many reads of a queue that find no matching message one pop makes at most.
EMPTY_STRETCHES = 16
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


class Popping:
    """Deals messages out."""

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        store: MessageStore,
        in_flight: InFlight,
        orders: OrderedPops,
        counters: Counters,
        chance: Random,
    ) -> None:
        self._config = config
        self._filters = Filters(config)
        self._role = role
        self._metadata = metadata
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._in_flight = in_flight
        self._orders = orders
        self._counters = counters
        self._chance = chance
        self._clock = counters.clock
        self._turn = 0
        self.sources = Sources(config, topics)

    # -- what may be popped ----------------------------------------------------------------------------

    def check(self, request: PopRequest) -> MessageFilter:
        """Check whether the group may pop from this topic now; returns the filter of its expression.

        Raises:
            RemotingError: the group may not, or a number of the request is out of its limits.
        """
        self.permitted(request.group, request.topic, request.queue_id, "pop message")
        if not 1 <= request.max_count <= MAX_MESSAGES:
            problem = (
                f"num is greater than {MAX_MESSAGES}" if request.max_count > 0 else "num is not positive"
            )
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._config.broker_ip1}] pop message's {problem}: "
                f"maxMsgNums {request.max_count}, limits 1 to {MAX_MESSAGES}",
            )
        check_invisible_time(request.invisible_ms)
        self._check_name(request)
        try:
            return self._filters.of_expression(request.topic, request.expression, request.expression_type)
        except RemotingError as error:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error.remark}",
            ) from error

    def _check_name(self, request: PopRequest) -> None:
        """Refuse a topic whose retry topic would have a forbidden name."""
        own = request.topic.startswith(reserved.RETRY_PREFIX)
        name = request.topic if own else self.sources.retry_topic(request.topic, request.group)
        if len(name) > reserved.RETRY_TOPIC_MAX_CHARS:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the retry topic of topic and group would have {len(name)} characters, "
                f"limit {reserved.RETRY_TOPIC_MAX_CHARS}",
            )

    def permitted(self, group: str, topic: str, queue_id: int, what: str) -> TopicConfig:
        """The config of a topic that the group may read from.

        Raises:
            RemotingError: the group may not read it.
        """
        check_leads(self._role)
        # For pops RocketMQ checks the topic first, for pulls the group (MO-10).
        self._metadata.check_readable(what)
        found = self._metadata.readable_topic(topic, queue_id if queue_id >= 0 else None, what)
        self._metadata.reading_group(group)
        self._metadata.check_may_read(group, topic)
        return found

    # -- popping ---------------------------------------------------------------------------------------

    def pop(self, request: PopRequest, filter: MessageFilter) -> Popped:
        """Take up to ``max_count`` messages of the topic and of the group's retry topics.

        A retry topic comes first in one of five pops (``popFromRetryProbability``), else last, so that
        neither starves the other.
        """
        self._turn += 1
        now_ms = self._clock.now_ms()
        queue = pop_info.ORDERLY_REVIVE_QUEUE if request.ordered else self._revive_queue(now_ms)
        popped = Popped(now_ms, queue)
        retries = [] if request.ordered else list(self.sources.retry_topics(request.topic, request.group))
        if len(retries) > 1 and self._turn % 2:
            retries.reverse()
        config = self._topics.get(request.topic)
        own = [config] if config is not None else []
        retry_first = self._chance.randrange(100) < self._config.pop_from_retry_probability
        for source in (retries + own) if retry_first else (own + retries):
            self._pop_topic(popped, request, source, filter, is_retry=source is not config)
        self._counters.handled_out += popped.count
        return popped

    def _revive_queue(self, pop_time_ms: int) -> int:
        return revive_queue(pop_time_ms, self._config.revive_queue_num)

    def _pop_topic(
        self,
        popped: Popped,
        request: PopRequest,
        source: TopicConfig,
        filter: MessageFilter,
        *,
        is_retry: bool,
    ) -> None:
        queues = source.read_queue_nums
        one = request.queue_id >= 0 and not is_retry
        ids = [request.queue_id] if one else [(self._turn + step) % queues for step in range(queues)]
        if request.ordered:
            self._pop_all_in_order(popped, request, source.topic_name, ids, filter)
            return
        for queue_id in ids:
            self._pop_queue(popped, request, source.topic_name, queue_id, filter, is_retry)

    def _pop_queue(
        self,
        popped: Popped,
        request: PopRequest,
        topic: str,
        queue_id: int,
        filter: MessageFilter,
        is_retry: bool,
    ) -> None:
        queue = self._in_flight.queue(topic, request.group, queue_id)
        high = self._store.max_offset(topic, queue_id)
        wanted = request.max_count - popped.count
        if wanted <= 0:
            popped.rest += max(0, high - queue.next)
            return
        start = self._position(queue, request.from_newest)
        if start >= high:
            return
        if self._is_full(queue):
            popped.full = True
            return
        result = self._read(topic, queue_id, start, wanted, filter)
        if result.status is not GetStatus.FOUND:
            if result.next_offset != start:
                self._in_flight.skip(queue, result.next_offset)
            popped.rest += max(0, high - result.next_offset)
            return
        offsets = _offsets(result, start)
        fit, body = offsets, result.body
        if is_retry and not self._config.pop_actual_retry_topic:
            fit, body = self._as_sent_first(popped, request, queue, start, result)
        now_ms = popped.pop_time_ms
        self._in_flight.take(
            queue,
            start,
            offsets,
            result.next_offset,
            now_ms=now_ms,
            invisible_ms=request.invisible_ms,
        )
        for offset in sorted(set(offsets).difference(fit)) if len(fit) < len(offsets) else ():
            # The message has no room for a receipt and reached no client: it is due at once, and the reviver
            # makes it a dead letter.
            self._in_flight.change(queue, (start, now_ms), offset, now_ms=now_ms, invisible_ms=0)
        if not fit:
            popped.rest += max(0, high - result.next_offset)
            return
        self._note(popped, request, queue, start, fit, result, [body])

    def _note(
        self,
        popped: Popped,
        request: PopRequest,
        queue: PopQueue,
        start: int,
        offsets: Sequence[int],
        result: GetResult,
        records: Sequence[bytes],
    ) -> None:
        key = (pop_info.retry_of(queue.topic), str(queue.queue_id))
        popped.starts[key] = start
        popped.offsets[key] = offsets
        popped.count += len(offsets)
        popped.rest += max(0, result.max_offset - result.next_offset)
        popped.body += records
        self._counters.note_out(request.group, queue.topic, sum(map(len, records)))
        self._offsets.note_pull(request.group, queue.topic, queue.queue_id, result.next_offset, started=start)

    def _read(self, topic: str, queue_id: int, start: int, wanted: int, filter: MessageFilter) -> GetResult:
        """Read on until a message is found, the queue ends, or the limit of the search is reached."""
        for _ in range(EMPTY_STRETCHES):
            started = self._clock.monotonic()
            result = self._store.get(
                topic, queue_id, start, wanted, max_bytes=self._config.transfer_max_bytes, filter=filter
            )
            self._counters.note_get(result.status is GetStatus.FOUND, started)
            if result.status is GetStatus.FOUND or result.next_offset == result.max_offset:
                break
            if result.next_offset == start and result.status is not GetStatus.MESSAGE_WAS_REMOVING:
                break
            start = result.next_offset
        return result

    def _as_sent_first(
        self, popped: Popped, request: PopRequest, queue: PopQueue, start: int, result: GetResult
    ) -> tuple[list[int], bytes]:
        """Messages of a retry topic under the name of the topic in the request, each with its receipt.

        Returns:
            Their offsets and records; messages without room for a receipt are left out.
        """
        offsets, changed = [], []
        for record in iter_records(result.body):
            receipt = pop_info.ExtraInfo(
                start,
                popped.pop_time_ms,
                request.invisible_ms,
                popped.revive_queue,
                pop_info.retry_of(queue.topic),
                self._config.broker_name,
                queue.queue_id,
                record.queue_offset,
            )
            properties = with_receipt(record, receipt)
            if properties is None:
                continue
            record.properties = properties
            record.topic = request.topic
            offsets.append(record.queue_offset)
            changed.append(encode_record(record))
        return offsets, b"".join(changed)

    def _is_full(self, queue: PopQueue) -> bool:
        """Whether more messages of this queue are in flight than ``popInflightMessageThreshold``."""
        config = self._config
        return config.pop_threshold_enable and queue.in_flight > config.pop_in_flight_threshold

    # -- where to go on --------------------------------------------------------------------------------

    def _position(self, queue: PopQueue, from_newest: bool) -> int:
        """The offset of the next message for the group; a new group begins as the pop's request says."""
        group, topic, queue_id = queue.group, queue.topic, queue.queue_id
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self._orders.free(topic, group, queue_id)
            self._in_flight.move(queue, reset)
        committed = self._offsets.query(group, topic, queue_id)
        if committed is None or committed < 0:
            first = self.first_offset(topic, queue_id, from_newest)
            self._in_flight.skip(queue, first)
        elif committed > queue.next:
            self._in_flight.skip(queue, committed)
        high = self._store.max_offset(topic, queue_id)
        low = self._store.min_offset(topic, queue_id)
        if queue.next > high:
            self._orders.cut(topic, group, queue_id, high)
        if not low <= queue.next <= high:
            self._in_flight.move(queue, min(max(queue.next, low), high))
        return queue.next

    def peek_position(self, group: str, topic: str, queue_id: int) -> int:
        """The offset at which a pop would begin; changes nothing."""
        queue = self._in_flight.find(topic, group, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        position = max(queue.next if queue is not None else 0, committed or 0)
        return max(position, self._store.min_offset(topic, queue_id))

    def first_offset(self, topic: str, queue_id: int, from_newest: bool) -> int:
        """Where a new group begins: at the oldest message, or with the newest one.

        A young queue is always read from its beginning: its topic, or this broker, may be newer than the
        group.
        """
        low = self._store.min_offset(topic, queue_id)
        if (
            not from_newest
            or topic.startswith(reserved.RETRY_PREFIX)
            or is_young(self._store, topic, queue_id)
        ):
            return low
        return max(low, self._store.max_offset(topic, queue_id) - 1)

    # -- in order --------------------------------------------------------------------------------------

    def _pop_all_in_order(
        self, popped: Popped, request: PopRequest, topic: str, ids: Sequence[int], filter: MessageFilter
    ) -> None:
        """Deal messages out of these queues; a repeated attempt gets only its earlier messages.

        If it got other messages instead, its earlier ones would stay blocked although no client has them.
        """
        for queue_id in ids:
            again = self._orders.left_of(topic, request.group, queue_id, request.attempt_id)
            if again:
                most = MAX_MESSAGES if self._config.pop_order_repeats_done else again
                self._pop_in_order(popped, request, topic, queue_id, filter, most)
        if popped.count:
            return
        for queue_id in ids:
            self._pop_in_order(popped, request, topic, queue_id, filter)

    def _pop_in_order(
        self,
        popped: Popped,
        request: PopRequest,
        topic: str,
        queue_id: int,
        filter: MessageFilter,
        most: int = MAX_MESSAGES,
    ) -> None:
        group = request.group
        queue = self._in_flight.queue(topic, group, queue_id)
        start = self._position(queue, request.from_newest)
        wanted = min(request.max_count - popped.count, most)
        free = self._orders.blocked_until(topic, group, queue_id, request.attempt_id, popped.pop_time_ms)
        if free is not None:
            popped.free_at_ms = min(free, popped.free_at_ms or free)
            return
        high = self._store.max_offset(topic, queue_id)
        if wanted <= 0 or start >= high:
            popped.rest += max(0, high - start)
            return
        keeps_done = not self._config.pop_order_repeats_done
        before = self._orders.find(topic, group, queue_id) if keeps_done else None
        done = before.done_offsets if before is not None else set()
        result = self._read(topic, queue_id, start, min(wanted + len(done), MAX_BATCH), filter)
        found = result.status is GetStatus.FOUND
        records = _not_done(result.body, start, wanted, done, before) if found else []
        if not records:
            self._in_flight.skip(queue, result.next_offset)
            return
        offsets = [offset for offset, _ in records]
        batch = self._orders.take(
            topic,
            group,
            queue_id,
            offsets,
            now_ms=popped.pop_time_ms,
            invisible_ms=request.invisible_ms,
            attempt_id=request.attempt_id,
            keeps_done=keeps_done,
        )
        counts = {offset: batch.counts.get(offset, 0) for offset in offsets}
        for offset, count in counts.items():
            if count:
                popped.order_counts["0", pop_info.order_count_key(queue_id, offset)] = count
        popped.order_counts["0", str(queue_id)] = min(counts.values())
        result.next_offset = offsets[-1] + 1
        self._note(popped, request, queue, start, offsets, result, [body for _, body in records])


def _not_done(
    body: bytes, start: int, most: int, done: set[int], before: Batch | None
) -> list[tuple[int, bytes]]:
    """Up to ``most`` records that are not done and that fit into one batch with those ``before``."""
    noted = set() if before is None else {offset for offset in before.offsets if offset > start}
    found: list[tuple[int, bytes]] = []
    for offset, record in _records(body):
        noted.add(offset)
        if len(found) == most or (found and len(noted) > MAX_BATCH):
            break
        if offset not in done:
            found.append((offset, record))
    return found


def _offsets(result: GetResult, start: int) -> Sequence[int]:
    """The queue offsets of the messages that were read."""
    if result.next_offset - start == result.count:
        return range(start, result.next_offset)
    return [offset for offset, _ in _records(result.body)]


def _records(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Queue offset and bytes of each record."""
    at = 0
    while at < len(body):
        (size,) = _SIZE.unpack_from(body, at)
        (offset,) = _OFFSET.unpack_from(body, at + QUEUE_OFFSET_AT)
        yield offset, body[at : at + size]
        at += size
