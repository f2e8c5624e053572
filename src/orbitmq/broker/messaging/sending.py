"""Sending one message or a batch: checks, the topic, the properties, the append (SendMessageProcessor)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.broker import names
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.messaging.retry import DEAD_LETTER_QUEUES, mark_dead, max_reconsume_times
from orbitmq.broker.messaging.room import fitted
from orbitmq.broker.messaging.too_large import BodyTooLargeError, PropertiesTooLongError
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.registration import Registration
from orbitmq.broker.statistics import Counters
from orbitmq.broker.timers.forms import requests_timer
from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.batch import BatchItem, iter_batch
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import UniqueIds
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from orbitmq.message.tags import tags_code
from orbitmq.message.way import without
from orbitmq.store import NewMessage, PutResult, PutStatus
from orbitmq.wire.bodies.topic import TopicConfig, TopicFilterType
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.recall_handle import RecallHandle

if TYPE_CHECKING:
    from random import Random

ANY_QUEUE = -1
# Properties written by a pop or a delivery. In a message from a client they are remains of another message.
_OF_ANOTHER = frozenset({property_names.POP_CK, property_names.POP_REVIVED_FROM, property_names.DELIVERY_OF})


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a message.

    Attributes:
        born_host: numeric address and port of the client; part of the stored record.
        version: the client's protocol version.
    """

    born_host: tuple[str, int]
    version: int


@dataclass(slots=True)
class SendRequest:
    """One message, or with ``batch`` the items of a batch, in ``body`` as the request has them.

    Attributes:
        properties: the message's; :class:`Sending` changes this dict (region, unique id, cluster).
        queue_id: :data:`ANY_QUEUE` lets the broker choose.
        born_timestamp: ms since the epoch, of the client's clock.
        max_reconsume_times: only for sends to a retry topic: after how many deliveries the message is dead.
        default_topic: the template from which a missing topic is made, ``default_topic_queue_nums`` its
            number of queues.
        unit_mode: a flag for the topic, if the send creates it.
    """

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    queue_id: int = ANY_QUEUE
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    producer_group: str = ""
    default_topic: str = reserved.AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    unit_mode: bool = False
    batch: bool = False


@dataclass(slots=True)
class Stored:
    """A message, or a batch, in the store.

    Attributes:
        message_id: the offset message id; of a batch those of its items, joined by commas.
        queue_offset: the queue offset of the message, or of the first item.
        transaction_id: the message's unique id; ``None`` when a batch has no unique id.
        status: whether the message is on disk and on replicas, as required.
        end_offset: the end of its last record in the commit log.
        recall_handle: the handle that recalls a timer message; ``None`` for other messages.
    """

    message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    status: PutStatus
    end_offset: int
    recall_handle: str | None = None


# ``send`` returns after it has appended the message, unless the topic has to be written to disk first. The
# awaitable waits until the message is safe.
Sent: TypeAlias = Stored | Awaitable[Stored]


