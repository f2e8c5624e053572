"""The forms of a transaction message: half, final, copy of a half, check at its producer (no I/O)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from orbitmq.broker.delay.levels import level_of
from orbitmq.broker.messaging.room import fitted
from orbitmq.broker.messaging.stored import copied
from orbitmq.broker.messaging.too_large import PropertiesTooLongError
from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.message.record import Record, encode_record
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","
# The most bytes of a half message's properties: its copies have more properties.
MAX_HALF_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - 100


def is_prepared(message: NewMessage, properties: Mapping[str, str]) -> bool:
    """Whether a send is the first half of a transaction (SendMessageProcessor.sendMessage).

    Clients before 4.6.1 leave TRAN_MSG on messages that they send back for a retry.
    """
    if properties.get(property_names.TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (message.reconsume_times > 0 and level_of(properties) > 0)


def half_message(message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
    """The message stored in place of a prepared one (TransactionalMessageBridge.parseHalfMessageInner).

    Raises:
        PropertiesTooLongError: the properties are too long with the names of topic and queue.
    """
    # Left from an earlier send, the place would name another half message, and the count would end the checks
    # early. A half message handed on by another broker keeps its count of checks, but not its place.
    stale = {property_names.TRANSACTION_PREPARED_QUEUE_OFFSET}
    if property_names.REAL_TOPIC in properties:
        stale.add(property_names.TRANSACTION_CHECK_TIMES)
    marked = {name: value for name, value in properties.items() if name not in stale}
    unique_id = marked.get(property_names.UNIQ_KEY)
    if unique_id:
        marked[property_names.TRANSACTION_ID] = unique_id
    marked[property_names.REAL_TOPIC] = message.topic
    marked[property_names.REAL_QUEUE_ID] = str(message.queue_id)
    encoded = encode_properties(marked)
    if len(encoded) > MAX_HALF_PROPERTIES_BYTES:
        raise _too_long(len(encoded), MAX_HALF_PROPERTIES_BYTES)
    return replace(
        message,
        topic=reserved.TRANS_HALF_TOPIC,
        queue_id=0,
        properties=encoded,
        sys_flag=sysflag.with_transaction(message.sys_flag, sysflag.TRANSACTION_NOT),
    )


def final_message(record: Record, properties: Mapping[str, str]) -> tuple[NewMessage, dict[str, str]]:
    """The message that consumers get, and its properties as the append hooks get them.

    As in RocketMQ the stored properties still name the transaction and the real topic and queue
    (EndTransactionProcessor.endMessageTransaction).

    Raises:
        RemotingError: the half message does not name its topic and queue.
    """
    judged = dict(properties)
    judged.pop(property_names.TRANSACTION_PREPARED, None)
    topic = judged.pop(property_names.REAL_TOPIC, "")
    queue_text = judged.pop(property_names.REAL_QUEUE_ID, "")
    queue_id = whole_number(queue_text, INT32)
    if not topic or queue_id is None:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"half message {record.message_id} has REAL_TOPIC {topic!r} and REAL_QID {queue_text!r}",
        )
    message = copied(record, properties, topic, queue_id, encoded=record.properties)
    message.sys_flag = sysflag.with_transaction(record.sys_flag, sysflag.TRANSACTION_COMMIT)
    message.prepared_transaction_offset = record.physical_offset
    return message, judged


def renewed(record: Record, properties: Mapping[str, str]) -> NewMessage:
    """A copy of the half message, for the end of its queue, with changed properties."""
    message = _again(record, properties)
    message.topic = reserved.TRANS_HALF_TOPIC
    return message


def handed_on(record: Record, properties: Mapping[str, str]) -> NewMessage:
    """The half message as its producer sent it, for another master (TX-04).

    Its own timeout has passed: the other master checks it at once.

    Raises:
        RemotingError: the half message does not name its topic and queue.
    """
    changed = dict(properties)
    topic = changed.pop(property_names.REAL_TOPIC, "")
    queue_text = changed.pop(property_names.REAL_QUEUE_ID, "")
    queue_id = whole_number(queue_text, INT32)
    if not topic or queue_id is None:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"half message {record.message_id} has REAL_TOPIC {topic!r} and REAL_QID {queue_text!r}",
        )
    changed.pop(property_names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    changed[property_names.TRANSACTION_PREPARED] = "true"
    changed.setdefault(property_names.CHECK_IMMUNITY_TIME_IN_SECONDS, "0")
    message = _again(record, changed)
    message.topic = topic
    message.queue_id = queue_id
    message.sys_flag = sysflag.with_transaction(record.sys_flag, sysflag.TRANSACTION_PREPARED)
    return message


def discarded(record: Record, properties: Mapping[str, str]) -> NewMessage:
    """The form for the discard topic of a half message that was checked too often."""
    return copied(record, properties, reserved.TRANS_CHECK_MAX_TIME_TOPIC, 0, encoded=record.properties)


def _again(record: Record, properties: Mapping[str, str]) -> NewMessage:
    return copied(record, properties, record.topic, 0, encoded=_encoded(properties))


def question(record: Record, properties: Mapping[str, str], offset: int, physical_offset: int) -> bytes:
    """The body of CHECK_TRANSACTION_STATE: the half message under its real topic and queue.

    Args:
        offset: the present offset of the half message in the half queue.
        physical_offset: its present place in the commit log.
    """
    return encode_record(
        replace(
            record,
            topic=properties.get(property_names.REAL_TOPIC, ""),
            queue_id=_whole(properties.get(property_names.REAL_QUEUE_ID)) or 0,
            queue_offset=offset,
            physical_offset=physical_offset,
            properties=_encoded(properties),
        )
    )


def immunity_ms(properties: Mapping[str, str], default_ms: int) -> int:
    """How long after its birth a message is not checked (TransactionalMessageUtil.getImmunityTime)."""
    text = properties.get(property_names.CHECK_IMMUNITY_TIME_IN_SECONDS)
    seconds = _whole(text)
    return default_ms if seconds is None or seconds < 0 else seconds * 1000


def has_immunity(properties: Mapping[str, str]) -> bool:
    """Whether the producer has chosen the time of the first check."""
    return bool(properties.get(property_names.CHECK_IMMUNITY_TIME_IN_SECONDS))


def checks_so_far(properties: Mapping[str, str]) -> int:
    """How often a half message has been checked at its producers."""
    return max(0, _whole(properties.get(property_names.TRANSACTION_CHECK_TIMES)) or 0)


def origin(offset: int, properties: Mapping[str, str]) -> int:
    """The half-queue offset of the original of the half message at ``offset``."""
    known = _whole(properties.get(property_names.TRANSACTION_PREPARED_QUEUE_OFFSET))
    return offset if known is None or not 0 <= known < offset else known


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def op_messages(
    offsets: Iterable[int], limit_bytes: int, now_ms: int, host: tuple[str, int]
) -> list[OpMessage]:
    """Marks for finished half messages, as messages of the op topic.

    Args:
        offsets: the finished messages' offsets in the half queue.
        limit_bytes: a body that has reached this size is closed (transactionOpMsgMaxSize).
    """
    properties = _encoded({property_names.TAGS: REMOVE_TAG, property_names.WAIT: "true"})
    code = tags_code(REMOVE_TAG)
    made: list[OpMessage] = []
    part: list[int] = []
    size = 0

    def close() -> None:
        body = "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in part).encode()
        message = NewMessage(
            reserved.TRANS_OP_TOPIC,
            0,
            body,
            properties,
            born_timestamp=now_ms,
            born_host=host,
            tags_code=code,
        )
        made.append((message, max(part)))
        part.clear()

    for offset in offsets:
        part.append(offset)
        size += len(str(offset)) + 1
        if size >= limit_bytes:
            close()
            size = 0
    if part:
        close()
    return made


# An op message, and the highest half offset that it marks.
OpMessage = tuple[NewMessage, int]


def marked_offsets(body: bytes) -> list[int]:
    """The half offsets that an op message marks; parts that are not numbers are left out."""
    parts = body.split(OFFSET_SEPARATOR.encode())
    return [int(part) for part in parts if part.isdigit() and len(part) < 20]


def _encoded(properties: Mapping[str, str]) -> bytes:
    encoded = fitted(dict(properties))
    if encoded is None:
        raise _too_long(len(encode_properties(properties)), MAX_PROPERTIES_BYTES)
    return encoded


def _too_long(size: int, limit: int) -> PropertiesTooLongError:
    return PropertiesTooLongError(f"the message is illegal: properties of {size} bytes, limit {limit} bytes")
