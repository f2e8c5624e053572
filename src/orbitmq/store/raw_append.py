"""How a slave stores bytes of its master's log, at the same places."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.message.sysflag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.runtime import Runtime
from orbitmq.store.errors import RawAppendError
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reput import Reput, TagsCodeOf
from orbitmq.store.upkeep.background import Upkeep

_PROBLEMS = {
    table.BAD_SIZE: "its size does not fit the file",
    table.BAD_MAGIC: "its magic number is not one of a record",
    table.BAD_PLACE: "it says that it lies at another place of the log",
    table.BAD_LENGTHS: "the lengths of its parts do not add up to its size",
    table.BAD_CRC: "the checksum of its body is another one",
}


class RawAppend:
    """Appends pieces of a master's log. ``CommitLog.received`` is the end of the last byte, the beginning of
    the appender's batch is the end of the last whole record. Bytes between the two, of a record cut by the
    end of a piece, are invisible until the rest comes."""

    def __init__(
        self,
        runtime: Runtime,
        log: CommitLog,
        queues: Queues,
        appender: Appender,
        flusher: Flusher,
        upkeep: Upkeep,
        codes: Mapping[str, TagsCodeOf],
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._queues = queues
        self._appender = appender
        self._flusher = flusher
        self._upkeep = upkeep
        self._reput = Reput(queues, appender, codes, self._settle)
        self._topics_dropped = 0

    def append(self, offset: int, data: bytes | memoryview) -> None:
        """Write a piece of the master's log and dispatch the records that are whole now.

        Pieces may begin and end anywhere, also within a record, and span files; the blank at the end of a
        file comes with them. An empty log begins at the first piece when that is the beginning of a file.

        Raises:
            RawAppendError: the piece does not continue the log, or has no undamaged records of the
                queues' next offsets. Records before the bad one stay; ``received`` is behind them.
            StoreClosedError: the disk refused.
            OSError: the disk refused a consume queue; records before the one concerned stay.
        """
        log = self._log
        if self._appender.batch_used:
            log.end_batch()
        log.received = max(log.received, self._appender.batch_base)
        if offset != log.received:
            self._begin(offset)
        log.write_raw(memoryview(data))
        problem: str | OSError = ""
        whole = self._appender.batch_base
        try:
            whole, problem = self._dispatch(whole)
        finally:
            log.advance_to(whole)
        if isinstance(problem, OSError):
            raise problem
        if problem:
            log.drop_partial()
            raise RawAppendError(f"the record at {whole} of the log is refused: {problem}")

    def _begin(self, offset: int) -> None:
        files, end = self._log.files, self._log.received
        empty = end == files.first  # the files were made for bytes that arrive next
        if not empty or offset % files.file_bytes:
            expected = f"{end}, where this log ends" + (
                " (it is empty: or the start of a file)" if empty else ""
            )
            raise RawAppendError(f"bytes for offset {offset} of the log came, expected {expected}")
        self._log.begin_at(offset)

    def _dispatch(self, whole: int) -> tuple[int, str | OSError]:
        """Dispatch the records from ``whole`` on; returns the end of the last whole one, and the error of the
        next.

        When a disk that refused works again, records already in the queues must not be dispatched twice.
        """
        files, received = self._log.files, self._log.received
        if self._topics_dropped != self._queues.dropped:
            self._topics_dropped = self._queues.dropped
            self._reput.dispatcher.clear()
        while whole < received:
            segment = files.segment(whole)
            if segment is None:
                break
            base = files.start_of(whole)
            have = min(received - base, files.file_bytes)
            try:
                status, at = self._reput.take(segment.view(), whole - base, have, have, base, check_crc=True)
            except RawAppendError as error:
                return base + self._reput.dispatcher.position, str(error)
            except OSError as error:
                return base + self._reput.dispatcher.position, error
            whole = base + at
            if status in _PROBLEMS:
                return whole, _PROBLEMS[status]
            if status == table.BLANK and have == files.file_bytes:
                whole = base + files.file_bytes
            elif status != table.SCAN_DONE:
                break
        return whole, ""

    def _settle(self, slot: int, offset: int, physical: int, size: int) -> bool:
        """Let a queue begin late (as its log does) or anew (its topic was deleted and made again)."""
        low, following = self._appender.get(slot, table.Q_MIN), self._appender.get(slot, table.Q_NEXT)
        if offset != 0 and (offset < following or low < following):
            known, queue_id = self._queues.of_slot(slot)
            raise RawAppendError(
                f"it has offset {offset} in queue {queue_id} of topic {known.topic}, "
                f"the next one is {following}"
            )
        self._queues.restart(slot, offset)
        return True

    # -- taking back -----------------------------------------------------------------------------------

    async def truncate(self, to: int) -> None:
        """See ``MessageStore.truncate``."""
        log = self._log
        log.end_batch()
        if log.received > self._appender.batch_base:
            log.drop_partial()
        end = self._appender.batch_base
        if to == end:
            return
        found = self._read(RecordReader(), to) if log.files.first <= to < end else table.CUT
        if found not in (table.RECORD, table.BLANK):
            raise RawAppendError(f"no record begins at {to}: the log goes from {log.files.first} to {end}")
        await self._flusher.flush()
        self._flusher.check()
        index = self._upkeep.index
        try:
            if index is not None:
                await index.feed.truncate(to)
            await self._cut(to, end)
        finally:
            if index is not None:
                index.feed.truncated()

    async def _cut(self, to: int, end: int) -> None:
        queues = await self._runtime.threads.run(self._queues_behind, to, end)
        await self._upkeep.checkpoint_written()
        # The checkpoint is lowered on disk before the cut: after a crash no start may trust the cut part.
        self._upkeep.lower(to)
        if to == self._log.files.first:
            # Queue ends show how many messages have expired here; the log copied next may have kept some of
            # those.
            self._queues.restart_all()
        else:
            for slot, offset in queues.items():
                self._queues.truncate(slot, offset)
        self._queues.sync()
        self._log.cut(to)
        self._flusher.begin(to)

    def _read(self, reader: RecordReader, offset: int) -> int:
        """Read the record or blank that begins at ``offset``."""
        segment = self._log.files.segment(offset)
        if segment is None:
            return table.CUT
        return reader.read_at(segment.view(), offset - self._log.files.start_of(offset), offset, False)

    def _queues_behind(self, start: int, end: int) -> dict[int, int]:
        """The queues with records from ``start`` to ``end``, and the offset of the first one in each."""
        files, reader = self._log.files, RecordReader()
        first: dict[int, int] = {}
        at = start
        while at < end and (status := self._read(reader, at)) in (table.RECORD, table.BLANK):
            segment = files.segment(at)
            if status == table.RECORD and segment is not None and in_a_queue(reader.sys_flag):
                name = bytes(segment.view()[reader.topic_at : reader.topic_end]).decode("utf-8", "replace")
                slot = self._queues.find(name, reader.queue_id)
                if slot >= 0 and reader.queue_offset < self._appender.get(slot, table.Q_NEXT):
                    first[slot] = min(reader.queue_offset, first.get(slot, reader.queue_offset))
            at += reader.size
        return first


def in_a_queue(sys_flag: int) -> bool:
    """Whether a record with this flag is in a queue; half messages and rolled back ones are in none."""
    return sys_flag & TRANSACTION_ROLLBACK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
