"""The redelivery of a popped message: its topic, and the record that is stored there.

A message is delivered again from the group's retry topic; after the last try it becomes a dead letter. The
redelivery names the place of the message that it repeats, so that a restarted broker does not store it twice.
"""

from __future__ import annotations

import logging

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.retry import DEAD_LETTER_QUEUES, came_from, mark_dead
from orbitmq.broker.messaging.room import fitted_copy
from orbitmq.broker.messaging.stored import copied
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.in_flight import PopDelivery, PopQueue
from orbitmq.broker.pop.receipts import INVISIBLE_LIMITS_MS, with_receipt
from orbitmq.broker.pop.requests import Sources
from orbitmq.message import property_names, reserved
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore, NewMessage
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import MessageRequestMode

log = logging.getLogger(__name__)


class Redeliveries:
    """Chooses the topics of redeliveries, and makes their records."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        modes: RequestModes,
        store: MessageStore,
        sources: Sources,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._topics = topics
        self._modes = modes
        self._store = store
        self._sources = sources

    def _retry_topic(self, queue: PopQueue) -> str:
        """The topic of a message's redelivery: the retry topic that it was in, unless the group pulls."""
        mode = self._modes.get(pop_info.normal_topic(queue.topic, queue.group), queue.group)
        if mode is not None and mode.mode is MessageRequestMode.PULL:
            return reserved.retry_topic(queue.group)
        if queue.topic.startswith(reserved.RETRY_PREFIX):
            return queue.topic
        return self._sources.retry_topic(queue.topic, queue.group)

    def targets(self, queue: PopQueue) -> tuple[str, str]:
        """The topics in which messages of a queue are redelivered."""
        return self._retry_topic(queue), reserved.dead_letter_topic(queue.group)

    async def target(
        self, queue: PopQueue, group: SubscriptionGroupConfig, record: Record, *, dead: bool
    ) -> str:
        """The topic for a message's redelivery, which is on disk when this returns.

        Args:
            dead: whether the message was given up.

        Raises:
            RemotingError: the topic cannot be made.
        """
        retry = self._retry_topic(queue)
        dead = (
            dead
            or record.reconsume_times >= group.retry_max_times
            or not self._has_room(queue, record, retry)
        )
        topic = reserved.dead_letter_topic(queue.group) if dead else retry
        if topic not in self._topics or not self._metadata.saved(topic):
            own = topic == reserved.retry_topic(queue.group)
            queues = DEAD_LETTER_QUEUES if dead else group.retry_queue_nums if own else 1
            await self._metadata.inner_topic(topic, max(1, queues))
        return topic

    def _has_room(self, queue: PopQueue, record: Record, topic: str) -> bool:
        """Whether a pop could hand the message out from this retry topic: its receipt needs room."""
        if self._config.pop_actual_retry_topic or topic == reserved.retry_topic(queue.group):
            return True
        # A receipt as long as any that a pop can write; the message will be one of the newest of its queue.
        end = self._store.max_offset(topic, 0)
        receipt = pop_info.ExtraInfo(
            end, self._clock.now_ms(), INVISIBLE_LIMITS_MS[1], pop_info.ORDERLY_REVIVE_QUEUE,
            pop_info.retry_of(topic), self._config.broker_name, 0, end,
        )  # fmt: skip
        if with_receipt(record, receipt) is not None:
            return True
        log.error(
            "message %s of group %s is a dead letter: its properties of %d bytes have no room for a receipt",
            record.message_id, queue.group, len(record.properties),
        )  # fmt: skip
        return False

    def message(
        self, queue: PopQueue, delivery: PopDelivery, record: Record, topic: str
    ) -> tuple[NewMessage, dict[str, str]]:
        """The record of a redelivery, with its count one higher (behaviour PE-03), and its properties."""
        properties = decode_properties(record.properties)
        if not record.reconsume_times:
            properties[property_names.FIRST_POP_TIME] = str(delivery.pop_time_ms)
        properties.setdefault(property_names.FIRST_POP_TIME, str(delivery.pop_time_ms))
        properties[property_names.POP_REVIVED_FROM] = str(record.physical_offset)
        # The property marks the popped message as the delivery of a delayed message; its copy is none.
        properties.pop(property_names.DELIVERY_OF, None)
        dead = topic.startswith(reserved.DLQ_PREFIX)
        origin = pop_info.normal_topic(queue.topic, queue.group)
        if dead or topic == reserved.retry_topic(queue.group):
            came_from(properties, record, queue.group)
        if dead:
            properties[property_names.DLQ_ORIGIN_TOPIC] = origin
            properties[property_names.DLQ_ORIGIN_MESSAGE_ID] = properties[property_names.ORIGIN_MESSAGE_ID]
            if delivery.why_dead is not None:
                mark_dead(properties, *delivery.why_dead)
        again = record.reconsume_times + 1
        encoded = fitted_copy(record, properties)
        return copied(record, properties, topic, 0, encoded=encoded, reconsume_times=again), properties
