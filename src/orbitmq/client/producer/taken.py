"""A user's message as a producer takes it."""

from __future__ import annotations

import copy
from typing import Any

from orbitmq.client.producer.open_batch import plain_body
from orbitmq.message.model import Message, ReceivedMessage, UnreadableMessage
from orbitmq.message.way import own_properties


def taken(message: Message) -> Message:
    """The message to send for a user's one: as that is now, without properties of an earlier way.

    The user may change the message, its properties and a buffer that is its body as soon as the call has
    returned. What is no message, or cannot be one, is returned as it is: it is refused where messages are
    checked.
    """
    body = plain_body(message)
    if body is not None:
        return Message(message.topic, body)
    if not isinstance(message, Message) or isinstance(message, UnreadableMessage):
        return message
    # A user may have put anything there.
    given: Any = message.body
    properties: Any = message.properties
    if not isinstance(properties, dict):
        return message
    own = own_properties(properties, message.topic)
    if type(message) is Message or isinstance(message, ReceivedMessage):
        made = Message(message.topic, b"", flag=message.flag)
    else:
        made = copy.copy(message)  # a class of the user's own
    # Of a buffer with items of several bytes len() is not the size: bytes have one.
    made.body = bytes(given) if isinstance(given, bytearray | memoryview) else given
    made.properties = dict(own) if own is properties else own
    return made
