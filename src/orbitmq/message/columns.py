"""The columns that stored records can become: their names, and their buffers in Arrow's layout."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.runtime.buffers import Writable

QUEUE_ID = "queue_id"
QUEUE_OFFSET = "queue_offset"
BORN_TIMESTAMP = "born_timestamp"
STORE_TIMESTAMP = "store_timestamp"
RECONSUME_TIMES = "reconsume_times"
TOPIC = "topic"
TAGS = "tags"
KEYS = "keys"
BODY = "body"
BODY_SIZE = "body_size"
PROPERTIES = "properties"
PROPERTY_BLOCK = "property_block"
MESSAGE_ID = "message_id"

COLUMN_NAMES = frozenset(
    (
        QUEUE_ID,
        QUEUE_OFFSET,
        BORN_TIMESTAMP,
        STORE_TIMESTAMP,
        RECONSUME_TIMES,
        TOPIC,
        TAGS,
        KEYS,
        BODY,
        BODY_SIZE,
        PROPERTIES,
        PROPERTY_BLOCK,
        MESSAGE_ID,
    )
)

# What a body that cannot be decompressed becomes: an error of the chunk, null, or its stored bytes.
FAIL = "fail"
NULL = "null"
RAW = "raw"


class Fixed(NamedTuple):
    """A column of fixed width: 4-byte integers (ids, counts) or 8-byte ones (offsets, milliseconds)."""

    values: bytearray


class Text(NamedTuple):
    """A column of varying width: ``rows + 1`` 32-bit offsets into ``data``; a bit per row if nullable."""

    offsets: bytearray
    data: Writable | bytes
    size_bytes: int
    validity: bytearray | None


class Pairs(NamedTuple):
    """The property map: ``rows + 1`` 32-bit offsets into ``names`` and ``values``."""

    offsets: bytearray
    size: int
    names: Text
    values: Text


class Columns(NamedTuple):
    """The decoded records: the requested columns by name, and the errors of bodies by row."""

    rows: int
    fixed: dict[str, Fixed]
    texts: dict[str, Text]
    properties: Pairs | None
    errors: dict[int, str]
