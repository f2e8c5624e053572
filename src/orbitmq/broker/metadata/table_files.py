"""The broker's tables on disk: ``config/<table>.json`` as RocketMQ writes them, and their ``.bak``.

A change that a caller waits for goes to the change journal: one write for all waiting callers. The table
files are written some seconds later with all changes so far; then the journal's entries are removed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from orbitmq.broker.change_feed import ChangeFeed, FeedEntry
from orbitmq.broker.component import StoredTable
from orbitmq.broker.events import Events, TableSaved, TablesRead
from orbitmq.broker.metadata.change_journal import ABSENT, ChangeJournal, KnownFile, change_frame
from orbitmq.errors import OrbitError
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Runtime
from orbitmq.wire import fastjson

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
RETRY_SECONDS = 5.0
# A write that the disk refuses is tried again every few seconds, and logged once a minute.
FAILURES_LOGGED_SECONDS = 60.0
# How many entries are encoded before the event loop gets time for other work: about 0.2 ms.
SLICE_ENTRIES = 64


# A number as a key, as fastjson writes it, at the start of a line: JSON texts contain no line breaks. With
# quotes it becomes standard JSON, which is read several times as fast.
_BARE_KEY = re.compile(rb"(\n\s*)(-?[0-9]+):")


class TableError(OrbitError):
    """Neither a table file nor its backup can be read, or the content is refused."""


Key = tuple[str, str]


@dataclass(slots=True)
class _File:
    """One table file. Keys are unsaved until the journal or the file holds their last value.

    Attributes:
        changes, durable: how many changes there were, and how many of them are on disk.
        dirty: live values that are not on disk, by table and key.
        on_the_way, folding: values that are being written to the journal and to the file.
        stale: whether the file lacks a change.
        after: files whose changes must be on disk before later ones of this file.
        private: whether only the broker's own user may read it.
    """

    name: str
    table: StoredTable
    changes: int = 0
    durable: int = 0
    dirty: dict[Key, Any] = field(default_factory=dict)
    on_the_way: dict[Key, Any] = field(default_factory=dict)
    folding: dict[Key, Any] = field(default_factory=dict)
    stale: bool = False
    after: tuple[str, ...] = ()
    private: bool = False


class Persistence:
    """Keeps the tables on disk.

    Args:
        folder: ``config`` below the store's root.
    """

    def __init__(self, runtime: Runtime, folder: str, feed: ChangeFeed, events: Events) -> None:
        self._clock = runtime.clock
        self._files = runtime.files
        self._threads = runtime.threads
        self._folder = folder
        self._journal = ChangeJournal(runtime.files, folder)
        self._stored: dict[str, _File] = {}
        self._by_table: dict[str, _File] = {}
        self._writing = asyncio.Lock()
        self._folding = asyncio.Lock()
        self._wanted: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._last_change = 0.0
        self._feed = feed
        self._events = events
        self._failures_log = LogLimiter(log, FAILURES_LOGGED_SECONDS)
        self._loaded = False
        feed.subscribe(self._on_change)

    def register(
        self,
        table: str,
        source: StoredTable,
        *,
        parts: Iterable[str] = (),
        after: Iterable[str] = (),
        private: bool = False,
    ) -> None:
        """Keep ``table`` on disk.

        Args:
            table: the name of the table in the change feed, and of its file.
            parts: other names of the change feed whose changes belong in this file.
            after: tables whose changes must be on disk before later changes of this one.
            private: whether only the broker's own user may read the file.
        """
        stored = self._stored[table] = _File(table, source, after=tuple(after), private=private)
        self._by_table.update(dict.fromkeys((table, *parts), stored))

    def _on_change(self, table: str, key: str, value: object) -> None:
        stored = self._by_table.get(table)
        if stored is not None:
            stored.changes += 1
            place = (table, key)
            stored.dirty.pop(place, None)  # the order of the last changes is the order on disk
            stored.dirty[place] = value
            stored.stale = True
            self._last_change = self._clock.monotonic()
            self._changed.set()

    def note_version(self, table: str) -> None:
        """Note that the version of ``table`` changed without a key: its file is rewritten soon."""
        stored = self._by_table.get(table)
        if stored is not None:
            stored.stale = True
            self._last_change = self._clock.monotonic()
            self._changed.set()

    def saved(self, table: str, key: str) -> bool:
        """Whether the last change of ``key`` is on disk."""
        stored = self._by_table[table]
        place = (table, key)
        return not (place in stored.dirty or place in stored.on_the_way or place in stored.folding)

    # -- the journal -----------------------------------------------------------------------------------

    async def flush(self, *tables: str) -> None:
        """Return when every change of ``tables`` made before the call is on disk.

        The changes are written in one frame: a process that is killed leaves all of them on disk or none.

        Raises:
            OSError: the disk refused; the changes are tried again with the next flush.
        """
        files = {self._by_table[table].name: self._by_table[table] for table in tables}
        wanted = {name: stored.changes for name, stored in files.items()}

        def durable() -> bool:
            return all(files[name].durable >= changes for name, changes in wanted.items())

        if durable():
            return
        self._wanted.update(dict.fromkeys(files))
        async with self._writing:
            if durable():
                return  # the previous flush has written these changes too
            self._wanted.update(dict.fromkeys(files))  # again, if the previous flush has failed
            for name in list(self._wanted):
                self._wanted.update((before.name, None) for before in self._before(self._stored[name]))
            together = [self._stored[name] for name in self._wanted]
            self._wanted.clear()
            await self._append(together)

    def _before(self, stored: _File) -> list[_File]:
        """The files that must be written before this one, also indirectly, and lack changes on disk."""
        return [each for each in self._earlier(stored) if each.durable < each.changes]

    def _earlier(self, stored: _File) -> list[_File]:
        """All files that must be written before this one."""
        found: dict[str, _File] = {}
        open_ends = [stored]
        while open_ends:
            for name in open_ends.pop().after:
                if name in self._stored and name not in found:
                    found[name] = self._stored[name]
                    open_ends.append(found[name])
        return list(found.values())

    async def _append(self, files: list[_File]) -> None:
        """Write the unsaved changes of ``files`` to the journal; only with ``_writing`` held."""
        taken: list[tuple[_File, dict[Key, Any], int]] = []
        for stored in files:
            unsaved = {**stored.folding, **stored.dirty}
            taken.append((stored, unsaved, stored.changes))
            stored.on_the_way, stored.dirty = unsaved, {}
        try:
            frames = await self._frames(taken)
            await self._in_thread(self._write_journal, frames)
        except BaseException:
            for stored, unsaved, _ in taken:
                stored.dirty = {**unsaved, **stored.dirty}
                stored.on_the_way = {}
            raise
        for stored, unsaved, changes in taken:
            stored.on_the_way, stored.folding = {}, {}
            stored.durable = max(stored.durable, changes)
            self._publish_saved(unsaved)

    async def _frames(self, taken: list[tuple[_File, dict[Key, Any], int]]) -> list[bytes]:
        frames = []
        for _, unsaved, _ in taken:
            for (table, key), value in unsaved.items():
                self._journal.sequence += 1
                frames.append(change_frame(self._feed.kept_entry(self._journal.sequence, table, key, value)))
                if len(frames) % SLICE_ENTRIES == 0:
                    await asyncio.sleep(0)
        return frames

    def _write_journal(self, frames: list[bytes]) -> None:
        self._files.make_dirs(self._folder)
        self._journal.append(frames)

    def _publish_saved(self, keys: Iterable[Key]) -> None:
        by_table: dict[str, list[str]] = {}
        for table, key in keys:
            by_table.setdefault(table, []).append(key)
        for table, names in by_table.items():
            self._events.publish(TableSaved(table, names))

    async def _in_thread(self, function: Callable[..., object], *args: Any) -> None:
        """Finish a write even when its caller is cancelled: the next write must not overtake it."""
        working = self._threads.run(function, *args)
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError:
            await asyncio.wait({working})
            # If the disk refused, the next flush raises that: the changes are still unsaved.
            working.exception()
            raise
        working.result()

    # -- the table files -------------------------------------------------------------------------------

    async def run(self, max_age_s: float) -> None:
        """Write the table files after a second without changes, ``max_age_s`` after a change at most."""
        while True:
            await self._changed.wait()
            latest = self._clock.monotonic() + max_age_s
            while (pause := min(self._last_change + QUIET_SECONDS, latest) - self._clock.monotonic()) > 0:
                await self._clock.sleep(pause)
            self._changed.clear()
            if not await self.fold():
                await self._clock.sleep(min(RETRY_SECONDS, max_age_s))
                self._changed.set()

    async def fold(self) -> bool:
        """Write every table file that lacks a change, then drop the journal's entries.

        Returns:
            False when the disk refused a file, which is logged.
        """
        async with self._folding:
            files = [stored for stored in self._stored.values() if stored.stale]
            # In the order of their dependencies: a table that must be on disk first is in its file by then.
            files.sort(key=lambda stored: len(self._earlier(stored)))
            async with self._writing:
                numbers = self._journal.rotate()
            for stored in files:
                try:
                    await self._fold(stored)
                except OSError as error:
                    path = self._path(stored)
                    self._failures_log.write(
                        logging.ERROR, "a table file", "cannot write %s: %s", path, error
                    )
                    return False
            await self._drop(numbers)
            return True

    async def _drop(self, numbers: list[int]) -> None:
        """Remove journal files. One that stays does no harm: the table files are recorded as newer."""
        async with self._writing:
            try:
                await self._in_thread(self._journal.remove, numbers)
            except OSError as error:
                log.warning("cannot remove the change journal in %s: %s", self._folder, error)

    async def _fold(self, stored: _File) -> None:
        changes, sequence = stored.changes, self._journal.sequence
        stored.folding, stored.dirty = stored.dirty, {}
        stored.stale = False
        try:
            await self._replace(stored, sequence)
        except BaseException:
            stored.stale = True
            stored.dirty = {**stored.folding, **stored.dirty}
            stored.folding = {}
            raise
        saved = stored.folding
        stored.folding = {}
        stored.durable = max(stored.durable, changes)
        if stored.durable == stored.changes:
            saved = {**saved, **stored.dirty}
            stored.dirty = {}
        self._publish_saved(saved)

    async def _replace(self, stored: _File, sequence: int) -> None:
        """Write a table file that holds the journal's changes up to ``sequence``, and newer ones."""
        parts: list[str] = []
        for part in stored.table.file_text():
            parts.append(part)
            if len(parts) % SLICE_ENTRIES == 0:
                await asyncio.sleep(0)
        data = "".join(parts).encode()
        known = KnownFile(stored.name, len(data), zlib.crc32(data), sequence)
        async with self._writing:
            if before := self._before(stored):
                await self._append(before)  # changes since their own files were written
            await self._in_thread(self._announce, known)
        await self._in_thread(self._write_file, stored, data)
        async with self._writing:
            self._journal.written(known)

    def _announce(self, known: KnownFile) -> None:
        self._files.make_dirs(self._folder)
        self._journal.announce(known)

    def _write_file(self, stored: _File, data: bytes) -> None:
        files, path = self._files, self._path(stored)
        if files.exists(path):
            # The backup of a private file is as new as the file, so that no file has replaced secrets.
            backup = data if stored.private else files.read_bytes(path)
            files.write_atomic(path + ".bak", backup, private=stored.private)
        files.write_atomic(path, data, private=stored.private)

    def _path(self, stored: _File) -> str:
        return f"{self._folder}/{stored.name}.json"

    async def close(self) -> bool:
        """Write all tables and leave plain RocketMQ files, without a journal, if the disk allows it.

        After a start that could not read the tables, every file stays as it is.

        Returns:
            False when the disk refused a table.
        """
        if not self._loaded:
            self._journal.rotate()
            return True
        folded = await self.fold()
        numbers = self._journal.rotate()
        if folded:
            await self._drop(numbers)
        return folded

    # -- start -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load every table from the disk: its file, and the journal's newer changes.

        Raises:
            TableError: there is a file, but neither it nor its backup can be read, or its content is refused.
        """
        changes = self._journal.read()
        newest = self._journal.sequence
        holds = {name: self._load_file(stored) for name, stored in self._stored.items()}
        for change in changes:
            stored = self._by_table.get(change.table)
            if stored is not None and change.sequence > holds[stored.name]:
                self._restore(change)
                # The first write of the tables drops the journal, so this file has to be rewritten too.
                stored.stale = True
        self._events.publish(TablesRead())
        for stored in self._stored.values():
            stored.dirty.clear()
            stored.durable = stored.changes
        self._loaded = True
        if newest:
            # These journal files are dropped with the first write of the tables; new ones are begun.
            self._changed.set()

    def _restore(self, change: FeedEntry) -> None:
        try:
            self._feed.restore(change)
        except ValueError as error:
            log.warning("the change journal has an entry that no table takes: %s", error)

    def _load_file(self, stored: _File) -> int:
        """Read one table file; returns the number of the last journal change that it holds."""
        data, content = self._read(self._path(stored))
        size, crc = (ABSENT, 0) if data is None else (len(data), zlib.crc32(data))
        sequence = self._journal.covered(stored.name, size, crc)
        if sequence is None:
            sequence = self._journal.sequence
            if sequence:
                log.warning(
                    "%s was written by another program; older changes in the journal are left out",
                    self._path(stored),
                )
        self._journal.found(stored.name, size, crc, sequence)
        if content is not None:
            try:
                stored.table.restore(content)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise TableError(f"{self._path(stored)}: {error}") from error
        return sequence

    def _read(self, path: str) -> tuple[bytes | None, dict[str, Any] | None]:
        """The file's bytes and content; the backup's if the file is missing or damaged; else ``None``."""
        damaged = ""
        for candidate in (path, path + ".bak"):
            if not self._files.exists(candidate):
                continue
            data = self._files.read_bytes(candidate)
            try:
                content = fastjson.loads(_BARE_KEY.sub(rb'\1"\2":', data))
            except ValueError as error:
                damaged = f"{candidate}: {error}"
                log.warning("table file is damaged, its backup is tried: %s", damaged)
                continue
            if isinstance(content, dict):
                return data, content
            damaged = f"{candidate}: expected an object"
        if damaged:
            raise TableError(
                f"{damaged}; there is no readable backup: bring a copy of the file back, or on a slave empty "
                "the store's folder (docs/operations.md, Damaged files)"
            )
        return None, None
