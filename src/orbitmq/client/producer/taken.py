"""Copies a user's message when a producer accepts it."""

from __future__ import annotations

import copy
from typing import Any

from orbitmq.client.producer.open_batch import plain_body
from orbitmq.message.model import Message, ReceivedMessage, UnreadableMessage
from orbitmq.message.way import own_properties


def taken(message: Message) -> Message:
    """A copy of the user's message, without the properties that an earlier delivery added.

    The user may change the message, its properties and its body's buffer as soon as the call has returned. An
    invalid object is returned unchanged; the later checks of messages refuse it.
    """
    body = plain_body(message)
    if body is not None:
        return Message(message.topic, body)
    if not isinstance(message, Message) or isinstance(message, UnreadableMessage):
        return message
    # These may be objects of any type: the user may have set them.
    given: Any = message.body
    properties: Any = message.properties
    if not isinstance(properties, dict):
        return message
    own = own_properties(properties, message.topic)
    if type(message) is Message or isinstance(message, ReceivedMessage):
        made = Message(message.topic, b"", flag=message.flag)
    else:
        made = copy.copy(message)  # keeps a subclass of the user's
    # For a buffer with multi-byte items, len() is not the size in bytes; the len() of bytes is.
    made.body = bytes(given) if isinstance(given, bytearray | memoryview) else given
    made.properties = dict(own) if own is properties else own
    return made
