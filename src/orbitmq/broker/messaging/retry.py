"""How often a message is delivered again, and what is noted in its copies."""

from __future__ import annotations

from orbitmq.message import property_names
from orbitmq.message.record import Record
from orbitmq.message.reserved import retry_topic
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.pop_info import normal_topic
from orbitmq.wire.versions import V3_4_9

# Delay level of the first redelivery when the consumer names none (behaviour SB-07).
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1
MAX_REASON = 300  # characters


def max_reconsume_times(group: SubscriptionGroupConfig, version: int, requested: int | None) -> int:
    """How often a message may be delivered again (behaviour SB-05).

    Args:
        version: the client's protocol version: from 3.4.9 on the number in the request counts.
    """
    return requested if requested is not None and version >= V3_4_9 else group.retry_max_times


def came_from(properties: dict[str, str], record: Record, group: str) -> None:
    """Note in the copy of a message its first topic and its first message id.

    A message of the group's own retry topic already has both properties. In any other topic they come from an
    earlier message that was sent on, so the topic from which it was read counts.
    """
    if record.topic == retry_topic(group) and property_names.RETRY_TOPIC in properties:
        properties.setdefault(property_names.ORIGIN_MESSAGE_ID, record.message_id)
        return
    properties[property_names.RETRY_TOPIC] = normal_topic(record.topic, group)
    properties[property_names.ORIGIN_MESSAGE_ID] = record.message_id
    properties.pop(property_names.MAX_RECONSUME_TIMES, None)


def mark_dead(properties: dict[str, str], reason: str | None = None, client_id: str | None = None) -> None:
    """Note in a dead letter its origin (RocketMQ 5.5.0 does not), and why and by whom it was given up.

    Notes for which the properties have no room are left out when the properties are encoded.
    """
    marks = {
        property_names.DLQ_ORIGIN_TOPIC: properties.get(property_names.RETRY_TOPIC),
        property_names.DLQ_ORIGIN_MESSAGE_ID: properties.get(property_names.ORIGIN_MESSAGE_ID),
        property_names.DLQ_CLIENT: client_id,
        property_names.DLQ_REASON: _one_line(reason or "")[:MAX_REASON],
    }
    for name, value in marks.items():
        first = name in (property_names.DLQ_ORIGIN_TOPIC, property_names.DLQ_ORIGIN_MESSAGE_ID)
        if value and not (first and name in properties):
            properties[name] = value


def _one_line(text: str) -> str:
    """The text without separators of properties, and without line ends."""
    return " ".join("".join(max(c, " ") for c in text).split())
