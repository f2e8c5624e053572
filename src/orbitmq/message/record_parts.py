# cython: annotation_typing=False
"""Finds and checks the places of the parts of a stored record, without an object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.message import record_layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import get_i32

# C integers in the compiled module.
MAGIC_V1 = record_layout.MAGIC_V1
MAGIC_V2 = record_layout.MAGIC_V2
SYS_FLAG_AT = record_layout.SYS_FLAG_AT
BORN_HOST_AT = record_layout.BORN_HOST_AT
HOST_V4_BYTES = record_layout.HOST_V4_BYTES
HOST_V6_BYTES = record_layout.HOST_V6_BYTES
BORN_V6 = record_layout.BORN_HOST_V6_BIT
STORE_V6 = record_layout.STORE_HOST_V6_BIT
BODY_LENGTH_AT = record_layout.BODY_LENGTH_AFTER_STORE_HOST
MIN_BYTES = record_layout.MIN_RECORD_BYTES
INNER_BATCH = 0x40  # MessageSysFlag.INNER_BATCH_FLAG


class RecordParts:
    """The places of one record after the other.

    Attributes:
        total: size of the record.
        sys_flag: its system flag.
        store_at, host_bytes: place of the store time; size of the store host, which follows it.
        tail_at: place of the reconsume times.
        body_at, body_bytes, topic_at, topic_bytes, props_at, props_bytes: places and sizes.
    """

    def __init__(self) -> None:
        self.total = self.sys_flag = 0
        self.store_at = self.host_bytes = self.tail_at = 0
        self.body_at = self.body_bytes = self.topic_at = self.topic_bytes = 0
        self.props_at = self.props_bytes = 0

    def find(self, src: Readable, at: int, end: int) -> bool:
        """Find the parts of the record at ``at``; returns whether it is whole and its lengths fit
        together."""
        if end - at < MIN_BYTES:
            return False
        self.total = get_i32(src, at)
        if self.total < MIN_BYTES or self.total > end - at:
            return False
        magic = get_i32(src, at + 4)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return False
        stop = at + self.total
        self.sys_flag = get_i32(src, at + SYS_FLAG_AT)
        self.store_at = at + BORN_HOST_AT + (HOST_V6_BYTES if self.sys_flag & BORN_V6 else HOST_V4_BYTES)
        self.host_bytes = HOST_V6_BYTES if self.sys_flag & STORE_V6 else HOST_V4_BYTES
        self.tail_at = self.store_at + 8 + self.host_bytes
        self.body_at = self.tail_at + BODY_LENGTH_AT + 4
        if self.body_at > stop:
            return False
        self.body_bytes = get_i32(src, self.tail_at + BODY_LENGTH_AT)
        length_bytes = 1 if magic == MAGIC_V1 else 2
        if self.body_bytes < 0 or self.body_bytes > stop - self.body_at - length_bytes - 2:
            return False
        self.topic_at = self.body_at + self.body_bytes
        self.topic_bytes = src[self.topic_at]
        if length_bytes == 2:
            self.topic_bytes = (self.topic_bytes << 8) | src[self.topic_at + 1]
        self.topic_at += length_bytes
        self.props_at = self.topic_at + self.topic_bytes + 2
        if self.props_at > stop:
            return False
        self.props_bytes = (src[self.props_at - 2] << 8) | src[self.props_at - 1]
        return self.props_bytes <= stop - self.props_at and not self.sys_flag & INNER_BATCH
