"""Makes the stored form of a message that a gRPC client sends: checked, and with the properties that Apache's
proxy gives it. Pure."""

from __future__ import annotations

import re
import zlib
from typing import Final

from orbitmq.broker.messaging.sending import SendRequest
from orbitmq.gateway import schema
from orbitmq.gateway.messages import milliseconds
from orbitmq.gateway.names import TYPE_ATTRIBUTE, accepted_types
from orbitmq.gateway.queue_choice import queue_of
from orbitmq.gateway.schema import Encoding, MessageType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.message import property_names as names
from orbitmq.message import sysflag
from orbitmq.message.compression import decompress
from orbitmq.message.errors import CompressionError
from orbitmq.message.numbers import INT64
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.wire.bodies.topic import TopicConfig

MAX_PROPERTIES: Final = 128
MAX_USER_BYTES: Final = 16 * 1024
MAX_GROUP_BYTES: Final = 63
MAX_RECOVERY_MS: Final = 3600 * 1000
# Reserved for the properties that the broker adds: its region, its cluster, a delayed message's real topic.
_ADDED_BYTES = 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
_DEFAULT_QUEUES = 4
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")

# The names of RocketMQ's own properties; a user's message may not have a property of these names.
RESERVED: Final = frozenset(
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
) - {names.KEY_SEPARATOR}


def send_request(
    message: schema.Message,
    topic: TopicConfig,
    *,
    now_ms: int,
    client: str,
    body_limit: int,
    max_delay_ms: int,
) -> SendRequest:
    """The stored form of a message.

    Args:
        client: host:port of the sender.

    Raises:
        RefusalError: a part of the message exceeds its limit; the text names field, value and limit.
    """
    system = message.system_properties
    kind = message_type(system)
    _check_kind(kind, topic)
    body, flags = _body(message, body_limit)
    properties = _properties(message, topic.topic_name, now_ms, client, max_delay_ms)
    queue_id = -1
    if system.message_group and topic.write_queue_nums > 0:
        queue_id = queue_of(system.message_group, topic.write_queue_nums)
    return SendRequest(
        topic=topic.topic_name,
        body=body,
        properties=properties,
        queue_id=queue_id,
        sys_flag=flags,
        born_timestamp=int(properties[names.BORN_TIMESTAMP]),
        producer_group=topic.topic_name,
        default_topic_queue_nums=_DEFAULT_QUEUES,
    )


# -- kinds ---------------------------------------------------------------------------------------------


def message_type(system: schema.SystemProperties) -> MessageType:
    """The type of a message, by its system properties, as behind Apache's proxy.

    Raises:
        RefusalError: the message lacks a property that its type needs, or the type is not served.
    """
    said = system.message_type
    if said in (MessageType.LITE, MessageType.PRIORITY) or system.HasField("lite_topic"):
        name = MessageType(said).name if said in MessageType.__members__.values() else str(said)
        raise RefusalError(
            Code.UNSUPPORTED, f"message_type {name}: lite topics and priorities are not served"
        )
    if said == MessageType.TRANSACTION:
        return MessageType.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return MessageType.DELAY
    if said == MessageType.DELAY:
        raise RefusalError(
            Code.ILLEGAL_DELIVERY_TIME, "message_type DELAY: the message has no delivery_timestamp"
        )
    if system.message_group:
        return MessageType.FIFO
    if said == MessageType.FIFO:
        raise RefusalError(Code.ILLEGAL_MESSAGE_GROUP, "message_type FIFO: the message has no message_group")
    return MessageType.NORMAL


def _check_kind(kind: MessageType, topic: TopicConfig) -> None:
    accepted = accepted_types(topic)
    if kind in accepted:
        return
    name = topic.topic_name
    of_topic = topic.attributes.get(TYPE_ATTRIBUTE, "NORMAL")
    raise RefusalError(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"a message of type {kind.name} for topic {name}, whose {TYPE_ATTRIBUTE} is {of_topic}: "
        f"orbitmq topic create {name} --attribute {TYPE_ATTRIBUTE}={kind.name}",
    )


# -- bodies --------------------------------------------------------------------------------------------


def _body(message: schema.Message, limit: int) -> tuple[bytes, int]:
    """The body as it is stored, and its system flags.

    Clients name both gzip and zlib GZIP. Consumers of the remoting protocol read only zlib, so gzip is
    decompressed.

    Raises:
        RefusalError: the body is empty, too large, or of an unknown encoding.
    """
    body = message.body
    if not body:
        raise RefusalError(Code.MESSAGE_BODY_EMPTY, "the message body is empty")
    if len(body) > limit:
        raise _too_large(f"{len(body)} bytes", limit)
    if message.system_properties.body_encoding != Encoding.GZIP:
        return body, 0
    if body.startswith(_GZIP_MAGIC):
        unpacked = _ungzipped(body, limit)
        if not unpacked:
            raise RefusalError(Code.MESSAGE_BODY_EMPTY, "the message body is empty when it is unpacked")
        return unpacked, 0
    try:
        decompress(body, sysflag.CompressionType.ZLIB)
    except CompressionError as error:
        raise RefusalError(Code.MESSAGE_CORRUPTED, f"body_encoding GZIP: {error}") from error
    return body, sysflag.COMPRESSED


