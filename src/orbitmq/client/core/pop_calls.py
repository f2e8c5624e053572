"""Typed requests of consumers that pop: pops, acknowledgements, changes of invisible times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orbitmq.client.core.broker_calls import BrokerCalls, Filter
from orbitmq.client.core.damaged import whole_messages
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import BrokerError
from orbitmq.message import property_names
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.transport.peer_clock import LATE_MS
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire import pop_info
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.refusals import error_of

# How much longer than its waiting time at the broker a pop may take.
POP_MARGIN_MS = 10_000
SETTLE_TIMEOUT_MS = 3000
ANY_QUEUE = -1
_FROM_OLDEST = 0
_FROM_NEWEST = 1
_NOTHING = frozenset({int(ResponseCode.POLLING_TIMEOUT), int(ResponseCode.PULL_NOT_FOUND)})
# The remark of brokers for a pop that arrives more than LATE_MS after its waiting time, by the two clocks.
_TOO_LATE = "timeout too much"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a popped message, which acknowledgements carry.

    Attributes:
        topic: the topic where the message is stored; for a redelivery a retry topic of the group.
        info: the checkpoint data of the pop; ``topic`` follows from its ``retry`` and from ``asked_topic``,
            the topic that was popped.
    """

    topic: str
    asked_topic: str
    offset: int
    info: pop_info.ExtraInfo

    @property
    def deadline_ms(self) -> int:
        """The end of the invisible time, in milliseconds since the epoch by the broker's clock."""
        return self.info.pop_time + self.info.invisible_time


@dataclass(frozen=True, slots=True)
class PopOptions:
    """The options that all pops of a consumer have in common.

    Attributes:
        group: the consumer group.
        from_newest: whether a group that is new at a broker begins at the newest messages.
        ordered: each queue in order: the broker gives out no message of a queue before the earlier ones are
            done.
    """

    group: str
    from_newest: bool
    ordered: bool


class PopCalls:
    """Requests to the brokers of one client instance."""

    def __init__(self, client: ClientInstance, calls: BrokerCalls) -> None:
        self._client = client
        self._calls = calls

    async def brokers(self, topic: str) -> list[str]:
        """The names of the brokers that have readable queues of the topic.

        Raises:
            TopicNotFoundError, NameServerError: there is no route.
        """
        route = await self._client.find_route(topic, for_send=False)
        return sorted({queue.broker_name for queue in route.subscribe})

    async def pop(
        self,
        options: PopOptions,
        topic: str,
        broker_name: str,
        wanted: Filter,
        *,
        queue_id: int = ANY_QUEUE,
        max_messages: int,
        invisible_ms: int,
        wait_ms: int,
        attempt_id: str | None = None,
    ) -> list[tuple[ReceivedMessage, Receipt]]:
        """Pop messages of a topic at one broker, which waits up to ``wait_ms`` if there are none.

        Raises:
            BrokerError: the broker refused, or the two clocks are so far apart that it would refuse every
                pop; TransportError: no answer; RecordError, HeaderError: a damaged answer.
        """
        address, _ = await self._calls.address_of(MessageQueue(topic, broker_name, 0))
        header = headers.PopMessageRequest(
            consumer_group=options.group,
            topic=topic,
            queue_id=queue_id,
            max_msg_nums=max_messages,
            invisible_time=invisible_ms,
            poll_time=wait_ms,
            born_time=self._client.runtime.clock.now_ms(),
            init_mode=_FROM_NEWEST if options.from_newest else _FROM_OLDEST,
            exp_type=wanted.kind,
            exp=wanted.expression,
            order=options.ordered,
            attempt_id=attempt_id,
        )
        begun_ms = self._client.now_ms()
        command = header.command()
        answer = await self._client.remoting.request(address, command, wait_ms + POP_MARGIN_MS)
        if answer.code in _NOTHING:
            if _TOO_LATE in (answer.remark or "") and self._client.now_ms() - begun_ms < wait_ms + LATE_MS:
                raise BrokerError(
                    answer.code,
                    "the broker takes this request for an old one, though it was just made: the clock of "
                    "this machine is behind the broker's, by more than it allows for; set both clocks (NTP)",
                    address,
                )
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(command, answer, address)
        fields = headers.PopMessageResponse.from_ext(answer.ext)
        taken = _Taken(fields, topic, options.group, broker_name)
        return [taken.message(message) for message in whole_messages(answer.body, broker_name)]

    async def notice(
        self, options: PopOptions, topic: str, broker_name: str, wait_ms: int, attempt_id: str | None
    ) -> bool:
        """Whether the broker has messages; it waits up to ``wait_ms`` for one.

        Raises: as :meth:`pop`.
        """
        address, _ = await self._calls.address_of(MessageQueue(topic, broker_name, 0))
        header = headers.NotificationRequest(
            consumer_group=options.group,
            topic=topic,
            queue_id=ANY_QUEUE,
            poll_time=wait_ms,
            born_time=self._client.runtime.clock.now_ms(),
            order=options.ordered,
            attempt_id=attempt_id,
        )
        answer = await self._client.invoke(address, header.command(), wait_ms + POP_MARGIN_MS)
        return headers.NotificationResponse.from_ext(answer.ext).has_msg

    async def acknowledge(self, group: str, receipt: Receipt) -> None:
        """Acknowledge a message.

        Raises:
            BrokerError: NO_MESSAGE: the message is not in flight with this receipt; TransportError: no
                answer.
        """
        header = headers.AckMessageRequest(
            consumer_group=group,
            topic=receipt.topic,
            queue_id=receipt.info.queue_id,
            extra_info=receipt.info.encode(),
            offset=receipt.offset,
        )
        address = self._calls.leader_of(receipt.info.broker_name)
        await self._client.invoke(address, header.command(), SETTLE_TIMEOUT_MS)

    async def acknowledge_many(
        self, group: str, broker_name: str, receipts: Sequence[Receipt]
    ) -> set[Receipt]:
        """Acknowledge messages of one broker; returns the receipts that the broker reports as not in flight.

        Raises:
            BrokerError: NO_MESSAGE: none of them was in flight; TransportError: no answer.
        """
        acks: dict[tuple[str, pop_info.ExtraInfo], list[int]] = {}
        for receipt in receipts:
            of_delivery = receipt.info._replace(queue_offset=None)
            acks.setdefault((receipt.asked_topic, of_delivery), []).append(receipt.offset)
        body = bodies.BatchAckMessageRequestBody(
            broker_name=broker_name,
            acks=[_batch(group, topic, info, offsets) for (topic, info), offsets in acks.items()],
        )
        command = headers.BatchAckMessageRequest().command(body.encode())
        answer = await self._client.invoke(self._calls.leader_of(broker_name), command, SETTLE_TIMEOUT_MS)
        deliveries = list(acks)
        missed = pop_info.decode_missed(answer.ext.get(pop_info.MISSED, ""))
        places = {(*deliveries[number], offset) for number in missed for offset in missed[number]}
        return {
            receipt
            for receipt in receipts
            if (receipt.asked_topic, receipt.info._replace(queue_offset=None), receipt.offset) in places
        }

    async def change(self, group: str, receipt: Receipt, invisible_ms: int) -> Receipt:
        """Set a message's invisible time to ``invisible_ms`` from now; returns its new receipt.

        Raises:
            BrokerError: NO_MESSAGE: the message is not in flight with this receipt; TransportError: no
                answer.
        """
        info = receipt.info
        header = headers.ChangeMessageInvisibletimeRequest(
            consumer_group=group,
            topic=receipt.topic,
            queue_id=info.queue_id,
            extra_info=info.encode(),
            offset=receipt.offset,
            invisible_time=invisible_ms,
        )
        address = self._calls.leader_of(info.broker_name)
        answer = await self._client.invoke(address, header.command(), SETTLE_TIMEOUT_MS)
        fields = headers.ChangeMessageInvisibletimeResponse.from_ext(answer.ext)
        changed = info._replace(
            check_point_offset=info.check_point_offset if info.is_orderly else receipt.offset,
            pop_time=fields.pop_time,
            invisible_time=fields.invisible_time,
            revive_queue_id=fields.revive_qid,
        )
        return replace(receipt, info=changed)


