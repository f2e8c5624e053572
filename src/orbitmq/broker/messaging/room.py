"""Properties that a broker adds to a message, and which of them are dropped for lack of room.

The length of a record's properties is a signed number of 16 bits. A message that just fits must not become
undeliverable because a copy of it has more properties than its sender set.
"""

from __future__ import annotations

from orbitmq.message import property_names as names
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.message.record import Record

# Properties that brokers add, the least important first. Properties that delivery depends on are not listed:
# real topic and queue, delay, unique id, the numbers of timers and transactions.
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
    """The properties as bytes, at most ``limit``; expendable properties without room are left out.

    Returns:
        ``None``: the properties do not fit even without all expendable ones.
    """
    encoded = encode_properties(properties)
    for name in EXPENDABLE if len(encoded) > limit else ():
        if properties.pop(name, None) is not None:
            encoded = encode_properties(properties)
            if len(encoded) <= limit:
                break
    return encoded if len(encoded) <= limit else None


def with_property(encoded: bytes, name: str, value: str) -> bytes:
    """Encoded properties with one more at the end, if there is room; the others stay as they are."""
    end = b"" if not encoded or encoded.endswith(b"\x02") else b"\x02"
    longer = encoded + end + encode_properties({name: value})
    return longer if len(longer) <= MAX_PROPERTIES_BYTES else encoded


def fitted_copy(record: Record, properties: dict[str, str]) -> bytes:
    """The properties of a copy that must be stored: those of :func:`fitted`, or else the record's own.

    The record's own properties fit unchanged. Encoded again they may not: each byte that is not UTF-8 becomes
    three.
    """
    encoded = fitted(properties)
    return record.properties if encoded is None else encoded