def _ungzipped(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(
            Code.MESSAGE_CORRUPTED, f"body_encoding GZIP: the body of {len(body)} bytes is damaged: {error}"
        ) from error
    if len(unpacked) > limit:
        raise _too_large("more than that when it is unpacked", limit)
    if not stream.eof:
        raise RefusalError(
            Code.MESSAGE_CORRUPTED, f"body_encoding GZIP: the body of {len(body)} bytes ends too early"
        )
    return unpacked


def _too_large(what: str, limit: int) -> RefusalError:
    return RefusalError(
        Code.MESSAGE_BODY_TOO_LARGE, f"the message body has {what}, limit maxMessageSize {limit} bytes"
    )


# -- properties ----------------------------------------------------------------------------------------


def _properties(
    message: schema.Message, topic: str, now_ms: int, client: str, max_delay_ms: int
) -> dict[str, str]:
    system = message.system_properties
    properties = dict(message.user_properties)
    _check_user_properties(properties)
    keys = names.KEY_SEPARATOR.join(_key(key) for key in system.keys)
    _check_tag(system.tag)
    _check_user_bytes(properties, system)
    if not system.message_id.strip():
        raise RefusalError(Code.ILLEGAL_MESSAGE_ID, "message_id is empty")
    _no_controls(Code.ILLEGAL_MESSAGE_ID, "message_id", system.message_id)
    _check_group(system.message_group)
    _no_controls(Code.BAD_REQUEST, "trace_context", system.trace_context)
    _no_controls(Code.BAD_REQUEST, "born_host", system.born_host)
    born_ms = milliseconds(system.born_timestamp)
    if not 0 < born_ms <= INT64:
        born_ms = now_ms
    known = {
        names.TAGS: system.tag,
        names.KEYS: keys,
        names.UNIQ_KEY: system.message_id,
        names.TIMER_DELIVER_MS: _deliver_at(system, now_ms, max_delay_ms),
        names.RECONSUME_TIME: str(max(0, system.delivery_attempt)),
        names.PRODUCER_GROUP: topic,
        names.SHARDING_KEY: system.message_group,
        names.TRACE_CONTEXT: system.trace_context,
        names.BORN_HOST: system.born_host.strip() or client,
        names.BORN_TIMESTAMP: str(born_ms),
    }
    if system.message_type == MessageType.TRANSACTION:
        known[names.TRANSACTION_PREPARED] = "true"
        known[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = _recovery(system)
    properties.update((name, value) for name, value in known.items() if value)
    size = len(encode_properties(properties))
    if size > MAX_PROPERTIES_BYTES - _ADDED_BYTES:
        raise RefusalError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"all properties of the message have {size} bytes, limit {MAX_PROPERTIES_BYTES - _ADDED_BYTES}",
        )
    return properties


def _check_user_properties(properties: dict[str, str]) -> None:
    code = Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    if len(properties) > MAX_PROPERTIES:
        raise RefusalError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(properties)} properties, limit {MAX_PROPERTIES}",
        )
    for name, value in properties.items():
        shown = f"property {name[:64]!r}"
        if name in RESERVED or name.startswith(names.TRANSIENT_PREFIX):
            raise RefusalError(code, f"{shown}: the name is RocketMQ's own")
        if not name or not value:
            raise RefusalError(code, f"{shown}: a name and a value must not be empty")
        _no_controls(code, shown, name)
        _no_controls(code, shown, value)


def _check_user_bytes(properties: dict[str, str], system: schema.SystemProperties) -> None:
    texts = [*properties, *properties.values(), system.tag, *system.keys]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MAX_USER_BYTES:
        raise RefusalError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} bytes in all, limit {MAX_USER_BYTES}",
        )


def _check_tag(tag: str) -> None:
    code = Code.ILLEGAL_MESSAGE_TAG
    if tag and not tag.strip():
        raise RefusalError(code, f"tag {tag[:64]!r} is blank")
    if "|" in tag:
        raise RefusalError(code, f"tag {tag[:64]!r} has a |, which separates tags of consumers")
    _no_controls(code, "tag", tag)


def _key(key: str) -> str:
    if not key.strip():
        raise RefusalError(Code.ILLEGAL_MESSAGE_KEY, f"key {key[:64]!r} is blank")
    _no_controls(Code.ILLEGAL_MESSAGE_KEY, "key", key)
    return key


def _check_group(group: str) -> None:
    code = Code.ILLEGAL_MESSAGE_GROUP
    if group and not group.strip():
        raise RefusalError(code, f"message_group {group[:64]!r} is blank")
    size = len(group.encode("utf-8", "replace"))
    if size > MAX_GROUP_BYTES:
        raise RefusalError(code, f"message_group has {size} bytes, limit {MAX_GROUP_BYTES}")
    _no_controls(code, "message_group", group)


def _no_controls(code: Code, what: str, text: str) -> None:
    """Refuse control characters, as they separate properties in the log."""
    if _CONTROLS.search(text) is not None:
        raise RefusalError(code, f"{what}: {text[:64]!r} has a control character")


def _recovery(system: schema.SystemProperties) -> str:
    """The value of the property for the time after which an open transaction is checked first."""
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return ""
    asked_ms = milliseconds(system.orphaned_transaction_recovery_duration)
    if not 0 <= asked_ms <= MAX_RECOVERY_MS:
        raise RefusalError(
            Code.BAD_REQUEST,
            f"orphaned_transaction_recovery_duration {asked_ms} ms, limits 0 to {MAX_RECOVERY_MS} ms",
        )
    return str(-(-asked_ms // 1000))


def _deliver_at(system: schema.SystemProperties, now_ms: int, max_delay_ms: int) -> str:
    """The value of the property for a delivery at a given time; a past time means at once."""
    if not system.HasField("delivery_timestamp"):
        return ""
    asked_ms = milliseconds(system.delivery_timestamp)
    if asked_ms - now_ms > max_delay_ms:
        raise RefusalError(
            Code.ILLEGAL_DELIVERY_TIME,
            f"delivery_timestamp is {(asked_ms - now_ms) // 1000} s from now, "
            f"limit timerMaxDelaySec {max_delay_ms // 1000} s",
        )
    return str(max(1, asked_ms))