class _Taken:
    """Derives the receipts of the messages in an answer from its header."""

    def __init__(self, fields: headers.PopMessageResponse, topic: str, group: str, broker_name: str) -> None:
        self._fields = fields
        self._topic = topic
        self._group = group
        self._broker_name = broker_name
        self._starts = pop_info.decode_start_offsets(fields.start_offset_info or "")
        self._counts: Mapping[pop_info.QueueKey, int] = pop_info.decode_start_offsets(
            fields.order_count_info or ""
        )

    def message(self, message: ReceivedMessage) -> tuple[ReceivedMessage, Receipt]:
        """A message with its receipt; the receipt of a redelivery is in the message's properties."""
        properties = message.properties
        # A message without an earlier delivery comes from no retry topic: a receipt in its properties belongs
        # to another message.
        text = properties.get(property_names.POP_CK) if message.reconsume_times else None
        info = self._info(message) if text is None else pop_info.ExtraInfo.decode(text)
        properties[property_names.POP_CK] = info.encode()
        properties.setdefault(property_names.FIRST_POP_TIME, str(self._fields.pop_time))
        receipt = Receipt(
            pop_info.retry_topic(self._topic, self._group, info.retry),
            self._topic,
            message.queue_offset,
            info,
        )
        message.topic = self._topic
        return message, receipt

    def _info(self, message: ReceivedMessage) -> pop_info.ExtraInfo:
        kind = pop_info.retry_of(message.topic)
        queue = (kind, str(message.queue_id))
        count = self._counts.get(
            (kind, pop_info.order_count_key(message.queue_id, message.queue_offset)),
            self._counts.get(queue, 0),
        )
        if count > 0:
            message.reconsume_times = count
        return pop_info.ExtraInfo(
            self._starts.get(queue, message.queue_offset),
            self._fields.pop_time,
            self._fields.invisible_time,
            self._fields.revive_qid,
            kind,
            self._broker_name,
            message.queue_id,
            message.queue_offset,
        )


def _batch(group: str, topic: str, info: pop_info.ExtraInfo, offsets: Iterable[int]) -> bodies.BatchAck:
    return bodies.BatchAck(
        consumer_group=group,
        topic=topic,
        retry=info.retry,
        start_offset=info.check_point_offset,
        queue_id=info.queue_id,
        revive_queue_id=info.revive_queue_id,
        pop_time=info.pop_time,
        invisible_time=info.invisible_time,
        bit_set=bodies.BatchAck.bits(offset - info.check_point_offset for offset in offsets),
    )
