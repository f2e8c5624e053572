"""How often a message is delivered again, and where it goes after that."""

from __future__ import annotations

from orbitmq.message import property_names
from orbitmq.wire.bodies import SubscriptionGroupConfig
from orbitmq.wire.versions import V3_4_9

# Delay level of the first redelivery when the consumer names none (behaviour SB-07).
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1


def max_reconsume_times(group: SubscriptionGroupConfig, version: int, requested: int | None) -> int:
    """How often a message may be delivered again (behaviour SB-05).

    Args:
        version: the client's protocol version: from 3.4.9 on the request's own number counts.
    """
    return requested if requested is not None and version >= V3_4_9 else group.retry_max_times


def mark_dead(properties: dict[str, str]) -> None:
    """Say in a dead letter what it was first: its topic and its message id (RocketMQ 5.5.0 says neither)."""
    for name, known_as in (
        (property_names.DLQ_ORIGIN_TOPIC, property_names.RETRY_TOPIC),
        (property_names.DLQ_ORIGIN_MESSAGE_ID, property_names.ORIGIN_MESSAGE_ID),
    ):
        if properties.get(known_as):
            properties.setdefault(name, properties[known_as])
