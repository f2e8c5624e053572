"""Makes the message that a gRPC client gets from a stored message. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from orbitmq.gateway import plain_deliveries, schema
from orbitmq.gateway.incoming import RESERVED
from orbitmq.gateway.messages import duration, new, timestamp
from orbitmq.gateway.schema import DigestType, Encoding, MessageType
from orbitmq.message import property_names as names
from orbitmq.message import sysflag
from orbitmq.message.compression import decompress
from orbitmq.message.ids import unpack_host
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.record import Record
from orbitmq.wire.addresses import joined

_TIMERS: Final = (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
_MAX_INSTANT_MS = 253_402_300_799_000  # the end of the year 9999, protobuf's last


# How plain deliveries treat a property, by its name; all other properties are the user's.
PLAIN_NAMES: Final = {
    **{name.encode(): plain_deliveries.SKIPPED for name in RESERVED},
    **{
        name.encode(): plain_deliveries.UNUSUAL
        for name in (
            *_TIMERS,
            names.TRANSACTION_PREPARED,
            names.SHARDING_KEY,
            names.CHECK_IMMUNITY_TIME_IN_SECONDS,
            names.DLQ_ORIGIN_TOPIC,
            names.DLQ_ORIGIN_MESSAGE_ID,
        )
    },
    names.TAGS.encode(): plain_deliveries.TAG,
    names.KEYS.encode(): plain_deliveries.KEYS,
    names.UNIQ_KEY.encode(): plain_deliveries.ID,
    names.BORN_HOST.encode(): plain_deliveries.BORN_HOST,
    names.TRACE_CONTEXT.encode(): plain_deliveries.TRACE,
}


def digest_of(body: bytes) -> bytes:
    """The MD5 checksum of a body, in hexadecimal: each language's client computes CRC32 in its own way.

    No security depends on it.
    """
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()


def host_of(raw: bytes) -> bytes:
    """The text host:port of a record's packed host."""
    return joined(*unpack_host(raw)).encode()


def body_of(record: Record) -> bytes:
    """The body, decompressed: no client reads every kind of compression.

    Raises:
        CompressionError: it is damaged, or too large when decompressed.
    """
    if record.sys_flag & sysflag.COMPRESSED:
        return decompress(record.body, sysflag.compression_of(record.sys_flag))
    return record.body


def message_of(
    record: Record,
    properties: Mapping[str, str],
    body: bytes,
    topic: schema.Resource,
    handle: str,
    attempt: int,
) -> schema.Message:
    """The message for a client.

    Args:
        topic: as the client named it.
        handle: the receipt handle; empty in a transaction check, which has none.
        attempt: 1 for the first delivery.
    """
    own = {name: value for name, value in properties.items() if name not in RESERVED}
    return new(
        schema.Message,
        topic=topic,
        user_properties=own,
        system_properties=_system(record, properties, body, handle, attempt),
        body=body,
    )


def kind_of(properties: Mapping[str, str]) -> MessageType:
    """The message type under which a message was sent, by its properties."""
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if any(name in properties for name in _TIMERS):
        return MessageType.DELAY
    return MessageType.FIFO if names.SHARDING_KEY in properties else MessageType.NORMAL


def _system(
    record: Record, properties: Mapping[str, str], body: bytes, handle: str, attempt: int
) -> schema.SystemProperties:
    system = new(
        schema.SystemProperties,
        keys=properties.get(names.KEYS, "").split(),
        message_id=properties.get(names.UNIQ_KEY) or record.message_id,
        body_digest=new(schema.Digest, type=DigestType.MD5, checksum=digest_of(body).decode()),
        body_encoding=Encoding.IDENTITY,
        message_type=kind_of(properties),
        born_timestamp=_instant(record.born_timestamp),
        born_host=properties.get(names.BORN_HOST) or joined(*record.born_host),
        store_timestamp=_instant(record.store_timestamp),
        store_host=joined(*record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(attempt, INT32),
    )
    if handle:
        system.receipt_handle = handle
    if tag := properties.get(names.TAGS):
        system.tag = tag
    if group := properties.get(names.SHARDING_KEY):
        system.message_group = group
    if trace := properties.get(names.TRACE_CONTEXT):
        system.trace_context = trace
    deliver_ms = whole_number(properties.get(names.TIMER_DELIVER_MS, ""))
    if deliver_ms is not None:
        system.delivery_timestamp.CopyFrom(_instant(deliver_ms))
    recovery_s = whole_number(properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS, ""), INT32)
    if recovery_s is not None:
        system.orphaned_transaction_recovery_duration.CopyFrom(duration(recovery_s * 1000))
    origin, first_id = properties.get(names.DLQ_ORIGIN_TOPIC), properties.get(names.DLQ_ORIGIN_MESSAGE_ID)
    if origin and first_id:
        system.dead_letter_queue.CopyFrom(new(schema.DeadLetterQueue, topic=origin, message_id=first_id))
    return system


def _instant(ms: int) -> schema.Timestamp:
    return timestamp(min(max(0, ms), _MAX_INSTANT_MS))
