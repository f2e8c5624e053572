# cython: annotation_typing=False
"""Carries out a plain AckMessage, with one handle that is not orderly, straight from its HTTP/2 frame.

An unusual request is left to the ordinary path, which serves it or refuses it with the reason. Both paths
give the same answer.

Typed in ``plain_acks.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.gateway.plain_fields import PlainFields
from orbitmq.wire.pop_info import ORDERLY_REVIVE_QUEUE

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.gateway.plain_fields import is_plain, varint_bytes

MAX_HANDLE = 1024
MAX_ID = 1024
MAX_PLACES = 4096
# The most digits of a number: this many always fit in 64 bits.
MAX_DIGITS = 18
IN_ORDER = ORDERLY_REVIVE_QUEUE

_FIRST = 0x0A  # field 1, bytes
_SECOND = 0x12
_THIRD = 0x1A
# The indexes of the request's parts among the spans.
P_GROUP, P_TOPIC, P_ENTRY, P_ID, P_HANDLE, P_PARTS = 0, 1, 2, 3, 4, 5


class PlainAcks(PlainFields):
    """Acknowledges messages by plain handles.

    Args:
        find_place: returns the ``place`` argument of ``acknowledge`` for a topic and a group; None if their
            acknowledgements have to take the ordinary path.
        acknowledge: ends a message in flight, by its place, queue, offset, the start of its delivery and the
            time of its pop; returns False, and does nothing, if no such message is in flight.
        broker: the broker's name in the handles.
        head: the encoded answer up to its entry: the status OK.
        end: the encoded end of the entry: the status OK.

    Attributes:
        places: the results of ``find_place``, to be cleared when a topic or the role changes.
    """

    def __init__(
        self,
        find_place: Callable[[bytes, bytes], Any],
        acknowledge: Callable[[Any, int, int, int, int], bool],
        broker: bytes,
        *,
        head: bytes,
        end: bytes,
    ) -> None:
        PlainFields.__init__(self, P_PARTS)
        self.find_place = find_place
        self.acknowledge = acknowledge
        self.broker = broker
        self.head = head
        self.end = end
        self.places: dict[bytes, Any] = {}
        # The numbers in the handle.
        self.start = 0
        self.pop_time = 0
        self.revive = 0
        self.queue_id = 0
        self.offset = 0

    def take(self, buf: Readable, pos: int, end: int) -> bytes | None:
        """Carry out a request; the answer with gRPC's prefix, or None if nothing was done."""
        if not self._read(buf, pos, end) or not self._handle(buf):
            return None
        place = self._place(buf)
        if place is None:
            return None
        if not self.acknowledge(place, self.queue_id, self.offset, self.start, self.pop_time):
            return None
        return self._answer(buf)

    def _place(self, buf: Readable) -> Any:
        parts = self.parts
        at = parts[2 * P_TOPIC]
        topic = bytes(buf[at : at + parts[2 * P_TOPIC + 1]])
        at = parts[2 * P_GROUP]
        group = bytes(buf[at : at + parts[2 * P_GROUP + 1]])
        key = topic + b"\n" + group
        found = self.places.get(key)
        if found is None:
            found = self.find_place(topic, group)
            if found is not None:
                if len(self.places) >= MAX_PLACES:
                    self.places.clear()
                self.places[key] = found
        return found

    def _read(self, buf: Readable, pos: int, end: int) -> bool:
        """Find the parts of the request; False if a part is missing, unknown or unusual."""
        self._forget()
        self.at = pos
        while self.at < end:
            tag = self._tag(buf, end)
            if tag == _FIRST:
                good = self._span(buf, end, P_GROUP)
            elif tag == _SECOND:
                good = self._span(buf, end, P_TOPIC)
            elif tag == _THIRD:
                good = self._span(buf, end, P_ENTRY)
            else:
                good = False
            if not good:
                return False
        parts = self.parts
        if parts[2 * P_GROUP] < 0 or parts[2 * P_TOPIC] < 0 or parts[2 * P_ENTRY] < 0:
            return False
        if not self._name(buf, P_GROUP) or not self._name(buf, P_TOPIC):
            return False
        self.at = parts[2 * P_ENTRY]
        end = self.at + parts[2 * P_ENTRY + 1]
        while self.at < end:
            tag = self._tag(buf, end)
            if tag == _FIRST:
                good = self._span(buf, end, P_ID)
            elif tag == _SECOND:
                good = self._span(buf, end, P_HANDLE)
            else:
                good = False
            if not good:
                return False
        length = parts[2 * P_ID + 1]
        if parts[2 * P_HANDLE] < 0 or length > MAX_ID or parts[2 * P_HANDLE + 1] > MAX_HANDLE:
            return False
        return length == 0 or is_plain(buf, parts[2 * P_ID], length)

    def _handle(self, buf: Readable) -> bool:
        """Read the handle; False if it is unusual, another broker's, of an orderly group or a retry topic."""
        self.at = self.parts[2 * P_HANDLE]
        end = self.at + self.parts[2 * P_HANDLE + 1]
        self.start = self._digits(buf, end)
        self.pop_time = self._digits(buf, end)
        invisible = self._digits(buf, end)
        self.revive = self._digits(buf, end)
        retry = self._digits(buf, end)
        if self.start < 0 or self.pop_time < 0 or invisible < 0 or self.revive < 0 or retry != 0:
            return False
        length = len(self.broker)
        if end - self.at <= length or buf[self.at + length] != 0x20:
            return False
        if bytes(buf[self.at : self.at + length]) != self.broker:
            return False
        self.at += length + 1
        self.queue_id = self._digits(buf, end)
        self.offset = self._digits(buf, end)
        if self.queue_id < 0 or self.offset < 0 or self.revive == IN_ORDER:
            return False
        return self.at >= end or (self._digits(buf, end) >= 0 and self.at >= end)

    def _digits(self, buf: Readable, end: int) -> int:
        """Read the number at the place and the space behind it; -1 if there is no number."""
        start = self.at
        value = 0
        while self.at < end and self.at - start < MAX_DIGITS:
            byte = buf[self.at]
            if byte < 0x30 or byte > 0x39:
                break
            value = value * 10 + byte - 0x30
            self.at += 1
        if self.at == start:
            return -1
        if self.at < end:
            if buf[self.at] != 0x20:
                return -1
            self.at += 1
        return value

    def _answer(self, buf: Readable) -> bytes:
        """The response with gRPC's prefix."""
        parts = self.parts
        id_bytes = parts[2 * P_ID + 1]
        length = parts[2 * P_HANDLE + 1]
        size = 1 + varint_bytes(length) + length + len(self.end)
        if id_bytes > 0:
            size += 1 + varint_bytes(id_bytes) + id_bytes
        self._begin_answer(len(self.head) + 1 + varint_bytes(size) + size)
        self._put(self.head)
        self._byte(_SECOND)
        self._number(size)
        if id_bytes > 0:
            self._byte(_FIRST)
            self._number(id_bytes)
            self._copy(buf, parts[2 * P_ID], id_bytes)
        self._byte(_SECOND)
        self._number(length)
        self._copy(buf, parts[2 * P_HANDLE], length)
        self._put(self.end)
        return self._made()
