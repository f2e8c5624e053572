"""Copies a user's message when a producer takes it."""

from __future__ import annotations

import copy
from typing import Any

from orbitmq.client.producer.open_batch import plain_body
from orbitmq.message.model import Message, ReceivedMessage, UnreadableMessage
from orbitmq.message.way import own_properties


def taken(message: Message) -> Message:
    """A copy of the user's message as it is now, without properties of an earlier delivery.

    The user may change the message, its properties and its body's buffer as soon as the call has returned. An
    object that is no valid message is returned as it is: the checks of messages refuse it.
    """
    body = plain_body(message)
    if body is not None:
        return Message(message.topic, body)
    if not isinstance(message, Message) or isinstance(message, UnreadableMessage):
        return message
    # The user may have set any object.
    given: Any = message.body
    properties: Any = message.properties
    if not isinstance(properties, dict):
        return message
    own = own_properties(properties, message.topic)
    if type(message) is Message or isinstance(message, ReceivedMessage):
        made = Message(message.topic, b"", flag=message.flag)
    else:
        made = copy.copy(message)  # a class of the user's own
    # len() of a buffer with items of several bytes is not its size; len() of bytes is.
    made.body = bytes(given) if isinstance(given, bytearray | memoryview) else given
    made.properties = dict(own) if own is properties else own
    return made
