"""What a broker adds to the properties of a message, and what of it goes when there is no room for all.

The length of a record's properties is a signed number of 16 bits. A message that just fits must not stop
being delivered because a copy of it says more than its sender did.
"""

from __future__ import annotations

from orbitmq.message import property_names as names
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.message.record import Record

# What brokers add, the least missed first. Not among them is what the way of a message depends on: its real
# topic and queue, its delay, its unique id, the numbers of timers and transactions.
EXPENDABLE = (
    names.DLQ_REASON,
    names.DLQ_CLIENT,
    names.TIMER_DEQUEUE_MS,
    names.WAIT,
    names.DLQ_ORIGIN_MESSAGE_ID,
    names.FIRST_POP_TIME,
    names.TRACE_ON,
    names.MSG_REGION,
    names.POP_REVIVED_FROM,
    names.DELIVERY_OF,
    names.ORIGIN_MESSAGE_ID,
    names.DLQ_ORIGIN_TOPIC,
    names.CLUSTER,
    names.RETRY_TOPIC,
)


def fitted(properties: dict[str, str], limit: int = MAX_PROPERTIES_BYTES) -> bytes | None:
    """The properties as bytes, at most ``limit``; what is expendable and has no room is removed from them.

    Returns:
        ``None``: they do not fit even without all that.
    """
    encoded = encode_properties(properties)
    for name in EXPENDABLE if len(encoded) > limit else ():
        if properties.pop(name, None) is not None:
            encoded = encode_properties(properties)
            if len(encoded) <= limit:
                break
    return encoded if len(encoded) <= limit else None


def with_property(encoded: bytes, name: str, value: str) -> bytes:
    """Encoded properties with one more behind them, if there is room; the others stay as they are."""
    end = b"" if not encoded or encoded.endswith(b"\x02") else b"\x02"
    longer = encoded + end + encode_properties({name: value})
    return longer if len(longer) <= MAX_PROPERTIES_BYTES else encoded


def fitted_copy(record: Record, properties: dict[str, str]) -> bytes:
    """As :func:`fitted`, for a copy that nothing may stop: in the end with the record's own properties.

    Those fit as they are: written anew they may not, for each byte that is not UTF-8 becomes three.
    """
    encoded = fitted(properties)
    return record.properties if encoded is None else encoded
