"""Finding the true end of the log after a stop, and making the consume queues agree with it."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from orbitmq.message import sysflag
from orbitmq.message.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from orbitmq.message.tags import tags_code
from orbitmq.runtime import Runtime
from orbitmq.store.config import CONSUME_QUEUE_ENTRY_BYTES
from orbitmq.store.log.files import LogFiles
from orbitmq.store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">iiiiiqqiq")
_TIME = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_ENTRY = struct.Struct(">qiq")
_MIN_SIZE = 75 + 8 + 8
_TAGS_FIRST = b"TAGS\x01"
_TAGS_LATER = b"\x02TAGS\x01"
_ZERO_CHECK_BYTES = 1 << 20
# Entries of a queue wait in memory up to this many before they are written.
_PENDING_ENTRIES = 4096

# Topic, properties, store time in ms.
TagsCodeOf = Callable[[str, bytes, int], int]


@dataclass(slots=True)
class LogRecord:
    """What recovery needs of one record."""

    physical_offset: int
    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    tags_code: int


@dataclass(slots=True)
class Recovered:
    """The outcome of recovery, for the log line that an operator reads."""

    end_offset: int
    records: int
    cut_bytes: int
    last_timestamp: int
    rebuilt: bool


@lru_cache(maxsize=4096)
def _code_of_tags(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))


def tags_code_of_properties(topic: str, properties: bytes, store_timestamp: int) -> int:
    """The tags code of a stored record, from the TAGS property."""
    if properties.startswith(_TAGS_FIRST):
        start = len(_TAGS_FIRST)
    else:
        found = properties.find(_TAGS_LATER)
        if found < 0:
            return 0
        start = found + len(_TAGS_LATER)
    end = properties.find(b"\x02", start)
    tags = properties[start : end if end >= 0 else len(properties)]
    return _code_of_tags(tags) if tags else 0


def read_record(
    view: memoryview, at: int, physical: int, *, code_of: TagsCodeOf, check_crc: bool
) -> LogRecord | int | None:
    """The record at ``at``; at the end of a file its blank's size; ``None``: nothing valid."""
    room = len(view) - at
    if room < 8:
        return None
    size, magic = struct.unpack_from(">ii", view, at)
    if magic == MAGIC_BLANK:
        return room if size == room else None
    if magic not in (MAGIC_V1, MAGIC_V2) or size < _MIN_SIZE or size > room:
        return None
    _, _, crc, queue_id, _, queue_offset, physical_offset, sys_flag, _ = _HEAD.unpack_from(view, at)
    if physical_offset != physical:
        return None
    pos = at + _HEAD.size + (20 if sys_flag & sysflag.BORN_HOST_V6 else 8)
    store_timestamp = _TIME.unpack_from(view, pos)[0]
    pos += 8 + (20 if sys_flag & sysflag.STORE_HOST_V6 else 8) + 12
    end = at + size
    if pos + 4 > end:
        return None
    body_length = _INT.unpack_from(view, pos)[0]
    body_at = pos + 4
    pos = body_at + body_length
    wide = magic == MAGIC_V2
    if body_length < 0 or pos + (4 if wide else 3) > end:
        return None
    topic_length = _SHORT.unpack_from(view, pos)[0] if wide else view[pos]
    pos += 2 if wide else 1
    topic_at = pos
    pos += topic_length
    if topic_length <= 0 or pos + 2 > end:
        return None
    properties_length = _SHORT.unpack_from(view, pos)[0]
    pos += 2
    if properties_length < 0 or pos + properties_length != end:
        return None
    if check_crc and zlib.crc32(view[body_at : body_at + body_length]) & 0x7FFFFFFF != crc:
        return None
    topic = bytes(view[topic_at : topic_at + topic_length]).decode("utf-8", "replace")
    code = code_of(topic, bytes(view[pos : pos + properties_length]), store_timestamp)
    return LogRecord(physical, size, topic, queue_id, queue_offset, sys_flag, store_timestamp, code)


