"""What every kind of consumer has of its group: the full name, the way to the brokers, the place to begin."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client.consumer.start_offset import first_offset, start_offset
from orbitmq.client.consumer.subscriptions import sql_filter, subscription_data, tag_filter
from orbitmq.client.core.broker_calls import BrokerCalls, Filter
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.namespaces import Namespace
from orbitmq.client.validation import check_group, check_topic
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.system import system_runtime
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel


class Membership:
    """One consumer in its group, made of the options that all consumers take.

    They have no defaults here, so that no consumer forgets to pass one on.

    Attributes:
        group: the name on the wire, inside the namespace.
        namespace: of the group and its topics.
        client: the connections, shared or own.
        calls: requests through ``client``.

    Raises:
        ValidationError: the group or the namespace cannot be right.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str,
        consume_from: ConsumeFrom,
        consume_timestamp_ms: int | None,
        namespace: str,
        namespace_v2: str,
        client: ClientInstance | None,
        runtime: Runtime | None,
    ) -> None:
        check_group(group)
        self.namespace = Namespace(namespace)
        self.group = self.namespace.full(group)
        self.client = client or ClientInstance(
            runtime or system_runtime(), name_servers, namespace_v2=namespace_v2
        )
        self.calls = BrokerCalls(self.client)
        self._consume_from = consume_from
        self._consume_timestamp_ms = consume_timestamp_ms

    def full_topic(self, topic: str) -> str:
        """The topic's name on the wire.

        Raises:
            ValidationError: not a name that a broker would take.
        """
        topic = self.namespace.full(topic)
        check_topic(topic)
        return topic

    def wanted(self, tags: str, sql: str | None) -> Filter:
        """The filter that the user asks for; ``sql``, when there is one, instead of ``tags``.

        Raises:
            ValidationError: the expression cannot be right.
        """
        now_ms = self.client.runtime.clock.now_ms()
        return tag_filter(tags, now_ms) if sql is None else sql_filter(sql, now_ms)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where the group goes on, or begins.

        Raises:
            OrbitError, TransportError: a broker did not say. The caller tries again, it must not guess.
        """
        return await start_offset(
            self.calls, self.group, queue, self._consume_from, self._consume_timestamp_ms
        )

    async def first_offset(self, queue: MessageQueue) -> int:
        """Where a queue without progress begins; errors as :meth:`start_offset`."""
        return await first_offset(self.calls, queue, self._consume_from, self._consume_timestamp_ms)

    def consumer_data(
        self, kind: ConsumeType, model: MessageModel, filters: Mapping[str, Filter]
    ) -> ConsumerData:
        """What heartbeats say about a consumer that reads the topics of ``filters``."""
        return ConsumerData(
            group_name=self.group,
            consume_type=kind,
            message_model=model,
            consume_from_where=ConsumeFromWhere(self._consume_from.value),
            subscription_data_set=[
                subscription_data(topic, wanted) for topic, wanted in sorted(filters.items())
            ],
        )
