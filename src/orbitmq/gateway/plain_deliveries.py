# cython: annotation_typing=False
"""Makes the responses of a ReceiveMessage from the records of plain messages, without objects in between.

A pop with an unusual message is left as a whole to the ordinary path. Both paths give the same responses.

Typed in ``plain_deliveries.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import cython

from orbitmq.gateway.plain_fields import MAX_BYTES, PlainFields
from orbitmq.message import sysflag
from orbitmq.message.record_layout import MAGIC_V1

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import put_decimal
    from orbitmq.gateway.plain_fields import is_plain, varint_bytes
    from orbitmq.message.octets import find, get_i16, get_i32, get_i64, same

# A message with more user properties, or longer properties, takes the ordinary path.
MAX_USER = 16
MAX_PROPERTIES = MAX_BYTES // 2
MAX_MS = 1 << 45
MAX_NAME = 127
MAX_HEAD = 512
# The kinds of a record's properties, by their names; properties without a kind are the user's.
SKIPPED, UNUSUAL, TAG, KEYS, ID, BORN_HOST, TRACE = 1, 2, 3, 4, 5, 6, 7
# C integers in the compiled module.
_SKIPPED, _UNUSUAL, _TAG, _KEYS, _ID, _BORN_HOST, _TRACE = SKIPPED, UNUSUAL, TAG, KEYS, ID, BORN_HOST, TRACE

# The places of the fields in the fixed part of a record whose hosts are IPv4.
_MAGIC, _QUEUE, _QUEUE_OFFSET, _PHYSICAL, _FLAGS, _BORN_MS = 4, 12, 20, 28, 36, 40
_STORE_MS, _STORE_HOST, _RECONSUMED, _BODY_LENGTH, _BODY = 56, 64, 72, 84, 88
_MAGIC_V1 = MAGIC_V1
# Records with these system flags, compressed or with IPv6 hosts, take the ordinary path.
_ODD_FLAGS = sysflag.COMPRESSED | sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
# The head of the encoded digest: its type MD5, and its length of 32 characters.
_DIGEST = b"\x22\x24\x08\x02\x12\x20"
# Encoded fields: the body's encoding IDENTITY, and the message's type NORMAL.
_KIND = b"\x28\x01\x30\x01"
# Encoded field: the delivery attempt 1.
_ATTEMPT = b"\x80\x01\x01"


class PlainDeliveries(PlainFields):
    """Makes responses from records.

    Args:
        names: the kind of each property that is not the user's, by its name.
        digest: returns a body's digest, as text.
        host: returns the text of a host in a record.
    """

    def __init__(
        self, names: Mapping[bytes, int], digest: Callable[[bytes], bytes], host: Callable[[bytes], bytes]
    ) -> None:
        PlainFields.__init__(self, _TRACE + 1)
        self.names = dict(names)
        self.digest = digest
        self.host = host
        self.hosts: dict[bytes, bytes] = {}
        self.user = array("q", bytes(8 * 4 * MAX_USER))
        self.users = 0
        self.topic = b""
        self.resource = b""
        self.tags: frozenset[bytes] = frozenset()
        self.handles: dict[int, bytes] = {}

    def responses(
        self,
        chunks: list[bytes],
        topic: bytes,
        resource: bytes,
        tags: frozenset[bytes],
        handles: dict[int, bytes],
    ) -> list[bytes] | None:
        """The responses for the records of a pop, each with gRPC's prefix; None if a record is unusual.

        Args:
            topic: the topic of all records.
            resource: the topic as the client named it, encoded.
            tags: each message must have one of these tags; empty: tags do not matter.
            handles: by queue, the text of the handle up to the offset in the queue.
        """
        if len(topic) > MAX_NAME or len(resource) > 2 * MAX_NAME:
            return None
        self.topic = topic
        self.resource = resource
        self.tags = tags
        self.handles = handles
        found: list[bytes] = []
        for chunk in chunks:
            if not self._chunk(chunk, len(chunk), found):
                return None
        return found

    def _chunk(self, buf: Readable, end: int, found: list[bytes]) -> bool:
        """Add the responses for a chunk of records to ``found``; False if a record is unusual."""
        pos = 0
        while pos < end:
            if end - pos < _BODY + 3:
                return False
            size = get_i32(buf, pos)
            if size < _BODY + 3 or size > end - pos:
                return False
            response = self._response(buf, pos, pos + size)
            if response is None:
                return False
            found.append(response)
            pos += size
        return True

    def _response(self, buf: Readable, pos: int, end: int) -> bytes | None:
        """The response for a record; None if the record is unusual."""
        if get_i32(buf, pos + _MAGIC) != _MAGIC_V1 or get_i32(buf, pos + _FLAGS) & _ODD_FLAGS:
            return None
        if get_i32(buf, pos + _RECONSUMED) != 0:
            return None
        body = pos + _BODY
        length = get_i32(buf, pos + _BODY_LENGTH)
        if length < 0 or length > end - body - 3:
            return None
        at = body + length
        if buf[at] != len(self.topic) or at + 3 + buf[at] > end:
            return None
        if bytes(buf[at + 1 : at + 1 + buf[at]]) != self.topic:
            return None
        at += 1 + buf[at]
        if get_i16(buf, at) != end - at - 2 or not self._properties(buf, at + 2, end):
            return None
        if not self._system(buf, pos, bytes(buf[body : body + length])):
            return None
        system = self._made()
        users = self._user_properties(buf)
        size = len(self.resource) + len(users) + 1 + varint_bytes(len(system)) + len(system)
        if length > 0:
            size += 1 + varint_bytes(length) + length
        self._begin_answer(1 + varint_bytes(size) + size)
        self._byte(0x12)
        self._number(size)
        self._put(self.resource)
        self._put(users)
        self._byte(0x1A)
        self._number(len(system))
        self._put(system)
        if length == 0:
            return self._made()
        self._byte(0x22)
        self._number(length)
        return self._made() + bytes(buf[body : body + length])

    # -- properties --------------------------------------------------------------------------------------

    def _properties(self, buf: Readable, at: int, end: int) -> bool:
        """Find the parts of the properties; False if a property is unusual, or a required one is missing."""
        self._forget()
        self.users = 0
        parts = self.parts
        if end - at > MAX_PROPERTIES:
            return False
        while at < end:
            stop = find(buf, 0x02, at, end)
            middle = find(buf, 0x01, at, stop)
            if middle == at or middle + 1 >= stop:
                return False
            if not is_plain(buf, at, middle - at) or not is_plain(buf, middle + 1, stop - middle - 1):
                return False
            kind = self.names.get(bytes(buf[at:middle]), 0)
            if kind == _UNUSUAL:
                return False
            if kind == 0:
                if not self._user_property(buf, at, middle, stop):
                    return False
            elif kind != _SKIPPED:
                if parts[2 * kind] >= 0:
                    return False
                parts[2 * kind] = middle + 1
                parts[2 * kind + 1] = stop - middle - 1
            at = stop + 1
        if parts[2 * _ID] < 0 or parts[2 * _BORN_HOST] < 0:
            return False
        at = parts[2 * _TAG]
        return not self.tags or (at >= 0 and bytes(buf[at : at + parts[2 * _TAG + 1]]) in self.tags)

    def _user_property(self, buf: Readable, at: int, middle: int, stop: int) -> bool:
        """Note a property of the user; False if there are too many, or its name came before."""
        user = self.user
        length = middle - at
        if self.users >= MAX_USER:
            return False
        for i in range(self.users):
            if user[4 * i + 1] == length and same(buf, user[4 * i], buf, at, length):
                return False
        i = 4 * self.users
        user[i] = at
        user[i + 1] = length
        user[i + 2] = middle + 1
        user[i + 3] = stop - middle - 1
        self.users += 1
        return True

    def _user_properties(self, buf: Readable) -> bytes:
        """The user's properties, encoded as entries of protobuf's map."""
        user = self.user
        self.used = 0
        for i in range(self.users):
            name, value = user[4 * i + 1], user[4 * i + 3]
            self._byte(0x12)
            self._number(2 + varint_bytes(name) + name + varint_bytes(value) + value)
            self._text(0x0A, buf, user[4 * i], name)
            self._text(0x12, buf, user[4 * i + 2], value)
        return self._made()

    # -- system properties -------------------------------------------------------------------------------

    def _system(self, buf: Readable, pos: int, body: bytes) -> bool:
        """Write the system properties; False if a number is unusual."""
        parts = self.parts
        self.used = 0
        if parts[2 * _TAG] >= 0:
            self._text(0x0A, buf, parts[2 * _TAG], parts[2 * _TAG + 1])
        if parts[2 * _KEYS] >= 0:
            self._keys(buf, parts[2 * _KEYS], parts[2 * _KEYS] + parts[2 * _KEYS + 1])
        self._text(0x1A, buf, parts[2 * _ID], parts[2 * _ID + 1])
        self._put(_DIGEST)
        self._put(self.digest(body))
        self._put(_KIND)
        if not self._instant(0x3A, get_i64(buf, pos + _BORN_MS)):
            return False
        self._text(0x42, buf, parts[2 * _BORN_HOST], parts[2 * _BORN_HOST + 1])
        if not self._instant(0x4A, get_i64(buf, pos + _STORE_MS)):
            return False
        host = self._host(bytes(buf[pos + _STORE_HOST : pos + _STORE_HOST + 8]))
        self._byte(0x52)
        self._number(len(host))
        self._put(host)
        queue_id = get_i32(buf, pos + _QUEUE)
        offset = get_i64(buf, pos + _QUEUE_OFFSET)
        if not self._handle(queue_id, offset, get_i64(buf, pos + _PHYSICAL)):
            return False
        if queue_id > 0:
            self._byte(0x68)
            self._number(queue_id)
        self._byte(0x70)
        self._number(offset)
        self._put(_ATTEMPT)
        if parts[2 * _TRACE] >= 0:
            self._byte(0x92)
            self._text(0x01, buf, parts[2 * _TRACE], parts[2 * _TRACE + 1])
        return True

    def _text(self, tag: int, buf: Readable, start: int, length: int) -> None:
        self._byte(tag)
        self._number(length)
        self._copy(buf, start, length)

    def _keys(self, buf: Readable, at: int, end: int) -> None:
        """Write the words of the property KEYS."""
        while at < end:
            stop = find(buf, 0x20, at, end)
            if stop > at:
                self._text(0x12, buf, at, stop - at)
            at = stop + 1

    def _instant(self, tag: int, ms: int) -> bool:
        if ms <= 0 or ms >= MAX_MS:
            return False
        seconds = ms // 1000
        nanos = (ms - seconds * 1000) * 1000000
        size = 0
        if seconds > 0:
            size += 1 + varint_bytes(seconds)
        if nanos > 0:
            size += 1 + varint_bytes(nanos)
        self._byte(tag)
        self._number(size)
        if seconds > 0:
            self._byte(0x08)
            self._number(seconds)
        if nanos > 0:
            self._byte(0x10)
            self._number(nanos)
        return True

    def _handle(self, queue_id: int, offset: int, physical: int) -> bool:
        """Write the receipt handle; False if the pop has none for this queue."""
        head = self.handles.get(queue_id)
        if head is None or len(head) > MAX_HEAD or offset < 0 or physical < 0:
            return False
        size = len(head) + _decimals(offset) + 1 + _decimals(physical)
        self._byte(0x62)
        self._number(size)
        self._put(head)
        self._decimal(offset)
        self._byte(0x20)
        self._decimal(physical)
        return True

    def _decimal(self, value: int) -> None:
        if cython.compiled:
            self.used = put_decimal(cython.address(self.view[0]), self.used, value)
        else:
            self.used = put_decimal(self.data, self.used, value)

    def _host(self, raw: bytes) -> bytes:
        found = self.hosts.get(raw)
        if found is None:
            # Store hosts are few: this broker's, and those of masters whose log it copied. Born hosts may be
            # many.
            if len(self.hosts) >= MAX_USER:
                self.hosts.clear()
            found = self.hosts[raw] = self.host(raw)
        return found


def _decimals(value: int) -> int:
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count