class Recovery:
    """One run over the log from a known border to its end.

    Args:
        queue: gives the consume queue of (topic, queue id), made when missing.
        check_crc: verify bodies too (after a crash).
    """

    def __init__(
        self,
        runtime: Runtime,
        log: LogFiles,
        queue: Callable[[str, int], ConsumeQueue],
        *,
        code_of: TagsCodeOf,
        check_crc: bool,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._queue = queue
        self._code_of = code_of
        self._check_crc = check_crc
        self._pending: dict[tuple[str, int], tuple[int, bytearray]] = {}
        self._gap = False

    def run(self, start: int, queues: Iterator[ConsumeQueue], *, rebuild: bool = False) -> Recovered:
        """Scan from ``start``, bring queues up to the log, cut what is behind its last whole record.

        Args:
            rebuild: index the whole log, whatever the queues say.
        """
        self._gap = rebuild
        known = list(queues)
        if self._check_crc:
            for queue in known:
                queue.keep_below(start)
        end, records, last_timestamp = self._scan(start)
        rebuilt = self._gap
        if rebuilt:
            # Index entries older than the starting point are missing: only the whole log can tell.
            records = self._rebuild(end)
        for queue in known:
            queue.truncate(queue.end_of_records_below(end))
        cut = self._cut(end) if self._check_crc else 0
        return Recovered(end, records, cut, last_timestamp, rebuilt)

    def _scan(self, start: int) -> tuple[int, int, int]:
        """Find the end of the log; index the records on the way, up to a gap in a queue."""
        offset = start
        records = 0
        last_timestamp = 0
        while (segment := self._log.segment(offset)) is not None:
            view = segment.view()
            file_start = self._log.start_of(offset)
            found = read_record(
                view, offset - file_start, offset, code_of=self._code_of, check_crc=self._check_crc
            )
            if found is None:
                break
            if isinstance(found, int):
                offset += found
                continue
            if not self._gap:
                self._dispatch(found, rebuild=False)
            records += 1
            last_timestamp = found.store_timestamp
            offset += found.size_bytes
        if self._gap:
            self._pending.clear()
        self._write_pending()
        return offset, records, last_timestamp

    def _rebuild(self, end: int) -> int:
        """Index all records below ``end``; how many. Damage in an old file cuts nothing behind it."""
        offset = self._log.first
        records = 0
        while offset < end and (segment := self._log.segment(offset)) is not None:
            file_start = self._log.start_of(offset)
            found = read_record(
                segment.view(), offset - file_start, offset, code_of=self._code_of, check_crc=False
            )
            if found is None:
                logger.error(
                    "%s is damaged at %d: what follows in this file is left out of the consume queues",
                    segment.path, offset,
                )  # fmt: skip
                offset = file_start + self._log.file_bytes
            elif isinstance(found, int):
                offset += found
            else:
                self._dispatch(found, rebuild=True)
                records += 1
                offset += found.size_bytes
        self._write_pending()
        return records

    def _dispatch(self, record: LogRecord, *, rebuild: bool) -> None:
        kind = record.sys_flag & sysflag.TRANSACTION_ROLLBACK
        if kind in (sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_ROLLBACK):
            return
        key = (record.topic, record.queue_id)
        queue = self._queue(*key)
        pending = self._pending.get(key)
        expected = pending[0] + len(pending[1]) // CONSUME_QUEUE_ENTRY_BYTES if pending else queue.next_offset
        if record.queue_offset < expected:
            if not self._replaces(queue, record, pending is not None):
                return
            self._pending.pop(key, None)
            queue.truncate(record.queue_offset)
            pending = None
        elif record.queue_offset > expected:
            if not rebuild:
                self._gap = True
                return
            self._flush_queue(key)
            queue.begin_at(record.queue_offset)
            pending = None
        if pending is None:
            pending = self._pending[key] = (record.queue_offset, bytearray())
        pending[1].extend(_ENTRY.pack(record.physical_offset, record.size_bytes, record.tags_code))
        if len(pending[1]) >= _PENDING_ENTRIES * CONSUME_QUEUE_ENTRY_BYTES:
            self._flush_queue(key)

    def _replaces(self, queue: ConsumeQueue, record: LogRecord, pending: bool) -> bool:
        """Whether the index must be rewritten from this record on: it names another record at this offset."""
        if pending or record.queue_offset < queue.min_offset:
            # Written in this run already, then begun anew: the topic was deleted and made again.
            return pending and record.queue_offset == 0
        physical, size, _ = queue.entry(record.queue_offset)
        return (physical, size) != (record.physical_offset, record.size_bytes)

    def _flush_queue(self, key: tuple[str, int]) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._queue(*key).write(pending[0], pending[1])

    def _write_pending(self) -> None:
        for key in list(self._pending):
            self._flush_queue(key)

    def _cut(self, end: int) -> int:
        """Remove what is behind ``end``, durably, so that it can never be read as messages again."""
        cut = 0
        while self._log.count and self._log.end - self._log.file_bytes > end:
            cut += self._log.file_bytes
            self._log.remove_last()
        segment = self._log.segment(end)
        if segment is None:
            return cut
        view = segment.view()
        at = end - self._log.start_of(end)
        while at < len(view):
            piece = view[at : at + _ZERO_CHECK_BYTES]
            if piece.tobytes().strip(b"\0"):
                segment.pwrite(bytes(len(piece)), at)
                cut += len(piece)
            at += len(piece)
        if cut:
            segment.sync()
        return cut


def first_record_time(files: LogFiles, start: int, code_of: TagsCodeOf) -> int | None:
    """When the record that begins a log file was stored, ms; ``None`` when none is there."""
    segment = files.segment(start)
    if segment is None:
        return None
    found = read_record(segment.view(), 0, start, code_of=code_of, check_crc=False)
    return None if found is None or isinstance(found, int) else found.store_timestamp
