"""The record of one message, as it is stored in the commit log and sent in a pull response.

All numbers are big-endian and signed. The fixed part in front of the body is 88 bytes long, plus 12 for each
host that is IPv6.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orbitmq.message import sysflag
from orbitmq.message.compression import MAX_DECOMPRESSED_BYTES, decompress
from orbitmq.message.errors import CompressionError, DamagedBodyError
from orbitmq.message.errors import RecordError as RecordError
from orbitmq.message.ids import offset_message_id, pack_host, unpack_host
from orbitmq.message.model import ReceivedMessage, UnreadableMessage
from orbitmq.message.properties import MAX_PROPERTIES_BYTES
from orbitmq.message.record_layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
)
from orbitmq.runtime.seam import Buffer

MAX_TOPIC_V1_BYTES: Final = 127
MAX_TOPIC_V2_BYTES: Final = 32767

Host = tuple[str, int]

_NO_HOST: Final[Host] = ("0.0.0.0", 0)  # noqa: S104  # an empty field, nothing is bound to it
_BLANK = struct.Struct(">ii")
_CRC_MASK = 0x7FFFFFFF
_SYS_FLAG = struct.Struct(">i")
_TOPIC_LENGTH_V2 = struct.Struct(">h")
_PROPERTIES_LENGTH = struct.Struct(">h")
# Indexed by (bornHost is IPv6) + 2 * (storeHost is IPv6).
_HEADS = tuple(
    struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
_V6_BITS: Final = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_UNUSUAL: Final = _V6_BITS | sysflag.COMPRESSED


@dataclass(slots=True)
class Record:
    """A stored message, field by field. Times are milliseconds since the epoch.

    ``total_size`` and ``body_crc`` are filled by decoding; encoding computes them and sets the IPv6 bits of
    ``sys_flag`` from the hosts.
    """

    topic: str
    body: bytes
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = _NO_HOST
    store_timestamp: int = 0
    store_host: Host = _NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    total_size: int = 0

    @property
    def message_id(self) -> str:
        """The offset id: store host and place in the commit log."""
        return offset_message_id(self.store_host[0], self.store_host[1], self.physical_offset)


def body_crc(body: Buffer) -> int:
    """CRC-32 without its top bit, like every checksum of RocketMQ."""
    return zlib.crc32(body) & _CRC_MASK


def encode_record(record: Record) -> bytes:
    """The bytes of ``record``; version 2 when the topic needs it (more than 127 bytes).

    Raises:
        RecordError: topic, properties or a number do not fit into their field.
        MessageFormatError: a host is not a numeric address.
    """
    topic = record.topic.encode("utf-8", "replace")
    properties = record.properties
    if len(topic) > MAX_TOPIC_V2_BYTES:
        raise RecordError(f"topic of {len(topic)} bytes is longer than {MAX_TOPIC_V2_BYTES} bytes")
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise RecordError(
            f"properties of {len(properties)} bytes are longer than {MAX_PROPERTIES_BYTES} bytes"
        )
    if len(topic) <= MAX_TOPIC_V1_BYTES:
        magic, topic_length = MAGIC_V1, bytes((len(topic),))
    else:
        magic, topic_length = MAGIC_V2, _TOPIC_LENGTH_V2.pack(len(topic))
    try:
        born, store = pack_host(*record.born_host), pack_host(*record.store_host)
    except OverflowError as error:
        raise RecordError(f"a port does not fit 32 bits: {record.born_host}, {record.store_host}") from error
    kind = (len(born) == 20) + 2 * (len(store) == 20)
    flags = record.sys_flag & ~_V6_BITS | kind << 4
    head = _HEADS[kind]
    body = record.body
    size = head.size + len(body) + len(topic_length) + len(topic) + 2 + len(properties)
    try:
        fixed = head.pack(
            size,
            magic,
            body_crc(body),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            flags,
            record.born_timestamp,
            born,
            record.store_timestamp,
            store,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise RecordError(f"a number of the record does not fit its field: {error}") from error
    return b"".join((fixed, body, topic_length, topic, _PROPERTIES_LENGTH.pack(len(properties)), properties))


def decode_record(buffer: Buffer, position: int = 0) -> Record:
    """The record that begins at ``position``; it ends at ``position + total_size``.

    The body's checksum is kept in ``body_crc`` and not compared.

    Raises:
        RecordError: too short, a blank record, an unknown magic number or lengths that contradict each other.
    """
    available = len(buffer) - position
    if position < 0 or available < MIN_RECORD_BYTES:
        if available >= _BLANK.size and position >= 0 and is_blank(buffer, position):
            raise RecordError(f"record at {position} is the blank end of a file, not a message")
        raise RecordError(f"record at {position}: {available} bytes are left, a record has at least 91")
    (flags,) = _SYS_FLAG.unpack_from(buffer, position + SYS_FLAG_AT)
    head = _HEADS[flags >> 4 & 3]
    if available < head.size + 3:
        raise RecordError(f"record at {position}: {available} bytes are left, its hosts need {head.size + 3}")
    fields = head.unpack_from(buffer, position)
    size, magic, body_length = fields[0], fields[1], fields[14]
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(_magic_problem(position, magic))
    if size > available or size < head.size + 3:
        raise RecordError(f"record at {position}: totalSize {size} does not fit the {available} bytes left")
    body_at = position + head.size
    if not 0 <= body_length <= size - head.size - 3:
        raise RecordError(f"record at {position}: bodyLength {body_length} does not fit totalSize {size}")
    at = body_at + body_length
    end = position + size
    if magic == MAGIC_V1:
        topic_length = buffer[at]
        topic_at = at + 1
    else:
        (topic_length,) = _TOPIC_LENGTH_V2.unpack_from(buffer, at)
        topic_at = at + 2
    at = topic_at + topic_length
    if topic_length < 0 or at + 2 > end:
        raise RecordError(f"record at {position}: topicLength {topic_length} does not fit totalSize {size}")
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(buffer, at)
    if properties_length != end - at - 2:
        raise RecordError(
            f"record at {position}: propertiesLength {properties_length} does not fit totalSize {size}"
        )
    return Record(
        bytes(buffer[topic_at:at]).decode("utf-8", "replace"),
        bytes(buffer[body_at : body_at + body_length]),
        bytes(buffer[at + 2 : end]),
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        flags,
        fields[8],
        unpack_host(fields[9]),
        fields[10],
        unpack_host(fields[11]),
        fields[12],
        fields[13],
        fields[2],
        size,
    )


def iter_records(buffer: Buffer) -> Iterator[Record]:
    """The records of a pull response or of a piece of a commit log, up to the end or the blank record.

    Raises:
        RecordError: a record is damaged or cut; those before it have been yielded.
    """
    position = 0
    end = len(buffer)
    while position < end:
        if end - position >= _BLANK.size and is_blank(buffer, position):
            return
        record = decode_record(buffer, position)
        yield record
        position += record.total_size


def blank_record(space_left_bytes: int) -> bytes:
    """The 8 bytes that mark the rest of a file, ``space_left_bytes`` from there on, as unused."""
    return _BLANK.pack(space_left_bytes, MAGIC_BLANK)


def is_blank(buffer: Buffer, position: int = 0) -> bool:
    """Whether the record that begins at ``position`` is the blank end of a file; needs 8 bytes."""
    return bool(_BLANK.unpack_from(buffer, position)[1] == MAGIC_BLANK)


def to_received(
    record: Record, broker_name: str, *, max_body_bytes: int = MAX_DECOMPRESSED_BYTES
) -> ReceivedMessage:
    """The message for a consumer: properties read, body decompressed and its flag cleared.

    Raises:
        CompressionError: the body is damaged or grows beyond ``max_body_bytes``.
    """
    message = ReceivedMessage.__new__(ReceivedMessage)
    flags = record.sys_flag
    if flags & sysflag.COMPRESSED:
        message.body = decompress(record.body, sysflag.compression_of(flags), max_body_bytes)
        flags &= ~sysflag.COMPRESSED
    else:
        message.body = record.body
    return _filled(message, record, broker_name, flags)


def check_body(record: Record) -> None:
    """Compare the body, as it is stored, with its checksum.

    Raises:
        DamagedBodyError: they do not match. A checksum of 0 means that there is none, as in some responses.
    """
    if record.body_crc and body_crc(record.body) != record.body_crc & _CRC_MASK:
        raise DamagedBodyError(
            f"the body of the record at {record.physical_offset} of the log does not match its checksum"
        )


def readable(record: Record, broker_name: str) -> ReceivedMessage:
    """As :func:`to_received`; when the body cannot be read, an :class:`UnreadableMessage` with all other
    fields."""
    try:
        check_body(record)
        return to_received(record, broker_name)
    except (CompressionError, DamagedBodyError) as error:
        message = UnreadableMessage.__new__(UnreadableMessage)
        message.body_error = error
        message.stored_body = record.body
        return _filled(message, record, broker_name, record.sys_flag)


def _filled(message: ReceivedMessage, record: Record, broker_name: str, flags: int) -> ReceivedMessage:
    """Fill all fields but the body."""
    message.topic = record.topic
    message.flag = record.flag
    message.packed_properties = record.properties
    message._properties = None
    message.broker_name = broker_name
    message.queue_id = record.queue_id
    message.queue_offset = record.queue_offset
    message.commit_log_offset = record.physical_offset
    message.store_size_bytes = record.total_size
    message.sys_flag = flags
    message.body_crc = record.body_crc
    message.born_timestamp_ms = record.born_timestamp
    message.packed_born_host = pack_host(*record.born_host)
    message.store_timestamp_ms = record.store_timestamp
    message.packed_store_host = pack_host(*record.store_host)
    message.reconsume_times = record.reconsume_times
    message.prepared_transaction_offset = record.prepared_transaction_offset
    return message


def readable_messages(
    buffer: bytes, broker_name: str, damaged: Callable[[str], object] | None = None
) -> list[ReceivedMessage]:
    """All messages of a pull response, as :func:`readable` gives them.

    Args:
        damaged: called with each record whose parts do not fit together or whose body does not match its
            checksum; such a record is left out. Without ``damaged`` the first kind raises, and the second is
            an unreadable message.

    Raises:
        RecordError: a record is damaged or cut.
    """
    found: list[ReceivedMessage] = []
    position, end = 0, len(buffer)
    topic, topic_bytes = "", b""
    head, make, crc32 = _HEADS[0], ReceivedMessage.__new__, zlib.crc32
    while position < end:
        if end - position >= MIN_RECORD_BYTES:
            # The usual record: version 1, IPv4, not compressed. All other records are decoded below.
            (size, magic, crc, queue_id, flag, queue_offset, physical_offset, flags, born, born_host, stored,
             store_host, times, prepared, body_length) = head.unpack_from(buffer, position)  # fmt: skip
            record_end = position + size
            body_at = position + 88
            topic_at = body_at + body_length + 1
            if (
                magic == MAGIC_V1
                and not flags & _UNUSUAL
                and record_end <= end
                and body_length >= 0
                and topic_at + 2 <= record_end
            ):
                lengths_at = topic_at + buffer[topic_at - 1]
                at = lengths_at + 2
                if at <= record_end and buffer[lengths_at] << 8 | buffer[at - 1] == record_end - at:
                    if buffer[topic_at:lengths_at] != topic_bytes:
                        topic_bytes = buffer[topic_at:lengths_at]
                        topic = topic_bytes.decode("utf-8", "replace")
                    body = buffer[body_at : topic_at - 1]
                    if crc and crc32(body) & _CRC_MASK != crc:
                        position = _add_unusual(found, buffer, position, broker_name, damaged)
                        continue
                    message = make(ReceivedMessage)
                    message.topic = topic
                    message.body = body
                    message.flag = flag
                    message.packed_properties = buffer[at:record_end]
                    message._properties = None
                    message.broker_name = broker_name
                    message.queue_id = queue_id
                    message.queue_offset = queue_offset
                    message.commit_log_offset = physical_offset
                    message.store_size_bytes = size
                    message.sys_flag = flags
                    message.body_crc = crc
                    message.born_timestamp_ms = born
                    message.packed_born_host = born_host
                    message.store_timestamp_ms = stored
                    message.packed_store_host = store_host
                    message.reconsume_times = times
                    message.prepared_transaction_offset = prepared
                    found.append(message)
                    position = record_end
                    continue
        if end - position >= _BLANK.size and is_blank(buffer, position):
            break
        position = _add_unusual(found, buffer, position, broker_name, damaged)
    return found


def _add_unusual(
    found: list[ReceivedMessage],
    buffer: bytes,
    position: int,
    broker_name: str,
    damaged: Callable[[str], object] | None,
) -> int:
    """Add the message at ``position``, or report it as damaged; returns where the next one begins."""
    try:
        record = decode_record(buffer, position)
    except RecordError as error:
        size = int.from_bytes(buffer[position : position + 4], "big", signed=True)
        if damaged is None or not MIN_RECORD_BYTES <= size <= len(buffer) - position:
            raise
        place = int.from_bytes(buffer[position + PHYSICAL_OFFSET_AT :][:8], "big", signed=True)
        damaged(f"the record at {place} of the log cannot be read: {error}")
        return position + size
    message = readable(record, broker_name)
    if (
        damaged is not None
        and isinstance(message, UnreadableMessage)
        and isinstance(message.body_error, DamagedBodyError)
    ):
        damaged(f"{record.topic} queue {record.queue_id} offset {record.queue_offset}: {message.body_error}")
    else:
        found.append(message)
    return position + record.total_size


def _magic_problem(position: int, magic: int) -> str:
    if magic == MAGIC_BLANK:
        return f"record at {position} is the blank end of a file, not a message"
    return f"record at {position}: magic number 0x{magic & 0xFFFFFFFF:08X} is not one of a message"