class Sending:
    """Takes messages from clients into the store."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        locks: QueueLocks,
        append: MessageAppend,
        ids: UniqueIds,
        chance: Random,
        counters: Counters,
        counts: Counts,
        registration: Registration,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._locks = locks
        self._append = append
        self._ids = ids
        self._counts = counts
        self._chance = chance
        self._counters = counters
        self._registration = registration

    def send(self, origin: Origin, request: SendRequest) -> Sent:
        """Store a message; the result is awaitable when it waits for the device or for its topic.

        Raises:
            RemotingError: the message, its topic, its queue or the broker's state forbids it.
        """
        self.check(request)
        if (
            request.topic.startswith(reserved.RETRY_PREFIX)
            and not request.batch
            and self._is_dead(origin, request)
        ):
            return self._send_dead_letter(origin, request)
        config = self._topics.get(request.topic)
        if config is None or not self._metadata.saved(request.topic):
            return self._send_to_new_topic(origin, request)
        return self._store(origin, request, config)

    def send_then(
        self,
        origin: Origin,
        request: SendRequest,
        then: Callable[[Stored], object],
        lost: Callable[[], object],
    ) -> bool:
        """Store a message like :meth:`send`, and call ``then`` with it when it is safe, at once or later.

        Args:
            lost: called instead if it is unknown whether the message survives.

        Returns:
            False: the message may have to wait for its topic, so nothing was done.

        Raises:
            RemotingError: as :meth:`send`.
            StoreClosedError: whether the message survives is unknown.
        """
        topic = request.topic
        config = self._topics.get(topic)
        if config is None or topic.startswith(reserved.RETRY_PREFIX) or not self._metadata.saved(topic):
            return False
        self.check(request)
        stored, result, waits = self._placed(origin, request, config)
        if self._append.must_wait(waits):
            self._append.when_stored(result, then, stored, _with_status, lost)
        else:
            self._append.write()
            then(stored)
        return True

    def check(self, request: SendRequest) -> None:
        """Refuse a message that this broker could store in no topic.

        Raises:
            RemotingError: the text names the rule that is broken, or the limit.
        """
        config = self._config
        self._append.check_open()
        if not config.writable and self._topics.is_order(request.topic):
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        names.check_topic(request.topic)
        if request.topic in reserved.FORBIDDEN_SEND_TOPICS:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{request.topic}] is forbidden."
            )
        size = len(request.body)
        if not size:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        if size > config.body_limit:
            raise BodyTooLargeError(
                f"the message is illegal: body of {size} bytes, limit maxMessageSize "
                f"{config.body_limit} bytes"
            )

    # -- retry and new topics --------------------------------------------------------------------------

    def _is_dead(self, origin: Origin, request: SendRequest) -> bool:
        """Whether a message sent to a retry topic goes to the dead letters (behaviours SB-14, SB-16).

        Every message to the retry topic of a group that consumes in order goes there: clients of such a group
        send a message to it only to give the message up.
        """
        name = request.topic.removeprefix(reserved.RETRY_PREFIX)
        group = self._metadata.group(name)
        limit = max_reconsume_times(group, origin.version, request.max_reconsume_times)
        return request.reconsume_times > limit or self._locks.any_held(name)

    async def _send_dead_letter(self, origin: Origin, request: SendRequest) -> Stored:
        name = request.topic.removeprefix(reserved.RETRY_PREFIX)
        config = await self._metadata.inner_topic(reserved.dead_letter_topic(name), DEAD_LETTER_QUEUES)
        request.topic = config.topic_name
        request.queue_id = 0
        request.properties[property_names.DELAY] = "-1"
        mark_dead(request.properties)
        stored = await _finished(self._store(origin, request, config))
        first = request.properties.get(property_names.DLQ_ORIGIN_TOPIC, reserved.retry_topic(name))
        self._counts.dead[name, first] += 1
        await self._registration.announced([config.topic_name])
        return stored

    async def _send_to_new_topic(self, origin: Origin, request: SendRequest) -> Stored:
        config = self._create_topic(request)
        # The message must not outlive the topic's config in a crash.
        await self._metadata.save(TOPICS)
        stored = await _finished(self._store(origin, request, config))
        await self._registration.announced([config.topic_name])
        return stored

    def _create_topic(self, request: SendRequest) -> TopicConfig:
        is_retry = request.topic.startswith(reserved.RETRY_PREFIX)
        sys_flag = 0
        if request.unit_mode:
            sys_flag = reserved.TOPIC_FLAG_UNIT_SUB if is_retry else reserved.TOPIC_FLAG_UNIT
        config = self._topics.create_for_send(
            request.topic, request.default_topic, request.default_topic_queue_nums, sys_flag
        )
        if config is None and is_retry:
            config = self._topics.create_if_absent(request.topic, 1, sys_flag=sys_flag)
        return config if config is not None else self._metadata.topic(request.topic)

    # -- the append ------------------------------------------------------------------------------------

    def _store(self, origin: Origin, request: SendRequest, config: TopicConfig) -> Sent:
        stored, result, waits = self._placed(origin, request, config)
        if self._append.must_wait(waits):
            return self._when_stored(stored, result)
        self._append.write()
        return stored

    def _placed(
        self, origin: Origin, request: SendRequest, config: TopicConfig
    ) -> tuple[Stored, PutResult, bool]:
        """Append a message, or a batch; also returns whether its sender waits for more than the write."""
        queue_id = self.choose_queue(request, config)
        waits = request.properties.get(property_names.WAIT, "true").lower() == "true"
        if waits:
            self._append.admit()
        if request.batch:
            result = self._append_batch(origin, request, queue_id)
            handle = None
        else:
            message = self._message(origin, request, config, queue_id)
            result = self._append.put_many([message])
            handle = self._recall_handle(message)
        stored = Stored(
            result.message_id,
            queue_id,
            result.queue_offset,
            request.properties.get(property_names.UNIQ_KEY),
            result.status,
            result.end_offset,
            handle,
        )
        return stored, result, waits

    async def _when_stored(self, stored: Stored, result: PutResult) -> Stored:
        stored.status = await self._append.stored(result)
        return stored

    def choose_queue(self, request: SendRequest, config: TopicConfig) -> int:
        """The queue that the request names, or a random one.

        Raises:
            RemotingError: INVALID_PARAMETER, the topic has no such queue.
        """
        if request.queue_id >= 0:
            self._metadata.queue(request.topic, request.queue_id)
            return request.queue_id
        if config.write_queue_nums <= 0:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"topic {request.topic} has no queue to write to"
            )
        return self._chance.randrange(config.write_queue_nums)

    def append(self, origin: Origin, request: SendRequest, config: TopicConfig, queue_id: int) -> PutResult:
        """Complete a single message's properties and append it.

        Raises:
            RemotingError: its properties are too large, or an append hook or the store refuses it.
        """
        return self._append.put_many([self._message(origin, request, config, queue_id)])

    def _message(
        self, origin: Origin, request: SendRequest, config: TopicConfig, queue_id: int
    ) -> NewMessage:
        """The message to store, after the append hooks."""
        properties = request.properties
        _refuse_stray_half(request)
        self._complete(properties)
        # Redelivered and dead messages have more properties than their sender set: the least important ones
        # are left out if there is no room.
        on_its_way = request.topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
        encoded = fitted(properties) if on_its_way else encode_properties(properties)
        if encoded is None or len(encoded) > MAX_PROPERTIES_BYTES:
            size = len(encode_properties(properties))
            raise PropertiesTooLongError(
                f"the message is illegal: properties of {size} bytes, limit {MAX_PROPERTIES_BYTES} bytes"
            )
        _refuse_zeros(encoded)
        message = NewMessage(
            request.topic,
            queue_id,
            request.body,
            encoded,
            flag=request.flag,
            sys_flag=_sys_flag(request, config),
            born_timestamp=request.born_timestamp,
            born_host=origin.born_host,
            reconsume_times=request.reconsume_times,
            tags_code=tags_code(properties.get(property_names.TAGS)),
        )
        self._counters.handled_in += 1
        return self._append.hooked(message, properties)

    def _recall_handle(self, message: NewMessage) -> str | None:
        """The handle that recalls a timer message (SendMessageProcessor.attachRecallHandle)."""
        if message.topic != reserved.TIMER_TOPIC:
            return None
        found = decode_properties(message.properties)
        topic = found.get(property_names.REAL_TOPIC, "")
        out_ms = whole_number(found.get(property_names.TIMER_OUT_MS, ""))
        if not topic or out_ms is None or topic.startswith(reserved.RETRY_PREFIX):
            return None
        unique_id = found.get(property_names.UNIQ_KEY, "")
        return RecallHandle(topic, self._config.broker_name, str(out_ms + 1), unique_id).encode()

    def _complete(self, properties: dict[str, str]) -> None:
        """Properties that the broker adds (SendMessageProcessor.sendMessage, buildMsgContext)."""
        config = self._config
        for name in _OF_ANOTHER:
            properties.pop(name, None)
        properties[property_names.MSG_REGION] = config.region_id
        properties[property_names.TRACE_ON] = "true" if config.trace_on else "false"
        properties.setdefault(property_names.UNIQ_KEY, self._ids.next())
        properties[property_names.CLUSTER] = config.broker_cluster_name

    def _append_batch(self, origin: Origin, request: SendRequest, queue_id: int) -> PutResult:
        """Store the items of a batch one behind the other, in their order (behaviours BA-06, BA-07)."""
        if request.topic.startswith(reserved.RETRY_PREFIX):
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {request.topic}"
            )
        sys_flag = _sys_flag(request, self._metadata.topic(request.topic))
        try:
            items = list(iter_batch(request.body))
        except MessageFormatError as error:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {error}") from error
        if not items:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "batch body: it holds no message")
        messages = [self._item(origin, request, queue_id, sys_flag, item) for item in items]
        self._counters.handled_in += len(messages)
        return self._append.put_many(messages)

    @staticmethod
    def _item(
        origin: Origin, request: SendRequest, queue_id: int, sys_flag: int, item: BatchItem
    ) -> NewMessage:
        properties = decode_properties(item.properties)
        if requests_timer(properties):
            asked = sorted(property_names.TIMER_PROPERTIES & properties.keys())
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch body: a message has property {asked[0]}, timers are not supported in batches",
            )
        _refuse_zeros(item.properties)
        encoded = item.properties
        if not _OF_ANOTHER.isdisjoint(properties):
            encoded = encode_properties(without(properties, _OF_ANOTHER))
        return NewMessage(
            request.topic,
            queue_id,
            item.body,
            encoded,
            flag=item.flag,
            sys_flag=sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=origin.born_host,
            reconsume_times=request.reconsume_times,
            tags_code=tags_code(properties.get(property_names.TAGS)),
        )


def _refuse_stray_half(request: SendRequest) -> None:
    """Refuse TRAN_MSG of another producer group than the sender's.

    A received message of a transaction still has TRAN_MSG. If it were sent on unchanged, no consumer would
    ever get it: it would wait for the end of a transaction that was never begun.
    """
    properties = request.properties
    if request.reconsume_times or property_names.TRANSACTION_PREPARED not in properties:
        return
    if properties[property_names.TRANSACTION_PREPARED].lower() != "true":
        return
    group = properties.get(property_names.PRODUCER_GROUP)
    if group != request.producer_group:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: property TRAN_MSG=true begins a transaction of the producer group in "
            f"PGROUP, {str(group)[:130]!r}, and the request is of group {request.producer_group!r}; "
            "leave both out when a received message is sent on",
        )


def _refuse_zeros(properties: bytes) -> None:
    """Refuse zeros in properties: they would look like a hole left by a power loss
    (``RecordReader.has_hole``)."""
    if b"\0" in properties:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a property holds the character U+0000, which properties cannot keep",
        )


def _sys_flag(request: SendRequest, config: TopicConfig) -> int:
    multi = sysflag.MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else 0
    flags = request.sys_flag | multi
    # No consumer gets a message with these transaction bits. A half message gets them when it is stored.
    if sysflag.transaction_of(flags) in (sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_ROLLBACK):
        flags = sysflag.with_transaction(flags, sysflag.TRANSACTION_NOT)
    return flags


def _with_status(stored: Stored, status: PutStatus) -> Stored:
    stored.status = status
    return stored


async def _finished(sent: Sent) -> Stored:
    return await sent if isawaitable(sent) else sent
