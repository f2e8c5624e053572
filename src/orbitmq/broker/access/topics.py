"""Finds the topic of the message at a place in the log, for requests that name a message and no topic."""

from __future__ import annotations

from typing import Final

from orbitmq.message.errors import MessageFormatError
from orbitmq.message.properties import decode_properties
from orbitmq.message.property_names import REAL_TOPIC
from orbitmq.message.record import decode_record
from orbitmq.message.reserved import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from orbitmq.store import MessageStore

# Messages in these topics wait for delivery to the topic that a property names. No client can send to them.
_WAITING: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})


def topic_at(store: MessageStore, offset: int) -> str | None:
    """The topic of the message at a commit log offset, ``None``: no message begins there."""
    stored = store.record_at(offset, damaged=True)
    if stored is None:
        return None
    try:
        record = decode_record(stored)
    except MessageFormatError:
        return ""  # of no known topic: only users who may read every topic may look at it
    if record.topic in _WAITING:
        return decode_properties(record.properties).get(REAL_TOPIC, record.topic)
    return record.topic
