"""A consumer of any kind in its group: the group's full name, requests to brokers, start offsets."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client.consumer.options import MemberOptions
from orbitmq.client.core.broker_calls import BrokerCalls, Filter, QueueOffset
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.namespaces import Namespace
from orbitmq.client.validation import check_group, check_topic
from orbitmq.durations import datetime, instant_ms
from orbitmq.errors import NotPermittedError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import RETRY_PREFIX, SQL92, TAG
from orbitmq.message.tags import java_hash
from orbitmq.message.utf8 import check_utf8
from orbitmq.runtime.system import system_runtime
from orbitmq.wire.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

ALL = "*"
# How far back ConsumeFrom.TIMESTAMP begins when no time is given (DefaultMQPushConsumer.consumeTimestamp).
HALF_AN_HOUR_MS = 30 * 60 * 1000


class Membership:
    """One consumer in its group, made of the options that all consumers take.

    Args:
        consume_timestamp: the time for :attr:`ConsumeFrom.TIMESTAMP`; None: half an hour ago.

    Attributes:
        group: the group's name on the wire, with the namespace.
        namespace: the namespace of the group and its topics.
        client: the client instance with the connections, shared or the consumer's own.
        calls: requests through ``client``.

    Raises:
        ValidationError: the group or the namespace is invalid.
    """

    def __init__(
        self, group: str, settings: MemberOptions, consume_timestamp: datetime | None = None
    ) -> None:
        check_group(group)
        self.namespace = Namespace(settings.namespace)
        self.group = self.namespace.full(group)
        check_group(self.group)
        self.client = settings.client or ClientInstance(
            settings.runtime or system_runtime(),
            settings.name_servers,
            client_id=settings.client_id,
            namespace_v2=settings.namespace_v2,
            credentials=settings.credentials,
            tls=settings.tls,
        )
        self.calls = BrokerCalls(self.client)
        self._consume_from = settings.consume_from
        self._consume_timestamp_ms = (
            self.client.runtime.clock.now_ms() - HALF_AN_HOUR_MS
            if consume_timestamp is None
            else instant_ms("consume_timestamp", consume_timestamp)
        )

    def full_topic(self, topic: str) -> str:
        """The topic's name on the wire.

        Raises:
            ValidationError: a broker would refuse the name.
        """
        check_topic(topic)
        topic = self.namespace.full(topic)
        check_topic(topic)
        return topic

    def wanted(self, tags: str, sql: str | None) -> Filter:
        """The filter for the user's expression: ``sql`` if given, otherwise ``tags``.

        Raises:
            ValidationError: the expression is invalid, or both are given.
        """
        for name, text in (("tags", tags), ("sql", sql or "")):
            if not isinstance(text, str):
                raise ValidationError(f"{name} must be a string, got {text!r}")
        if sql is not None and tags not in ("*", ""):
            raise ValidationError(
                f"tags={tags!r} and sql={sql!r}: give one of them; in SQL, TAGS is the tag of a message"
            )
        now_ms = self.client.runtime.clock.now_ms()
        return tag_filter(tags, now_ms) if sql is None else sql_filter(sql, now_ms)

    async def start_offset(self, queue: MessageQueue, leader: str | None = None) -> QueueOffset:
        """The group's offset, or its start offset; ``leader`` as for :meth:`BrokerCalls.committed`.

        Raises:
            OrbitError, TransportError: a broker did not answer the question. The caller tries again and must
                not guess.
        """
        return await start_offset(
            self.calls, self.group, queue, self._consume_from, self._consume_timestamp_ms, leader
        )

    async def first_offset(self, queue: MessageQueue) -> QueueOffset:
        """The start offset of a queue without progress; errors as :meth:`start_offset`."""
        return await first_offset(self.calls, queue, self._consume_from, self._consume_timestamp_ms)

    def consumer_data(
        self, kind: ConsumeType, model: MessageModel, filters: Mapping[str, Filter]
    ) -> ConsumerData:
        """The consumer's entry in heartbeats, with a subscription for each topic in ``filters``."""
        return ConsumerData(
            group_name=self.group,
            consume_type=kind,
            message_model=model,
            consume_from_where=ConsumeFromWhere(self._consume_from.value),
            subscription_data_set=[
                subscription_data(topic, wanted) for topic, wanted in sorted(filters.items())
            ],
        )


def tag_filter(tags: str, version_ms: int) -> Filter:
    """The filter of a tag expression: ``*`` (or nothing) for all messages, ``a || b`` for these tags.

    Raises:
        ValidationError: an expression without any tag.
    """
    expression = tags.strip()
    if expression in ("", ALL):
        return Filter(ALL, TAG, frozenset(), version_ms)
    wanted = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not wanted:
        raise ValidationError(f"tag expression {tags!r} names no tag")
    check_utf8("tag expression", tags)
    return Filter(expression, TAG, wanted, version_ms)


def sql_filter(expression: str, version_ms: int) -> Filter:
    """The filter of an SQL92 expression over properties, evaluated by the broker (``enablePropertyFilter``
    there).
    """
    if not expression.strip():
        raise ValidationError("the SQL expression is empty")
    check_utf8("SQL expression", expression)
    return Filter(expression, SQL92, frozenset(), version_ms)


def subscription_data(topic: str, wanted: Filter) -> SubscriptionData:
    """The filter in the form that heartbeats carry."""
    return SubscriptionData(
        topic=topic,
        sub_string=wanted.expression,
        tags_set=set(wanted.tags),
        code_set={java_hash(tag) for tag in wanted.tags},
        sub_version=wanted.version,
        expression_type=wanted.kind,
    )


async def start_offset(
    calls: BrokerCalls,
    group: str,
    queue: MessageQueue,
    consume_from: ConsumeFrom,
    timestamp_ms: int,
    leader: str | None = None,
) -> QueueOffset:
    """The committed offset; without one, the offset of ``consume_from`` (RebalancePushImpl).

    A retry queue without an offset always begins at its first message: all its messages belong to the group.

    Raises:
        OrbitError, TransportError: a broker did not answer the question. The caller tries again and must not
            guess.
    """
    committed = await calls.committed(group, queue, leader)
    if committed.offset >= 0:
        return committed
    first = await first_offset(calls, queue, consume_from, timestamp_ms)
    if consume_from is ConsumeFrom.LAST and first.offset > 0 and not queue.topic.startswith(RETRY_PREFIX):
        # If the queue was empty a moment ago, the broker has let the new group begin at the first message.
        committed = await calls.committed(group, queue, leader)
    return committed if committed.offset >= 0 else first


async def first_offset(
    calls: BrokerCalls, queue: MessageQueue, consume_from: ConsumeFrom, timestamp_ms: int
) -> QueueOffset:
    """The offset of ``consume_from`` in a queue without progress; errors as :func:`start_offset`."""
    if consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
        try:
            return await calls.min_offset(queue)
        except NotPermittedError:
            # A client may have the right to consume without the right to request offsets. It begins at 0,
            # like RocketMQ's clients; the answer to a pull from there names the queue's first offset.
            return QueueOffset(0)
    if consume_from is ConsumeFrom.TIMESTAMP:
        return await calls.offset_by_time(queue, timestamp_ms)
    return await calls.max_offset(queue)
