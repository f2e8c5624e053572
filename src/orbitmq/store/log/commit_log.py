"""The commit log: writes batches of records to files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from orbitmq.message.record import blank_record
from orbitmq.runtime import Runtime, Segment
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import ALLOCATE_AHEAD_BYTES, LogFiles, wipe
from orbitmq.store.log.flush import Flusher
from orbitmq.store.queues.lookup import Lookup

logger = logging.getLogger(__name__)

PAGE_BYTES = 4096
# How many zeros are written behind a small batch: a flush of blocks that were never written must also write
# the file's extents, which takes half of its time (measured).
ZEROS_BYTES = 256 * 1024
ZEROS = memoryview(bytes(ZEROS_BYTES))
# A piece of a master's log of at most this size is one message or a few, so the master's senders wait for it.
FEW_BYTES = 8 * 1024


class CommitLog:
    """Writes each batch with one ``pwrite`` and rolls to the next file.

    Args:
        arrived: called with the watched queue slots that got records.
        failed: called when the disk refuses; unwritten records stay in the batch.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: LogFiles,
        appender: Appender,
        lookup: Lookup,
        flusher: Flusher,
        arrived: Callable[[list[int]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._runtime = runtime
        self.files = files
        self._appender = appender
        self._lookup = lookup
        self._flusher = flusher
        self._arrived = arrived
        self._failed = failed
        self._segment: Segment | None = None
        self._segment_start = 0
        self._allocated = 0
        # When a write passes this place of the file, more is allocated.
        self._keep_ahead_from = 0
        self._zeros_to = 0
        self._allocating: asyncio.Task[None] | None = None
        self._scheduled = False
        self.write_error: OSError | None = None
        # The end of the bytes from a master; bytes behind the last whole record are no message yet.
        self.received = 0
        # The log offset of the batch that was written last, and its bytes.
        self._batch_at = -1
        self._batch = memoryview(b"")
        # Called after each write.
        self.wakers: list[Callable[[], None]] = []

    def open_at(self, offset: int) -> None:
        """Continue writing at ``offset``, the end of the log."""
        self.received = offset
        if self.files.segment(offset) is None:
            if self.files.count == 0:
                self.files.begin_at(offset)
            self.files.add()
        self._flusher.begin(offset)
        self._use_segment(offset)

    def _use_segment(self, offset: int) -> None:
        segment = self.files.segment(offset)
        if segment is None:
            raise StoreClosedError(f"the log has no file for offset {offset}")
        self._segment = segment
        self._batch_at = -1
        self._segment_start = self.files.start_of(offset)
        self._appender.start_batch(offset, self._segment_start + self.files.file_bytes)
        self._lookup.set_log_maps(self.files.first // self.files.file_bytes, self.files.views())
        self._zeros_to = offset - self._segment_start
        self._allocated = 0
        self._set_allocated(self._zeros_to)
        self._allocate(segment, self._allocated + self._ahead())

    def _ahead(self) -> int:
        return min(ALLOCATE_AHEAD_BYTES, self.files.file_bytes)

    def _allocate(self, segment: Segment, up_to: int) -> None:
        up_to = min(up_to, self.files.file_bytes)
        segment.preallocate(up_to)
        if segment is self._segment:
            self._set_allocated(up_to)

    def _set_allocated(self, up_to: int) -> None:
        self._allocated = max(self._allocated, up_to)
        self._keep_ahead_from = self._allocated - self._ahead() // 2

    @property
    def end(self) -> int:
        """The offset behind the newest record, written or not."""
        return self._appender.end

    def schedule(self) -> None:
        """End the batch after the events that are ready now have been handled."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._scheduled_end)

    def _scheduled_end(self) -> None:
        self._scheduled = False
        try:
            self.end_batch()
        except StoreClosedError:
            # The error is kept in ``write_error``, which refuses later messages. Bytes written before stay
            # valid.
            self._flusher.advance(self._appender.batch_base)

    def end_batch(self) -> None:
        """Write the batch, make it visible to reads and pass its end to the flusher.

        Raises:
            StoreClosedError: the disk refused the bytes; they stay unacknowledged and invisible.
        """
        appender = self._appender
        used = appender.batch_used
        if used:
            base = appender.batch_base
            if self.received > base:
                self.drop_partial()
            self._batch_at, self._batch = base, memoryview(appender.batch)[:used]
            self._write(self._batch, base - self._segment_start)
            end = base + used
            at = end - self._segment_start
            if self._flusher.sync and at > self._zeros_to:
                self._write_zeros(at, used)
            appender.start_batch(end, appender.file_end)
            arrived = appender.publish()
            if arrived:
                self._arrived(arrived)
            if at > self._keep_ahead_from:
                self._keep_ahead()
        try:
            # Wake followers before the flush begins, so that they can flush the batch at the same time.
            for wake in self.wakers:
                wake()
        finally:
            self._flusher.advance(appender.batch_base)

    def in_memory(self, offset: int) -> memoryview | None:
        """The bytes from ``offset`` to the end of the log, while they are still in the batch's buffer."""
        appender = self._appender
        if offset != self._batch_at or appender.batch_used:
            return None
        return self._batch if offset + len(self._batch) == appender.batch_base else None

    def _write(self, data: memoryview, at: int) -> None:
        if self.write_error is not None:
            raise StoreClosedError(f"the commit log could not be written: {self.write_error}")
        segment = self._segment
        if segment is None:
            raise StoreClosedError("the commit log is not open")
        try:
            if at + len(data) > self._allocated:
                self._allocate(segment, at + len(data))
            segment.pwrite(data, at)
        except OSError as error:
            logger.error("write of %d bytes to %s failed: %s", len(data), segment.path, error)
            self._fail(error)
            raise StoreClosedError(f"the commit log could not be written: {error}") from error

    def _write_zeros(self, end: int, used: int) -> None:
        """Write zeros behind a small batch, so that the next ones go into blocks that were written before."""
        segment = self._segment
        if segment is None:
            return
        self._zeros_to = end
        up_to = min((end + ZEROS_BYTES) & -PAGE_BYTES, self._allocated)
        if used <= ZEROS_BYTES // 4 and up_to > end:
            # Ignore the error: if the disk is full, the next record write reports it.
            with contextlib.suppress(OSError):
                segment.pwrite(ZEROS[: up_to - end], end)
                self._zeros_to = up_to

    def try_again(self) -> None:
        """Write again the bytes that the disk refused, once it has room for the next ones too.

        Raises:
            StoreClosedError: the disk refuses again.
        """
        self.write_error = None
        segment = self._segment
        try:
            if segment is not None:
                self._allocate(segment, self._appender.batch_base - self._segment_start + self._ahead())
            if self.received >= self._segment_start + self.files.file_bytes:
                self._allocate_next(self.received)
        except OSError as error:
            self._fail(error)
            raise StoreClosedError(f"the commit log has no room: {error}") from error
        self.end_batch()

    def _allocate_next(self, offset: int) -> None:
        """Preallocate the file for the master's next bytes."""
        segment = self.files.segment(offset) or self.files.add()
        self._allocate(segment, offset - self.files.start_of(offset) + self._ahead())

    def _fail(self, error: OSError) -> None:
        self.write_error = error
        self._failed(error)

    def _keep_ahead(self) -> None:
        if self._allocated < self.files.file_bytes and self._allocating is None:
            loop = asyncio.get_running_loop()
            self._allocating = loop.create_task(self._allocate_ahead(), name="store-allocate")

    async def _allocate_ahead(self) -> None:
        segment = self._segment
        up_to = min(self._allocated + self._ahead(), self.files.file_bytes)
        try:
            if segment is not None:
                await self._runtime.threads.run(segment.preallocate, up_to)
                if segment is self._segment:
                    self._set_allocated(up_to)
        except OSError as error:
            logger.warning("no disk blocks ahead of the commit log: %s", error)
        finally:
            self._allocating = None

    # -- bytes of a master -----------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin with the file that starts at ``offset``.

        Raises:
            StoreClosedError: the disk refused.
        """
        try:
            while self.files.count:
                self.files.remove_last()
            self.files.begin_at(offset)
            self.files.add()
            self._flusher.begin(offset)
            self._use_segment(offset)
        except OSError as error:
            self._fail(error)
            raise StoreClosedError(f"no commit log file at {offset}: {error}") from error
        self.received = offset

    def write_raw(self, data: memoryview) -> None:
        """Write bytes of a master at :attr:`received`; they may end anywhere, also in the next file.

        Raises:
            StoreClosedError: the disk refused.
        """
        if self.write_error is not None:
            raise StoreClosedError(f"the commit log could not be written: {self.write_error}")
        self._batch_at = -1
        try:
            at, size, segment = self.received - self._segment_start, len(data), self._segment
            if segment is not None and at + size <= self._allocated:  # nearly always true
                segment.pwrite(data, at)
                self.received += size
                if size <= FEW_BYTES and self._flusher.sync and at + size > self._zeros_to:
                    self._write_zeros(at + size, size)
                return
            while len(data):
                segment = self.files.segment(self.received) or self.files.add()
                at = self.received - self.files.start_of(self.received)
                piece = data[: self.files.file_bytes - at]
                if segment is not self._segment or at + len(piece) > self._allocated:
                    self._allocate(segment, at + len(piece))
                segment.pwrite(piece, at)
                self.received += len(piece)
                data = data[len(piece) :]
        except OSError as error:
            logger.error("write of a master's bytes at %d failed: %s", self.received, error)
            self._fail(error)
            raise StoreClosedError(f"the commit log could not be written: {error}") from error

    def advance_to(self, whole: int) -> None:
        """Make the records dispatched up to ``whole``, the end of a record, visible and pass that end to the
        flusher.

        Raises:
            StoreClosedError: the disk has no room behind ``whole``. Dispatched records are shown anyway.
        """
        refused = None
        if whole >= self._segment_start + self.files.file_bytes:
            refused = self._enter_next(whole)
        else:
            self._appender.start_batch(whole, self._appender.file_end)
        if whole - self._segment_start > self._keep_ahead_from:
            self._keep_ahead()
        arrived = self._appender.publish()
        if arrived:
            self._arrived(arrived)
        self._flusher.advance(whole)
        for wake in self.wakers:
            wake()
        if refused is not None:
            raise StoreClosedError(f"the commit log could not be written: {refused}") from refused

    def _enter_next(self, whole: int) -> OSError | None:
        """Continue in the file that begins at ``whole``; returns the error if the disk refuses."""
        try:
            if self.files.segment(whole) is None:
                self.files.add()
            self._use_segment(whole)
        except OSError as error:
            logger.error("no room for a master's bytes from %d on: %s", whole, error)
            if self._segment_start < whole:
                # the batch begins behind the dispatched records and has no room
                self._appender.start_batch(whole, whole)
            self._fail(error)
            return error
        return None

    def drop_partial(self) -> None:
        """Wipe the bytes behind the last whole record.

        Raises:
            StoreClosedError: the disk refused.
        """
        start, end = self._appender.batch_base, self.received
        self.received = start
        try:
            while start < end:
                stop = min(end, self.files.start_of(start) + self.files.file_bytes)
                if wipe(self.files, start, stop):
                    self._flusher.sync_now(self.files.between(start, stop))
                start = stop
        except OSError as error:
            if self._flusher.error is None:
                self._fail(error)  # otherwise a flush has failed before, which is final
            raise StoreClosedError(f"the commit log could not be written: {error}") from error

    def cut(self, to: int) -> None:
        """Remove all records from ``to`` on, durably; the log continues at ``to``. The caller allows no reads
        meanwhile.

        Raises:
            OSError: the disk refused half way. That is final until a new start.
        """
        try:
            while self.files.end - self.files.file_bytes > to:
                self.files.remove_last()
            if self.files.segment(to) is None:
                self.files.add()
            wipe(self.files, to, self.files.start_of(to) + self.files.file_bytes)
            self._flusher.sync_now(self.files.between(to, to + 1))
        except OSError as error:
            self._flusher.fail(error)
            raise
        self.received = to
        self._use_segment(to)
        for wake in self.wakers:
            wake()  # the senders to followers must notice the cut before new bytes replace those removed

    def roll(self) -> None:
        """Close the current file with a blank record and continue in the next one."""
        self.end_batch()
        end = self._appender.batch_base
        left = self._segment_start + self.files.file_bytes - end
        self._write(memoryview(blank_record(left)), end - self._segment_start)
        try:
            if self.files.end <= end + left:
                self.files.add()
            self._use_segment(end + left)
        except OSError as error:
            logger.error("no next commit log file: %s", error)
            self._fail(error)
            raise StoreClosedError(f"no next commit log file: {error}") from error
        self._flusher.advance(end + left)

    async def stop(self) -> None:
        """Write and flush the rest, close the files."""
        with contextlib.suppress(StoreClosedError):
            self.end_batch()
            if self.received > self._appender.batch_base:
                self.drop_partial()
        if self._allocating is not None:
            await asyncio.wait({self._allocating})
        await self._flusher.stop()

    def refresh_maps(self) -> None:
        """Give the lookup the maps of the files that exist, after one was removed."""
        self._lookup.set_log_maps(self.files.first // self.files.file_bytes, self.files.views())
