"""The types of messages, as the label ``message_type`` of RocketMQ's metrics has them.

A message's properties give its type, of a stored message too: RocketMQ's rules for that are in
``BrokerMetricsManager.getMessageType``.
"""

from __future__ import annotations

from typing import Final

from orbitmq.message import property_names as names
from orbitmq.message.properties import decode_properties

NORMAL, FIFO, DELAY, TRANSACTION = range(4)
# Names of the types, by their numbers.
MESSAGE_TYPES: Final = ("normal", "fifo", "delay", "transaction")

# With this property some older clients ask for a delivery at a time; RocketMQ reads it for its metrics alone.
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
_DELAYS: Final = names.TIMER_PROPERTIES | {names.DELAY, START_DELIVER_TIME}
# The name of each property that decides the type contains one of these; most messages have none of them.
_MARKS: Final = tuple(
    name.encode()
    for name in (
        names.TRANSACTION_PREPARED,
        names.SHARDING_KEY,
        names.DELAY,
        names.TIMER_DELIVER_MS,
        START_DELIVER_TIME,
    )
)


def message_type(properties: bytes) -> int:
    """The number of the type of a message with these encoded properties."""
    for mark in _MARKS:
        if mark in properties:
            break
    else:
        return NORMAL
    found = decode_properties(properties)
    if found.get(names.TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if names.SHARDING_KEY in found:
        return FIFO
    return NORMAL if _DELAYS.isdisjoint(found) else DELAY
