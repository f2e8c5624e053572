"""The body of a batch: several messages of one topic in one request (code 320)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.message.errors import RecordError
from orbitmq.message.model import Message
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.runtime.seam import Buffer

# size, magic (0), checksum (0), flag, body length
_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
MIN_ITEM_BYTES: Final = _HEAD.size + _PROPERTIES_LENGTH.size


class BatchItem(NamedTuple):
    """One message of a batch; ``properties`` is the encoded block."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[Message]) -> bytes:
    """The body for ``messages``. Unique keys must be among their properties already.

    Raises:
        RecordError: a flag beyond 32 bits, or properties of more than 32767 bytes.
    """
    parts: list[bytes] = []
    for message in messages:
        parts += item_parts(message.flag, bytes(message.body), encode_properties(message.properties))
    return b"".join(parts)


def item_parts(flag: int, body: bytes, properties: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """One message of a batch, in parts that follow each other. Errors as with :func:`encode_batch`."""
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise RecordError(
            f"properties of {len(properties)} bytes are longer than {MAX_PROPERTIES_BYTES} bytes"
        )
    size = MIN_ITEM_BYTES + len(body) + len(properties)
    try:
        head = _HEAD.pack(size, 0, 0, flag, len(body))
    except struct.error as error:
        raise RecordError(f"flag {flag} does not fit 32 bits") from error
    return head, body, _PROPERTIES_LENGTH.pack(len(properties)), properties


def iter_batch(body: Buffer) -> Iterator[BatchItem]:
    """The messages in the body of a batch.

    Raises:
        RecordError: an item is cut, or its lengths contradict each other; those before it have been yielded.
    """
    position, end = 0, len(body)
    while position < end:
        if end - position < MIN_ITEM_BYTES:
            raise RecordError(
                f"batch item at {position}: {end - position} bytes are left, it has at least 22"
            )
        size, _, _, flag, body_length = _HEAD.unpack_from(body, position)
        if not MIN_ITEM_BYTES <= size <= end - position:
            raise RecordError(
                f"batch item at {position}: size {size} does not fit the {end - position} bytes left"
            )
        if not 0 <= body_length <= size - MIN_ITEM_BYTES:
            raise RecordError(f"batch item at {position}: bodyLength {body_length} does not fit size {size}")
        body_at = position + _HEAD.size
        at = body_at + body_length
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(body, at)
        position += size
        if properties_length != position - at - 2:
            raise RecordError(
                f"batch item at {position - size}: propertiesLength {properties_length} is wrong"
            )
        yield BatchItem(flag, bytes(body[body_at:at]), bytes(body[at + 2 : position]))
