# cython: annotation_typing=False
"""Stores the message of a plain SendMessage, one NORMAL message for a known topic, straight from its frame.

An unusual request is left to the ordinary path, which serves it or refuses it with the reason. Both paths
store the same record and give the same answer.

Typed in ``plain_sends.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from orbitmq.gateway.plain_fields import MAX_BYTES, PlainFields
from orbitmq.message import message_types
from orbitmq.store.queues import layout as store_layout
from orbitmq.wire.scan import field_name

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable
    from orbitmq.store.log.appender import Appender

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import find_sorted, hash_bytes, put_decimal
    from orbitmq.gateway.plain_fields import is_plain, varint_bytes
    from orbitmq.message.octets import same

Q_NEXT = store_layout.Q_NEXT
NORMAL = message_types.NORMAL
# A message with more user properties, more keys, or longer properties, takes the ordinary path.
MAX_USER = 16
MAX_KEYS = 16
_MAX_BYTES = MAX_BYTES
MAX_ANSWER = 1024
# Reserved, beside the copied values, for names, separators and numbers of the properties of every message.
FIXED_BYTES = 512

# The tags of fields (number and wire type), as protobuf encodes them.
_FIRST = 0x0A  # field 1, bytes
_SECOND = 0x12
_THIRD = 0x1A
_FOURTH = 0x22
_SECONDS = 0x08  # field 1, a number
_NANOS = 0x10
_TAG = 0x0A
_KEYS = 0x12
_MESSAGE_ID = 0x1A
_BODY_ENCODING = 0x28
_MESSAGE_TYPE = 0x30
_BORN_TIMESTAMP = 0x3A
_BORN_HOST = 0x42
_QUEUE_ID = 0x68
_TRACE_CONTEXT = 0x92
_GZIP = 2
_NORMAL = 1
_MOST_NUMBER = 1 << 31
_MOST_SECONDS = 1 << 40
_SECOND_NANOS = 1000000000

# The indexes of the message's parts among the spans, each of which is a start and a length.
P_TOPIC, P_SYSTEM, P_BODY, P_TAG, P_ID, P_BORN, P_HOST, P_TRACE, P_PARTS = 0, 1, 2, 3, 4, 5, 6, 7, 8

_N_TAGS = b"TAGS\x01"
_N_KEYS = b"KEYS\x01"
_N_ID = b"UNIQ_KEY\x01"
_N_GROUP = b"RECONSUME_TIME\x010\x02PGROUP\x01"
_N_TRACE = b"TRACE_CONTEXT\x01"
_N_HOST = b"__BORNHOST\x01"
_N_BORN = b"BORN_TIMESTAMP\x01"


class PlainTopic:
    """A topic that takes plain messages.

    Attributes:
        slots: the appender's slot of each writable queue, by queue id.
    """

    def __init__(self, name: bytes, slots: list[int]) -> None:
        self.name = name
        self.view = name
        self.length = len(name)
        self.slots = array("q", slots)
        self.queues = len(slots)


class PlainSends(PlainFields):
    """Stores plain messages.

    Args:
        find_topic: returns the topic of this name; None if it does not take plain messages now.
        make_room: see ``HotStore.make_room``; returns False if the disk refuses.
        choose: returns a queue id below this number of queues.
        reserved: names of user properties with which a message takes the ordinary path.
        head: the encoded answer up to its entry: the status OK.
        entry: the encoded beginning of the entry: the status OK.

    Attributes:
        topics: the topics found so far; to be cleared when a topic, a setting or the role changes.
        added: the properties that the broker adds, encoded.
        max_body: the longest body, in bytes.
        born, address: the address of the client whose bytes are read, as in a record, and as text.
    """

    def __init__(
        self,
        appender: Appender,
        find_topic: Callable[[bytes], PlainTopic | None],
        make_room: Callable[[int, int], bool],
        choose: Callable[[int], int],
        *,
        reserved: frozenset[str],
        head: bytes,
        entry: bytes,
    ) -> None:
        PlainFields.__init__(self, P_PARTS)
        self.a = appender
        self.find_topic = find_topic
        self.make_room = make_room
        self.choose = choose
        self.reserved = array("q", sorted(field_name(name) for name in reserved))
        self.head = head
        self.entry = entry
        self.topics: dict[bytes, PlainTopic] = {}
        self.added = b"\0"
        self.max_body = 0
        self.born = b""
        self.address = b""
        self.user = array("q", bytes(8 * 4 * MAX_USER))
        self.keys = array("q", bytes(8 * 2 * MAX_KEYS))
        self.users = 0
        self.key_count = 0
        self.born_ms = 0
        self.tags_code = 0

    # -- the message -------------------------------------------------------------------------------------

    def take(self, buf: Readable, pos: int, end: int) -> bytes | None:
        """Store the message of a request; the answer with gRPC's prefix, or None if nothing was done."""
        if not self._read(buf, pos, end):
            return None
        parts = self.parts
        start = parts[2 * P_TOPIC]
        topic = self._topic(bytes(buf[start : start + parts[2 * P_TOPIC + 1]]))
        if topic is None or not self._complete(buf, topic):
            return None
        queue_id = self.choose(topic.queues)
        offset = self._append(topic, queue_id, buf)
        return None if offset < 0 else self._answer(buf, offset)

    def _topic(self, name: bytes) -> PlainTopic | None:
        found = self.topics.get(name)
        if found is None:
            found = self.find_topic(name)
            if found is not None:
                self.topics[name] = found
        return found

    def _append(self, topic: PlainTopic, queue_id: int, buf: Readable) -> int:
        """Append the record; returns its offset in the queue, or -1 if it was not appended."""
        parts = self.parts
        slot = topic.slots[queue_id]
        length = parts[2 * P_BODY + 1]
        size = self.a.record_bytes(length, topic.length, self.used, len(self.born))
        if self.a.never_fits(size, 1):
            return -1
        while True:
            room = self.a.check_room(slot, size, 1)
            if room == 0:
                break
            if not self.make_room(room, slot):
                return -1
        if cython.compiled:
            born = cython.cast(bytes_in, self.born)
            name = cython.address(topic.view[0])
            data = cython.address(self.view[0])
        else:
            born = self.born
            name = topic.name
            data = self.data
        self.a.append(
            slot, queue_id, 0, 0, self.born_ms, born, len(self.born), 0, 0, buf, parts[2 * P_BODY], length,
            name, 0, topic.length, data, 0, self.used, self.tags_code, NORMAL,
        )  # fmt: skip
        return self.a.get(slot, Q_NEXT) - 1

    # -- protobuf ----------------------------------------------------------------------------------------

    def _read(self, buf: Readable, pos: int, end: int) -> bool:
        """Find the parts of the request's message; False if a part is missing, unknown or unusual."""
        self._forget()
        self.users = 0
        self.key_count = 0
        self.at = pos
        if self._tag(buf, end) != _FIRST or self._length(buf, end) != end - self.at:
            return False
        while self.at < end:
            tag = self._tag(buf, end)
            if tag == _FIRST:
                good = self._span(buf, end, P_TOPIC)
            elif tag == _SECOND:
                good = self._user_property(buf, end)
            elif tag == _THIRD:
                good = self._span(buf, end, P_SYSTEM)
            elif tag == _FOURTH:
                good = self._span(buf, end, P_BODY)
            else:
                good = False
            if not good:
                return False
        parts = self.parts
        length = parts[2 * P_BODY + 1]
        if length <= 0 or length > self.max_body or parts[2 * P_TOPIC] < 0 or parts[2 * P_SYSTEM] < 0:
            return False
        return self._name(buf, P_TOPIC) and self._system(buf) and self._born(buf)

    def _user_property(self, buf: Readable, end: int) -> bool:
        length = self._length(buf, end)
        if length < 0 or self.users >= MAX_USER:
            return False
        end = self.at + length
        at = 4 * self.users
        if self._tag(buf, end) != _FIRST:
            return False
        length = self._length(buf, end)
        if length <= 0:
            return False
        self.user[at] = self.at
        self.user[at + 1] = length
        self.at += length
        if self._tag(buf, end) != _SECOND:
            return False
        length = self._length(buf, end)
        if length <= 0:
            return False
        self.user[at + 2] = self.at
        self.user[at + 3] = length
        self.at += length
        self.users += 1
        return self.at == end

    def _system(self, buf: Readable) -> bool:
        """Find the parts of the system properties; False if one is unknown or unusual."""
        self.at = self.parts[2 * P_SYSTEM]
        end = self.at + self.parts[2 * P_SYSTEM + 1]
        while self.at < end:
            tag = self._tag(buf, end)
            if tag == _TAG:
                good = self._span(buf, end, P_TAG)
            elif tag == _MESSAGE_ID:
                good = self._span(buf, end, P_ID)
            elif tag == _BORN_TIMESTAMP:
                good = self._span(buf, end, P_BORN)
            elif tag == _BORN_HOST:
                good = self._span(buf, end, P_HOST)
            elif tag == _TRACE_CONTEXT:
                good = self._span(buf, end, P_TRACE)
            elif tag == _KEYS:
                length = self._length(buf, end)
                good = length > 0 and self.key_count < MAX_KEYS
                if good:
                    self.keys[2 * self.key_count] = self.at
                    self.keys[2 * self.key_count + 1] = length
                    self.key_count += 1
                    self.at += length
            elif tag == _BODY_ENCODING:
                value = self._varint(buf, end)
                good = 0 <= value < _MOST_NUMBER and value != _GZIP
            elif tag == _MESSAGE_TYPE:
                value = self._varint(buf, end)
                good = value == _NORMAL or value == 0
            elif tag == _QUEUE_ID:
                good = self._varint(buf, end) >= 0
            else:
                good = False
            if not good:
                return False
        return True

    def _born(self, buf: Readable) -> bool:
        """Read the time at which the client made the message; False if it is missing or unusual."""
        seconds = 0
        nanos = 0
        self.at = self.parts[2 * P_BORN]
        if self.at < 0:
            return False
        end = self.at + self.parts[2 * P_BORN + 1]
        while self.at < end:
            tag = self._tag(buf, end)
            value = self._varint(buf, end)
            if value < 0:
                return False
            if tag == _SECONDS and value < _MOST_SECONDS:
                seconds = value
            elif tag == _NANOS and value < _SECOND_NANOS:
                nanos = value
            else:
                return False
        self.born_ms = seconds * 1000 + nanos // 1000000
        return self.born_ms > 0

    # -- properties --------------------------------------------------------------------------------------

    def _put_part(self, name: bytes, buf: Readable, start: int, length: int) -> bool:
        """Add a property; False if its value is too long, not printable ASCII, or has a space at an end."""
        if not is_plain(buf, start, length) or buf[start] == 0x20 or buf[start + length - 1] == 0x20:
            return False
        if self.used + length + len(name) + len(self.added) + FIXED_BYTES > _MAX_BYTES:
            return False
        self._put(name)
        self._copy(buf, start, length)
        self._byte(0x02)
        return True

    def _complete(self, buf: Readable, topic: PlainTopic) -> bool:
        """Write all properties of the message; False if one of them is unusual."""
        parts = self.parts
        self.used = 0
        self.tags_code = 0
        if not self._put_user(buf):
            return False
        length = parts[2 * P_TAG + 1]
        if length > 0:
            start = parts[2 * P_TAG]
            if not self._put_part(_N_TAGS, buf, start, length) or _has_bar(buf, start, length):
                return False
            self.tags_code = _java_hash(buf, start, length)
        for i in range(self.key_count):
            if not self._put_part(b"" if i else _N_KEYS, buf, self.keys[2 * i], self.keys[2 * i + 1]):
                return False
            if i + 1 < self.key_count:
                self.view[self.used - 1] = 0x20
        length = parts[2 * P_ID + 1]
        if length <= 0 or length > MAX_ANSWER // 2:
            return False
        if not self._put_part(_N_ID, buf, parts[2 * P_ID], length):
            return False
        self._put(_N_GROUP)
        self._put(topic.name)
        self._byte(0x02)
        length = parts[2 * P_TRACE + 1]
        if length > 0 and not self._put_part(_N_TRACE, buf, parts[2 * P_TRACE], length):
            return False
        length = parts[2 * P_HOST + 1]
        if length > 0:
            if not self._put_part(_N_HOST, buf, parts[2 * P_HOST], length):
                return False
        else:
            self._put(_N_HOST)
            self._put(self.address)
            self._byte(0x02)
        self._put(_N_BORN)
        if cython.compiled:
            self.used = put_decimal(cython.address(self.view[0]), self.used, self.born_ms)
        else:
            self.used = put_decimal(self.data, self.used, self.born_ms)
        self._byte(0x02)
        self._put(self.added)
        return True

    def _put_user(self, buf: Readable) -> bool:
        user = self.user
        for i in range(self.users):
            start, length = user[4 * i], user[4 * i + 1]
            if not is_plain(buf, start, length) or not is_plain(buf, user[4 * i + 2], user[4 * i + 3]):
                return False
            if length > 1 and buf[start] == 0x5F and buf[start + 1] == 0x5F:
                return False
            if find_sorted(self.reserved, 1, hash_bytes(buf, start, length, 0)) >= 0:
                return False
            for k in range(i):
                # In protobuf the last of two equal names counts: the ordinary path handles that.
                if user[4 * k + 1] == length and same(buf, user[4 * k], buf, start, length):
                    return False
            if self.used + length + user[4 * i + 3] + len(self.added) + FIXED_BYTES > _MAX_BYTES:
                return False
            self._copy(buf, start, length)
            self._byte(0x01)
            self._copy(buf, user[4 * i + 2], user[4 * i + 3])
            self._byte(0x02)
        return True

    # -- the answer --------------------------------------------------------------------------------------

    def _answer(self, buf: Readable, offset: int) -> bytes:
        """The response with gRPC's prefix. It is written over the properties, which are stored by then."""
        length = self.parts[2 * P_ID + 1]
        size = len(self.entry) + 1 + varint_bytes(length) + length
        if offset > 0:
            size += 1 + varint_bytes(offset)
        self._begin_answer(len(self.head) + 1 + varint_bytes(size) + size)
        self._put(self.head)
        self._byte(_SECOND)
        self._number(size)
        self._put(self.entry)
        self._byte(_SECOND)
        self._number(length)
        self._copy(buf, self.parts[2 * P_ID], length)
        if offset > 0:
            self._byte(0x20)
            self._number(offset)
        return self._made()


def _has_bar(buf: Readable, start: int, length: int) -> bool:
    found = 0
    for i in range(start, start + length):
        found |= buf[i] == 0x7C
    return found != 0


def _java_hash(buf: Readable, start: int, length: int) -> int:
    code = 0
    for i in range(start, start + length):
        code = (code * 31 + buf[i]) & 0xFFFFFFFF
    return code if code < 0x80000000 else code - 0x80000000 - 0x80000000
