# cython: annotation_typing=False
"""The open batch of a topic: messages that wait to be sent together, and their results.

Typed in ``open_batch.pxd`` and compiled if a C compiler is available; the same source also runs uncompiled.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import NamedTuple

import cython

from orbitmq.client.model import SendResult
from orbitmq.message.model import Message

if not cython.compiled:
    from orbitmq.message.octets import copy, put_i32

_ITEM_HEAD = struct.Struct(">iiiii")
_BLOCK_LENGTH = struct.Struct(">h")
_ID_CHARS = 32
_COUNTER_CHARS = 4
# The property that follows the id of an item without properties of its own.
PLAIN_PROPERTIES = b"WAIT\x01true\x02"
_BEFORE_ID = b"UNIQ_KEY\x01"
_AFTER_ID = b"\x02" + PLAIN_PROPERTIES
_PLAIN_BLOCK_BYTES = len(_BEFORE_ID) + _ID_CHARS + len(_AFTER_ID)
# The size of an item without properties, beside its body.
PLAIN_ITEM_BYTES = _ITEM_HEAD.size + _BLOCK_LENGTH.size + _PLAIN_BLOCK_BYTES
# These are C integers in the compiled module.
_HEAD_BYTES = _ITEM_HEAD.size
_PLAIN_BYTES = PLAIN_ITEM_BYTES
_ID_AT = _BLOCK_LENGTH.size + len(_BEFORE_ID)
_ID_BYTES = _ID_CHARS


class Item(NamedTuple):
    """A message of a batch that has properties or a flag."""

    body: bytes
    flag: int
    properties: bytes
    unique_id: str | None

    @property
    def size(self) -> int:
        """The most bytes that the encoded item takes, with an id."""
        return PLAIN_ITEM_BYTES + len(self.body) + len(self.properties)

    def encoded(self, unique_id: str) -> bytes:
        """The item's encoded form in the body of a batch."""
        block = self.properties
        if self.unique_id is None:
            block = b"UNIQ_KEY\x01%b\x02%b" % (unique_id.encode(), block)
        size = _ITEM_HEAD.size + len(self.body) + _BLOCK_LENGTH.size + len(block)
        head = _ITEM_HEAD.pack(size, 0, 0, self.flag, len(self.body))
        return b"".join((head, self.body, _BLOCK_LENGTH.pack(len(block)), block))


class OpenBatch:
    """One batch that is being filled.

    An item is the bare body of a message without properties and flag, or else an :class:`Item`. All are
    encoded together when the batch is closed.

    Args:
        new_future: creates a future of the event loop.
        max_bytes, max_messages: as in :class:`~orbitmq.client.producer.batching.AutoBatch`.

    Attributes:
        items, waiting: the messages, and the future of each one's result.
        plain: whether all items are bare bodies.
        size: bytes of the encoded items.
        full: the number of messages at which the batch is sent at once.
        timer: the timer that sends the batch.
    """

    def __init__(
        self, new_future: Callable[[], asyncio.Future[SendResult]], max_bytes: int, max_messages: int
    ) -> None:
        self.items: list[bytes | Item] = []
        self.waiting: list[asyncio.Future[SendResult]] = []
        self.plain = True
        self.size = 0
        self.full = False
        self.timer: asyncio.TimerHandle | None = None
        self._new_future = new_future
        self._max_bytes = max_bytes
        self._max_messages = max_messages

    def add_plain(self, message: Message) -> asyncio.Future[SendResult] | None:
        """Add a message that needs no check: its topic was checked when the batch was opened.

        None for any other message, or if the batch has no room for it.
        """
        body = plain_body(message)
        if body is None or not self.has_room(_PLAIN_BYTES + len(body)):
            return None
        return self.put(body, _PLAIN_BYTES + len(body))

    def has_room(self, size: int) -> bool:
        """Whether this many further bytes are within the limit."""
        return self.size + size <= self._max_bytes

    def put(self, item: bytes | Item, size: int) -> asyncio.Future[SendResult]:
        """Add an item; ``size`` is its size in encoded form."""
        if item.__class__ is not bytes:
            self.plain = False
        future = self._new_future()
        self.items.append(item)
        self.waiting.append(future)
        self.size += size
        self.full = len(self.items) >= self._max_messages
        return future


def plain_body(message: Message) -> bytes | None:
    """The body of a message that has only a body; None for other messages."""
    if message.__class__ is not Message:
        return None
    body = message.body
    if body.__class__ is not bytes or not body or message.flag or message.properties:
        return None
    return body


def encode_plain(bodies: list[bytes], size: int, id_head: str, first: int) -> tuple[bytes, list[str]]:
    """The body of a batch of messages without properties, and the unique id of each (BA-04, BA-05).

    Args:
        size: size of the result: the bodies, and :data:`PLAIN_ITEM_BYTES` for each.
        id_head: the prefix of the ids; their last four digits count up from ``first``.
    """
    rest = _BLOCK_LENGTH.pack(_PLAIN_BLOCK_BYTES) + _BEFORE_ID + id_head.encode() + b"0000" + _AFTER_ID
    if len(rest) != PLAIN_ITEM_BYTES - _ITEM_HEAD.size or size < PLAIN_ITEM_BYTES:
        raise ValueError(f"ids of {len(id_head) + _COUNTER_CHARS} characters, not {_ID_CHARS}, or no message")
    if size != len(bodies) * PLAIN_ITEM_BYTES + sum(map(len, bodies)):
        raise ValueError(f"{len(bodies)} messages do not take {size} bytes")
    out = bytearray(size)
    ids = _fill(out, bodies, rest, first)
    return bytes(out), ids


def _fill(out: bytearray, bodies: list[bytes], rest: bytes, first: int) -> list[str]:
    ids: list[str] = []
    at, number, rest_bytes = 0, first, len(rest)
    for each in bodies:
        body = each
        length = len(body)
        put_i32(out, at, _PLAIN_BYTES + length)
        put_i32(out, at + 16, length)
        at += _HEAD_BYTES
        copy(out, at, body, 0, length)
        at += length
        copy(out, at, rest, 0, rest_bytes)
        id_at = at + _ID_AT
        value = number & 0xFFFF
        i = id_at + _ID_BYTES - 1
        while value:
            low = value & 15
            out[i] = 48 + low if low < 10 else 55 + low
            value >>= 4
            i -= 1
        ids.append(out[id_at : id_at + _ID_BYTES].decode("ascii"))
        at += rest_bytes
        number += 1
    return ids


def share(whole: SendResult, waiting: list[asyncio.Future[SendResult]], ids: list[str]) -> None:
    """Divide the result of a batch into the results of its messages (BA-06: consecutive offsets)."""
    queue = whole.queue
    status = whole.status
    offset = whole.queue_offset
    places = whole.offset_message_id.split(",")
    if len(places) != len(ids):
        places = [""] * len(ids)
    step = 1 if offset >= 0 else 0
    for i in range(len(ids)):
        future = waiting[i]
        if not future.done():
            future.set_result(SendResult(status, ids[i], places[i], queue, offset))
        offset += step
