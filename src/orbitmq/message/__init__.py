"""The message: model, properties, identifiers and the record codec of the commit log."""

from orbitmq.message.model import Message, MessageQueue, ReceivedMessage

__all__ = ["Message", "MessageQueue", "ReceivedMessage"]
