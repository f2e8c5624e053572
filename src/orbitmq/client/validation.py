"""Checks of messages, names and offsets before anything is sent (MV and BA rows)."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.errors import ValidationError
from orbitmq.message import property_names, reserved
from orbitmq.message.model import BODY_TYPES, Message, MessageQueue, ReceivedMessage
from orbitmq.message.numbers import whole_number
from orbitmq.message.utf8 import check_utf8

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# The stored length of the properties is an int16.
MAX_PROPERTIES_BYTES = 32767
MAX_CLIENT_ID = 255

# These values are read before the property block is made, which checks the type of all other values.
_TEXTS = (property_names.WAIT, property_names.INNER_MULTI_DISPATCH)
_NUMBERS = frozenset({property_names.DELAY, *property_names.TIMER_PROPERTIES})
# A message without any of these properties may share a batch with any other message that waits for storage.
_JUDGED_IN_BATCH = frozenset({property_names.WAIT, property_names.DELAY, *property_names.TIMER_PROPERTIES})


def check_topic(topic: str) -> None:
    """Refuse a topic name that every broker would refuse (MV-03).

    Raises:
        ValidationError: the name is blank, too long, or has characters outside ``%|a-zA-Z0-9_-``.
    """
    if not isinstance(topic, str):
        raise ValidationError(f"topic must be a string, got {topic!r}")
    _refuse(reserved.topic_fault(topic))


def check_send_topic(topic: str) -> None:
    """Like :func:`check_topic`; also refuses the topics that belong to the broker (MV-05)."""
    check_topic(topic)
    if topic in reserved.FORBIDDEN_SEND_TOPICS:
        raise ValidationError(f"topic {topic!r} belongs to the broker; sending to it is forbidden")


def check_group(group: str) -> None:
    """Refuse a producer or consumer group that every broker would refuse (MV-04)."""
    if not isinstance(group, str):
        raise ValidationError(f"group must be a string, got {group!r}")
    _refuse(reserved.group_fault(group))
    if group in reserved.DEFAULT_GROUPS:
        raise ValidationError(f"group {group!r} is RocketMQ's default name; choose one of your own")


def check_client_id(client_id: str) -> None:
    """Refuse a client id that would be unreadable in lists of members, or cannot be part of a property.

    Raises:
        ValidationError: the id is empty, is longer than 255 characters, or has blanks or control characters.
    """
    if not isinstance(client_id, str):
        raise ValidationError(f"client_id must be a string, got {client_id!r}")
    check_utf8("client_id", client_id)
    readable = client_id.isprintable() and " " not in client_id
    if not readable or not 0 < len(client_id) <= MAX_CLIENT_ID:
        raise ValidationError(
            f"client_id must be 1 to {MAX_CLIENT_ID} characters without blanks, got {client_id!r:.300}"
        )


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise ValidationError(fault)


def check_queue(queue: object) -> None:
    """Refuse an object that is not a valid queue.

    Raises:
        ValidationError: the object is no queue; the text names the wrong field.
    """
    if not isinstance(queue, MessageQueue):
        raise ValidationError(f"queue must be a MessageQueue, got {queue!r:.80}")
    for name, value in (("topic", queue.topic), ("broker_name", queue.broker_name)):
        if not isinstance(value, str):
            raise ValidationError(f"the queue's {name} must be a string, got {value!r:.60}")
    if isinstance(queue.queue_id, bool) or not isinstance(queue.queue_id, int) or queue.queue_id < 0:
        raise ValidationError(f"the queue's queue_id must be 0 or more, got {queue.queue_id!r:.60}")


def check_offset(offset: object) -> None:
    """Refuse a value that is not an offset.

    Raises:
        ValidationError: the value is no whole number, or is below 0.
    """
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
        raise ValidationError(f"offset must be 0 or more, got {offset!r:.60}")


def check_received(message: object) -> None:
    """Refuse an object that is not a received message.

    Raises:
        ValidationError: the text names the object's type.
    """
    if not isinstance(message, ReceivedMessage):
        raise ValidationError(f"a received message is needed, got {type(message).__name__}")


def check_is_message(message: object) -> None:
    """Refuse an object that is no message.

    Raises:
        ValidationError: the object is no message; response code 13 (MESSAGE_ILLEGAL).
    """
    if not isinstance(message, Message):
        raise ValidationError(f"a Message is needed, got {type(message).__name__}")


def check_message(message: Message, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Refuse a message that every broker would refuse (MV-02, MV-06). The topic is checked separately, once
    per topic.

    Raises:
        ValidationError: the message is invalid; response code 13 (MESSAGE_ILLEGAL).
    """
    check_is_message(message)
    body = message.body
    if body.__class__ is not bytes and not isinstance(body, BODY_TYPES):
        raise ValidationError(f"the body must be bytes, got {type(body).__name__}")
    size = len(body) if body.__class__ is bytes else memoryview(body).nbytes
    if size == 0:
        raise ValidationError("the body must not be empty")
    if size > max_message_bytes:
        raise ValidationError(f"the body of {size} bytes is over the limit of {max_message_bytes}")
    if not isinstance(message.properties, dict):
        raise ValidationError(f"the properties must be a dict, got {type(message.properties).__name__}")
    if not isinstance(message.flag, int):
        raise ValidationError(f"the flag must be a number, got {message.flag!r}")
    if not -(2**31) <= message.flag < 2**31:
        raise ValidationError(f"the flag must fit 32 bits, got {message.flag}")
    if not _NUMBERS.isdisjoint(message.properties):
        for name in _NUMBERS:
            _check_number(name, message.properties.get(name))
    for name in _TEXTS:
        text = message.properties.get(name)
        if text is not None and not isinstance(text, str):
            raise ValidationError(f"property {name} must be a string, got {text!r:.60}")
    queues = message.properties.get(property_names.INNER_MULTI_DISPATCH)
    if queues is not None and "/" in queues:
        raise ValidationError(f"property INNER_MULTI_DISPATCH must not contain '/', got {queues!r}")


def _check_number(name: str, text: object) -> None:
    """Refuse the text of a delivery time that every broker refuses."""
    if text is None:
        return
    digits = text[1:] if isinstance(text, str) and text.startswith(("+", "-")) else text
    if not isinstance(digits, str) or whole_number(digits) is None:
        raise ValidationError(f"property {name} must be a whole number, got {text!r:.60}")


def check_batch(messages: Sequence[Message], max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Refuse messages that cannot be one batch (BA-01, BA-02); each message is checked, too.

    Raises:
        ValidationError: the list is empty, its topics or WAIT flags differ, or a message has a delay or a
            retry topic.
    """
    if not messages:
        raise ValidationError("a batch needs at least one message")
    first = messages[0]
    check_message(first, max_message_bytes)
    waits = first.wait_stored
    for message in messages:
        check_message(message, max_message_bytes)
        if message.topic != first.topic:
            raise ValidationError(f"a batch has one topic, got {first.topic!r} and {message.topic!r}")
        properties = message.properties
        if waits and _JUDGED_IN_BATCH.isdisjoint(properties):  # the usual case
            continue
        if message.wait_stored != waits:
            raise ValidationError("the messages of a batch must all wait for storage (WAIT) or all not")
        if message.delay_level > 0 or not property_names.TIMER_PROPERTIES.isdisjoint(properties):
            raise ValidationError("a delayed message cannot travel in a batch")
    if first.topic.startswith(reserved.RETRY_PREFIX):
        raise ValidationError("messages to a retry topic cannot travel in a batch")
