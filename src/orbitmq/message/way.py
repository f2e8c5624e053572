"""Properties that brokers and consumers write into a message on its way, as opposed to its sender's.

These properties hold where a message waited, where it came from and how often it was delivered. They must
have no effect when a program sends the message on, or a broker stores it again: otherwise a received
transaction would become a half message, and a message that was delayed would wait again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.message import property_names as names
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX

# Written when a consumer sends a message back; a message to a retry topic is sent with them.
OF_A_RETRY: Final = frozenset(
    {names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES}
)
OF_A_POP: Final = frozenset({names.POP_CK, names.POP_CK_OFFSET, names.FIRST_POP_TIME, names.POP_REVIVED_FROM})
# Written by a broker into a message that waits, or has waited, for its time.
OF_A_WAIT: Final = frozenset(
    {
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.TIMER_OUT_MS,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_CUT_MS,
        names.TIMER_DELAY_LEVEL,
        names.DELIVERY_OF,
    }
)
# With one of these a message asks for a delivery time, or recalls another one that waits.
DELAYS: Final = frozenset({names.DELAY, *names.TIMER_PROPERTIES})
OF_A_TRANSACTION: Final = frozenset(
    {
        names.TRANSACTION_PREPARED,
        names.PRODUCER_GROUP,
        names.TRANSACTION_ID,
        names.TRANSACTION_CHECK_TIMES,
        names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    }
)
OF_A_DEAD_LETTER: Final = frozenset(
    {
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.DLQ_REASON,
        names.DLQ_CLIENT,
        names.DLQ_REDRIVES,
        names.DLQ_REDRIVE_ID,
    }
)
# Written by the broker that stores a message, and by the client that receives it.
OF_A_PLACE: Final = frozenset(
    {
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.CRC32,
        names.INNER_NUM,
        names.INNER_BASE,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.FORWARD_QUEUE_ID,
        names.REDIRECT,
        names.TRANSFER_FLAG,
        names.CORRECTION_FLAG,
        names.MQ2_FLAG,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CONSUME_START_TIME,
        names.DUP_INFO,
        names.ARRIVE_TIME,
        names.PUSH_REPLY_TIME,
        names.TRANSIENT_TOPIC_SYS_FLAG,
        names.TRANSIENT_GROUP_SYS_FLAG,
    }
)
# Properties that no sender sets.
OF_THE_WAY: Final = (
    OF_A_RETRY
    | OF_A_POP
    | OF_A_WAIT
    | OF_A_TRANSACTION
    | OF_A_DEAD_LETTER
    | OF_A_PLACE
    | {names.TIMER_DEL_UNIQKEY}
)
# Marks, and properties that a sender may set but that belong to the way if the message has one of the marks:
# those of a wait that is over, of a copy made for a retry, and of a reply that has reached its client.
_ALSO: Final = (
    (frozenset({names.REAL_TOPIC, names.TIMER_OUT_MS}), DELAYS),
    (frozenset({names.RETRY_TOPIC}), frozenset({names.WAIT})),
    (
        frozenset({names.ARRIVE_TIME, names.PUSH_REPLY_TIME}),
        frozenset({names.MSG_TYPE, names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL}),
    ),
)
# Properties of an earlier wait and of a recall. A message that is to wait now must not have them.
NOT_IN_A_NEW_WAIT: Final = OF_A_WAIT | {names.TIMER_DEL_UNIQKEY}


def own_properties(properties: dict[str, str], topic: str) -> dict[str, str]:
    """The properties that a message to ``topic`` is sent with; the same object if none belongs to the way."""
    if OF_THE_WAY.isdisjoint(properties):
        return properties
    dropped = OF_THE_WAY
    for marks, others in _ALSO:
        if not marks.isdisjoint(properties):
            dropped |= others
    if topic.startswith(RETRY_PREFIX):
        dropped -= OF_A_RETRY
    elif topic.startswith(DLQ_PREFIX):
        # A dead letter that a program moves must keep the topic it came from, or it cannot be redriven.
        dropped -= OF_A_RETRY | OF_A_DEAD_LETTER
    return {name: value for name, value in properties.items() if name not in dropped}


def without(properties: Mapping[str, str], dropped: frozenset[str]) -> dict[str, str]:
    """The properties without those of these names."""
    return {name: value for name, value in properties.items() if name not in dropped}
