"""A user's message as a producer takes it."""

from __future__ import annotations

from orbitmq.client.producer.open_batch import plain_body
from orbitmq.message.model import Message
from orbitmq.message.way import own_properties


def taken(message: Message) -> Message:
    """The message to send for a user's one, which stays as it is: without properties of an earlier way.

    What is no message, or cannot be one, is returned as it is: it is refused where messages are checked.
    """
    if plain_body(message) is not None or not isinstance(message, Message):
        return message
    properties = message.properties
    own = own_properties(properties, message.topic)
    if own is properties:
        return message
    return Message(message.topic, message.body, flag=message.flag, properties=own)
