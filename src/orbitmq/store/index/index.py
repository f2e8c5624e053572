"""The message index: finds messages by their keys. Derived from the log, in the background.

Records are read where they lie in the log, a batch at a time in a worker thread, so that storing a message
takes no longer. After a crash the newest file is deleted and rebuilt from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.runtime import Runtime
from orbitmq.store.errors import LogDamagedError
from orbitmq.store.index.file import IndexFile, file_bytes, is_index_name, record_size
from orbitmq.store.index.layout import BROKEN, FULL
from orbitmq.store.index.scan import IndexBuilder
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.log_feed import LogFeed
from orbitmq.store.ports import LogPiece

if TYPE_CHECKING:
    from datetime import datetime

logger = logging.getLogger(__name__)

# The most entries of one batch.
BATCH_ENTRIES = 32_768
# How many more entries a search looks for: entries have times in whole seconds, so some of the messages found
# lie outside the range.
EXTRA_FINDS = 64


class MessageIndex:
    """All index files of a store.

    Args:
        folder: the folder of the files.
        slots, entries: sizes of a file (``maxHashSlotNum``, ``maxIndexNum``).
        written: gives the end of the readable log.
        store_time_at: gives the store time of the record at a log offset, ms, -1 when there is none.
    """

    def __init__(
        self,
        runtime: Runtime,
        folder: str,
        slots: int,
        entries: int,
        log: LogFiles,
        written: Callable[[], int],
        store_time_at: Callable[[int], int],
    ) -> None:
        self._runtime = runtime
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._log = log
        self._written = written
        self._store_time_at = store_time_at
        self._files: list[IndexFile] = []
        self._builder: IndexBuilder | None = None
        # One batch or search at a time: a search must not see half a batch.
        self._busy = asyncio.Lock()
        self.feed = LogFeed(runtime, self, log, written, name="index")
        # The newest store time in those files that are complete and on the device.
        self.sealed_time = 0

    # -- life ------------------------------------------------------------------------------------------

    def load(self, *, crashed: bool, sealed_time: int, position: int) -> None:
        """Open the files. After a crash, files that may be damaged are removed, to be rebuilt.

        Args:
            sealed_time: the checkpoint's store time up to which the index files were on the device.
            position: the checkpoint's log offset up to which a clean stop had indexed the log, -1: unknown.
        """
        size = file_bytes(self._slots, self._entries)
        names = [name for name in self._runtime.files.list_dir(self._folder) if is_index_name(name)]
        paths = [f"{self._folder}/{name}" for name in names]
        if any(self._runtime.files.size_bytes(path) != size for path in paths):
            logger.warning("the files of %s have another size: the index is built again", self._folder)
            for path in paths:
                self._runtime.files.remove(path)
            paths = []
        self._files = [IndexFile.read(self._runtime.files.open_segment(path, size)) for path in paths]
        if any(file.empty for file in self._files[:-1]):
            logger.warning("a file of %s has no entries: the index is built again", self._folder)
            while self._files:
                self._drop_newest()
        if crashed:
            self._drop_newest()
            while self._files and self._files[-1].end_time > sealed_time:
                self._drop_newest()
        while self._files and (self._files[-1].empty or self._files[-1].end_offset >= self._written()):
            self._drop_newest()
        self.sealed_time = self._files[-1].end_time if crashed and self._files else sealed_time
        # The position belongs to the newest file at that time: when that file is gone, its entries are
        # indexed again.
        noted = bool(self._files) and self._files[-1].end_time == sealed_time
        self.feed.position = self._resume_at(crashed, position if noted else -1)

    def _resume_at(self, crashed: bool, position: int) -> int:
        if not self._files:
            return self._log.first
        newest = self._files[-1].end_offset
        segment = self._log.segment(newest)
        if crashed or segment is None:
            # The keys of that record may be in two files; a message found twice is shown once.
            return max(newest, self._log.first)
        after = newest + record_size(segment.view(), newest - self._log.start_of(newest))
        return min(max(after, position), self._written())

    @property
    def position(self) -> int:
        """All records below this offset are in the index."""
        return self.feed.position

    def start(self) -> None:
        """Index new records in the background from now on."""
        self.feed.start()

    async def stop(self) -> None:
        """End the batch under way and bring the files to the device; :attr:`position` is then final.

        Raises:
            OSError: the disk refused; the next start rebuilds the newest file.
        """
        await self.feed.stop()
        if self._builder is not None:
            try:
                await self._runtime.threads.run(self._files[-1].complete, self._builder)
                self.sealed_time = self._files[-1].end_time
            except OSError:
                self._drop_newest()
                raise

    def close(self) -> None:
        for file in self._files:
            file.segment.close()
        self._files.clear()
        self._builder = None

    # -- building --------------------------------------------------------------------------------------

    async def take(self, piece: LogPiece) -> int:
        """Index the next batch of records, see ``LogFollower.take``."""
        async with self._busy:
            run = self._runtime.threads.run
            if self._builder is None:
                file = self._open_newest()
                # Making a file's table of 20 MB takes 0.1 s.
                self._builder = await run(file.builder, self._slots, self._entries, BATCH_ENTRIES)
            file, builder = self._files[-1], self._builder
            status = await run(
                _scan_and_write, file, builder, piece.view, piece.start - piece.base, piece.end - piece.base
            )
            position = piece.base + builder.position
            if status == FULL:
                await run(file.complete, builder)
                self.sealed_time = file.end_time
                self._builder = None
                self._add_file()
            elif status == BROKEN:
                raise LogDamagedError(f"no record begins at {position}")
            return position

    def failed(self) -> int:
        """Remove the file that was being written, to be rebuilt. Complete files stay if no new file could be
        opened."""
        if self._builder is not None:
            self._drop_newest()
            self._builder = None
        return self._resume_at(True, -1)

    async def truncate(self, to: int) -> int:
        """Remove the files with entries of records behind ``to``; they are rebuilt up to the end of the
        log."""
        async with self._busy:
            self._builder = None
            while self._files and self._files[-1].end_offset >= to:
                self._drop_newest()
            # The newest file that is left may not be full although it had a successor: it is rebuilt too.
            self._drop_newest()
            self.sealed_time = self._files[-1].end_time if self._files else 0
            return min(self._resume_at(True, -1), to)

    def _open_newest(self) -> IndexFile:
        if not self._files or self._files[-1].next_entry >= self._entries:
            self._add_file()
        return self._files[-1]

    def _add_file(self) -> None:
        now = self._runtime.clock.now_ms()
        newest = self._files[-1].segment.path.rpartition("/")[2] if self._files else ""
        while (name := _name_of(self._runtime.clock.local_time(now))) <= newest:
            now += 1
        segment = self._runtime.files.open_segment(
            f"{self._folder}/{name}", file_bytes(self._slots, self._entries), create=True
        )
        self._files.append(IndexFile(segment))

    def _drop_newest(self) -> None:
        if self._files:
            self._remove(self._files.pop())

    def _remove(self, file: IndexFile) -> None:
        file.segment.close()
        try:
            self._runtime.files.remove(file.segment.path)
        except OSError as error:
            logger.error("cannot remove %s: %s", file.segment.path, error)

    def drop_below(self, physical_offset: int) -> None:
        """Remove files that name only records below ``physical_offset``, where the log begins now."""
        while len(self._files) > 1 and self._files[0].end_offset < physical_offset:
            self._remove(self._files.pop(0))

    # -- searching -------------------------------------------------------------------------------------

    async def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Log offsets of the newest ``limit`` messages of ``topic`` with ``key``, in the order of the log.

        Args:
            begin_ms, end_ms: bounds of the store time, both inclusive.
        """
        await self.feed.catch_up(self._written())
        text = f"{topic}#{key}".encode("utf-8", "replace")
        found: dict[int, None] = {}
        async with self._busy:
            for file in reversed(self._files):
                builder = self._builder if file is self._files[-1] else None
                for offset in file.find(builder, self._slots, text, begin_ms, end_ms, limit + EXTRA_FINDS):
                    if len(found) < limit and begin_ms <= self._store_time_at(offset) <= end_ms:
                        found[offset] = None
                if len(found) >= limit or 0 < file.begin_time < begin_ms:
                    break
        return sorted(found)

    @property
    def newest(self) -> tuple[int, int]:
        """Store time (ms) and log offset of the newest message with a key; zeros when there is none."""
        for file in reversed(self._files):
            if not file.empty:
                return file.end_time, file.end_offset
        return 0, 0


def _scan_and_write(file: IndexFile, builder: IndexBuilder, log: memoryview, start: int, end: int) -> int:
    """Index one batch of records; runs in a worker thread."""
    status = builder.scan(log, start, end, file.segment.view())
    file.write_entries(builder)
    return status


def _name_of(made: datetime) -> str:
    return f"{made:%Y%m%d%H%M%S}{made.microsecond // 1000:03d}"
