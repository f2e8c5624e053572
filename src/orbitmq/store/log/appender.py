# cython: annotation_typing=False
"""The inner loop of the store: it puts records into the log's write batch, and index entries into the table
of queues.

A *write batch* is everything appended between two writes to the file: :class:`Appender` builds the records
in one buffer and assigns physical and queue offsets. At the end of the batch the commit log writes the buffer
with one ``pwrite``, calls :meth:`QueueTable.publish`, and the records are visible to reads. Nothing here does
I/O.

Typed in ``appender.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.message import record_layout
from orbitmq.message.message_types import NORMAL
from orbitmq.store.queues import layout
from orbitmq.store.queues.table import QueueTable, grown

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import copy, crc32, put_i16, put_i32, put_i64

# C integers in the compiled module, so that no Python object is touched on the path of a message.
Q_NEXT = layout.Q_NEXT
Q_TAIL = layout.Q_TAIL
Q_SAVED = layout.Q_SAVED
Q_RING = layout.Q_RING
Q_COUNTS = layout.Q_COUNTS
Q_WIDTH = layout.Q_WIDTH
SIZE_1, SIZE_2, SIZE_3, SIZE_4, SIZE_5, SIZE_6 = layout.SIZE_BOUNDS
TYPE_BYTES = layout.TYPE_BYTES
TYPE_WIDTH = layout.TYPE_WIDTH
COUNTS_WIDTH = layout.COUNTS_WIDTH
NO_ROOM = layout.NO_ROOM
ROLL = layout.ROLL
TAIL_FULL = layout.TAIL_FULL
MAGIC_V1 = layout.MAGIC_V1
MAGIC_V2 = layout.MAGIC_V2
RECORD_FIXED_BYTES = layout.RECORD_FIXED_BYTES
END_OF_FILE_RESERVE = layout.END_OF_FILE_RESERVE
BORN_V6 = record_layout.BORN_HOST_V6_BIT
STORE_V6 = record_layout.STORE_HOST_V6_BIT


class Appender(QueueTable):
    """See the module. Offsets are bytes in the log (physical) or entries of a queue.

    Args:
        batch_bytes: size of the write batch; at least the largest record.
        tail_entries: as in :class:`QueueTable`.
        segment_bytes: size of a log file.
        store_host: this broker's address as 4 (IPv4) or 16 (IPv6) bytes and a 4 byte port.
    """

    def __init__(self, batch_bytes: int, tail_entries: int, segment_bytes: int, store_host: bytes) -> None:
        super().__init__(tail_entries)
        self.batch = bytearray(batch_bytes)
        self.batch_view = self.batch
        self.batch_room = batch_bytes
        self.batch_used = 0
        self.batch_base = 0
        self.batch_records = 0
        self.file_end = segment_bytes
        self.segment_bytes = segment_bytes
        self.host = store_host
        self.host_view = store_host
        self.host_length = len(store_host)
        self.now_ms = 0
        # Queues without a topic, which only tests have, count in the first row.
        self.counts = array("q", bytes(8 * COUNTS_WIDTH))
        self.counts_used = COUNTS_WIDTH

    # This method is not in the table's class: only a final class may have a method for both Python and C.
    def get(self, slot: int, column: int) -> int:
        """A number of a queue, see ``store.queues.layout``."""
        return self.q[slot * Q_WIDTH + column]

    def set(self, slot: int, column: int, value: int) -> None:
        """Change a number of a queue."""
        self.q[slot * Q_WIDTH + column] = value

    # -- the write batch -------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The log offset behind the newest record, written or not."""
        return self.batch_base + self.batch_used

    def start_batch(self, base: int, file_end: int) -> None:
        """Forget the written records; the next record gets the physical offset ``base``."""
        self.batch_base = base
        self.file_end = file_end
        self.batch_used = 0
        self.batch_records = 0

    def grow_batch(self, batch_bytes: int) -> None:
        """Make room for larger records; between two batches only.

        Raises:
            ValueError: the batch holds records.
        """
        if self.batch_used:
            raise ValueError(f"the write batch holds {self.batch_used} bytes")
        self.batch = bytearray(batch_bytes)
        self.batch_view = self.batch
        self.batch_room = batch_bytes

    def check_room(self, slot: int, size_bytes: int, count: int) -> int:
        """0 if ``count`` records of ``size_bytes`` together can be appended now, else the reason."""
        base = slot * Q_WIDTH
        if self.batch_used + size_bytes > self.batch_room:
            return NO_ROOM
        if self.batch_base + self.batch_used + size_bytes + END_OF_FILE_RESERVE > self.file_end:
            return ROLL
        if (
            self.q[base + Q_TAIL] < 0
            or self.q[base + Q_COUNTS] < 0
            or self.q[base + Q_NEXT] + count - self.q[base + Q_SAVED] > self.q[base + Q_RING]
        ):
            return TAIL_FULL
        return 0

    def never_fits(self, size_bytes: int, count: int) -> bool:
        """Whether records are too large even for an empty batch, a fresh file and an empty ring."""
        return (
            size_bytes > self.batch_room
            or size_bytes + END_OF_FILE_RESERVE > self.segment_bytes
            or count > self.tail_entries
        )

    def record_bytes(self, body_length: int, topic_length: int, props_length: int, born_length: int) -> int:
        """Size of the stored record."""
        size = RECORD_FIXED_BYTES + born_length + self.host_length + body_length + topic_length + props_length
        return size + 1 if topic_length > 127 else size

    def append(
        self,
        slot: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: Readable,
        born_length: int,
        reconsume_times: int,
        prepared_offset: int,
        body: Readable,
        body_at: int,
        body_length: int,
        topic: Readable,
        topic_at: int,
        topic_length: int,
        props: Readable,
        props_at: int,
        props_length: int,
        tags_code: int,
        message_type: int,
    ) -> int:
        """Build one record in the write batch; returns its physical offset, or NO_ROOM, ROLL or TAIL_FULL."""
        size = self.record_bytes(body_length, topic_length, props_length, born_length)
        room = self.check_room(slot, size, 1)
        if room != 0:
            return room
        if cython.compiled:
            out = cython.address(self.batch_view[0])
            host = cython.address(self.host_view[0])
        else:
            out = self.batch
            host = self.host
        at = self.batch_used
        physical = self.batch_base + at
        base = slot * Q_WIDTH
        offset = self.q[base + Q_NEXT]
        # These two bits give the length of the addresses in this record, whatever a client sent.
        sys_flag &= ~(BORN_V6 | STORE_V6)
        if born_length > 8:
            sys_flag |= BORN_V6
        if self.host_length > 8:
            sys_flag |= STORE_V6
        put_i32(out, at, size)
        put_i32(out, at + 4, MAGIC_V2 if topic_length > 127 else MAGIC_V1)
        put_i32(out, at + 8, crc32(body, body_at, body_length))
        put_i32(out, at + 12, queue_id)
        put_i32(out, at + 16, flag)
        put_i64(out, at + 20, offset)
        put_i64(out, at + 28, physical)
        put_i32(out, at + 36, sys_flag)
        put_i64(out, at + 40, born_timestamp)
        at += 48
        copy(out, at, born, 0, born_length)
        at += born_length
        put_i64(out, at, self.now_ms)
        at += 8
        copy(out, at, host, 0, self.host_length)
        at += self.host_length
        put_i32(out, at, reconsume_times)
        put_i64(out, at + 4, prepared_offset)
        put_i32(out, at + 12, body_length)
        at += 16
        copy(out, at, body, body_at, body_length)
        at += body_length
        if topic_length > 127:
            put_i16(out, at, topic_length)
            at += 2
        else:
            out[at] = topic_length
            at += 1
        copy(out, at, topic, topic_at, topic_length)
        at += topic_length
        put_i16(out, at, props_length)
        copy(out, at + 2, props, props_at, props_length)
        self.batch_used += size
        self.batch_records += 1
        self._count(self.q[base + Q_COUNTS] + message_type * TYPE_WIDTH, size)
        self.add_entry(slot, physical, size, tags_code)
        return physical

    def _count(self, at: int, size: int) -> None:
        """Count a record of ``size`` bytes in the counts of its topic and type, which begin at ``at``."""
        self.counts[at + TYPE_BYTES] += size
        if size <= SIZE_1:
            place = 0
        elif size <= SIZE_2:
            place = 1
        elif size <= SIZE_3:
            place = 2
        elif size <= SIZE_4:
            place = 3
        elif size <= SIZE_5:
            place = 4
        elif size <= SIZE_6:
            place = 5
        else:
            place = 6
        self.counts[at + place] += 1

    # -- for callers in Python -------------------------------------------------------------------------

    def add_counts(self) -> int:
        """Add counts for one more topic; returns where they begin, for the column ``Q_COUNTS``."""
        at = self.counts_used
        if at + COUNTS_WIDTH > len(self.counts):
            self.counts = grown(self.counts, 2 * len(self.counts))
        self.counts_used = at + COUNTS_WIDTH
        return at

    def counts_of(self, at: int) -> list[int]:
        """The counts of the topic whose counts begin at ``at``, see ``layout.COUNTS_WIDTH``."""
        return [self.counts[at + place] for place in range(COUNTS_WIDTH)]

    def append_message(
        self,
        slot: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: bytes,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        topic: bytes,
        props: bytes,
        tags_code: int,
        message_type: int = NORMAL,
    ) -> int:
        """:meth:`append` for whole ``bytes`` objects."""
        if cython.compiled:
            return self._append_views(
                slot, queue_id, flag, sys_flag, born_timestamp, born, reconsume_times, prepared_offset,
                body or b"\0", len(body), topic, props or b"\0", len(props), tags_code, message_type,
            )  # fmt: skip
        return self.append(
            slot, queue_id, flag, sys_flag, born_timestamp, born, len(born), reconsume_times, prepared_offset,
            body, 0, len(body), topic, 0, len(topic), props, 0, len(props), tags_code,
            message_type,
        )  # fmt: skip

    def _append_views(
        self,
        slot: int,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born: Readable,
        reconsume_times: int,
        prepared_offset: int,
        body: Readable,
        body_length: int,
        topic: Readable,
        props: Readable,
        props_length: int,
        tags_code: int,
        message_type: int,
    ) -> int:
        return self.append(
            slot, queue_id, flag, sys_flag, born_timestamp,
            cython.address(born[0]), len(born), reconsume_times, prepared_offset,
            cython.address(body[0]), 0, body_length,
            cython.address(topic[0]), 0, len(topic),
            cython.address(props[0]), 0, props_length, tags_code, message_type,
        )  # fmt: skip
