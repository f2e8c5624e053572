# cython: annotation_typing=False
"""The properties of a message that is on its way through the fast path: read, checked, completed.

Typed in ``properties.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.message import message_types
from orbitmq.wire.scan import field_name

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable, Writable

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import find_sorted, put_hex
    from orbitmq.message.octets import copy, find
    from orbitmq.wire.scan import unescape

NORMAL = message_types.NORMAL
FIFO = message_types.FIFO
LOW_32 = 0xFFFFFFFF
SIGN_32 = 0x80000000
MAX_PROPERTIES = 32767
MAX_UNIQUE_KEY = layout.MAX_UNIQUE_KEY
PREFIX_BYTES = 10
ID_BYTES = 42  # "UNIQ_KEY", its separators and 32 characters

NAME_TAGS = field_name("TAGS")
NAME_UNIQUE_KEY = field_name("UNIQ_KEY")
NAME_WAIT = field_name("WAIT")
NAME_SHARDING_KEY = field_name("__SHARDINGKEY")
# A message with one of these properties is left to the ordinary handlers.
RESERVED_NAMES = array("q", sorted(field_name(name) for name in layout.RESERVED_PROPERTIES))
# For most other names one bit shows that they are not in the list.
RESERVED_BITS = 0
for _name in RESERVED_NAMES:
    RESERVED_BITS |= 1 << (_name % 62)


class Properties:
    """One message's properties at a time, in a buffer of its own.

    Args:
        added: the properties that the broker adds to each single message, encoded.
    """

    def __init__(self, added: bytes) -> None:
        self.added = added or b"\0"
        self.added_length = len(added)
        self.data = bytearray(MAX_PROPERTIES + 1 + ID_BYTES + len(added))
        self.view = self.data
        self.unique_name = b"UNIQ_KEY\x01"
        self.unique_prefix = bytes(PREFIX_BYTES)
        self.unique_view = self.unique_prefix
        self.unique_start_ms = 0
        self.unique_count = 0
        self.used = 0
        self.tags_code = 0
        self.waits = True
        self.unique_at = -1
        self.unique_length = 0
        self.message_type = NORMAL

    def set_unique_ids(self, prefix: bytes, start_ms: int) -> None:
        """Set the prefix of the fast path's own message ids, and when their clock began.

        Raises:
            ValueError: ``prefix`` is not 10 bytes long.
        """
        if len(prefix) != PREFIX_BYTES:
            raise ValueError(f"a prefix of {len(prefix)} bytes, not {PREFIX_BYTES}")
        self.unique_prefix = prefix
        self.unique_view = self.unique_prefix
        self.unique_start_ms = start_ms

    def load(self, buf: Readable, start: int, length: int, escaped: bool) -> bool:
        """Copy and check the properties field of a header; False when it is for the ordinary handler."""
        if cython.compiled:
            data = cython.address(self.view[0])
        else:
            data = self.data
        if length > MAX_PROPERTIES:
            return False
        if escaped:
            length = unescape(buf, start, length, data, 0, MAX_PROPERTIES)
            if length < 0:
                return False
        else:
            copy(data, 0, buf, start, length)
        if length > 0 and data[length - 1] != 0x02:
            data[length] = 0x02
            length += 1
        self.used = length
        return self.check(data, 0, length)

    def check(self, data: Readable, at: int, length: int) -> bool:
        """Check ``name 0x01 value 0x02`` pairs; note tags, UNIQ_KEY, WAIT and the message's type.

        False when a property is for the ordinary handler.
        """
        end = at + length
        # The ordinary handler refuses zeros.
        if find(data, 0, at, end) != end:
            return False
        self.tags_code = 0
        self.unique_at = -1
        self.unique_length = 0
        self.waits = True
        self.message_type = NORMAL
        while at < end:
            h = 0
            start = at
            while at < end and data[at] != 0x01:
                h = (h * 131 + data[at]) & LOW_32
                if data[at] == 0x02:
                    return False
                at += 1
            if at == start or at >= end:
                return False
            name_length = at - start
            start = at + 1
            at = find(data, 0x02, start, end)
            if at == start or at >= end or find(data, 0x01, start, at) != at:
                return False
            if not self._note(data, h, name_length, start, at):
                return False
            at += 1
        return True

    def _note(self, data: Readable, h: int, name_length: int, start: int, end: int) -> bool:
        if h == NAME_TAGS:
            return name_length == 4 and self._hash_tags(data, start, end)
        if h == NAME_UNIQUE_KEY:
            if name_length != 8 or end - start > MAX_UNIQUE_KEY:
                return False
            self.unique_at = start
            self.unique_length = end - start
            # The value goes into a response unchanged.
            odd = 0
            for i in range(start, end):
                # This loop has no branch, so that the compiler can process many bytes at a time.
                odd |= (data[i] < 0x20) | (data[i] > 0x7E) | (data[i] == 0x22) | (data[i] == 0x5C)
            return odd == 0
        if h == NAME_WAIT:
            self.waits = (
                end - start == 4
                and data[start] | 0x20 == 0x74
                and data[start + 1] | 0x20 == 0x72
                and data[start + 2] | 0x20 == 0x75
                and data[start + 3] | 0x20 == 0x65
            )
            return name_length == 4
        if h == NAME_SHARDING_KEY:
            self.message_type = FIFO
            return name_length == 13
        return (RESERVED_BITS >> (h % 62)) & 1 == 0 or find_sorted(RESERVED_NAMES, 1, h) < 0

    def _hash_tags(self, data: Readable, at: int, end: int) -> bool:
        """Java's hash of an ASCII tag; False for any other."""
        code = 0
        while at < end:
            if data[at] >= 0x80:
                return False
            code = (code * 31 + data[at]) & LOW_32
            at += 1
        self.tags_code = code if code < SIGN_32 else code - SIGN_32 - SIGN_32
        return True

    def complete(self, now_ms: int) -> bool:
        """Add the broker's properties to a loaded single message; False when there is no room for them."""
        if cython.compiled:
            data = cython.address(self.view[0])
            added = cython.address(self.added[0])
        else:
            data = self.data
            added = self.added
        used = self.used
        extra = self.added_length
        if self.unique_at < 0:
            extra += ID_BYTES
        if used + extra > MAX_PROPERTIES:
            return False
        if self.unique_at < 0:
            used = self._add_unique_key(data, used, now_ms)
        copy(data, used, added, 0, self.added_length)
        self.used = used + self.added_length
        return True

    def _add_unique_key(self, data: Writable, at: int, now_ms: int) -> int:
        if cython.compiled:
            copy(data, at, cython.address(self.unique_name[0]), 0, 9)
        else:
            copy(data, at, self.unique_name, 0, 9)
        at += 9
        self.unique_at = at
        self.unique_length = 32
        for i in range(PREFIX_BYTES):
            at = put_hex(data, at, self.unique_view[i], 2)
        at = put_hex(data, at, now_ms - self.unique_start_ms, 8)
        at = put_hex(data, at, self.unique_count, 4)
        self.unique_count = (self.unique_count + 1) & 0xFFFF
        data[at] = 0x02
        return at + 1
