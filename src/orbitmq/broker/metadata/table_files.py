"""The broker's tables on disk: ``config/<table>.json`` as RocketMQ writes them, and their ``.bak``."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.events import Events, TableSaved
from orbitmq.errors import OrbitError
from orbitmq.runtime.seam import Runtime
from orbitmq.wire import fastjson

log = logging.getLogger(__name__)


class TableError(OrbitError):
    """A table file and its backup exist, but neither can be read."""


def pretty(value: Any) -> bytes:
    """JSON as fastjson's PrettyFormat writes it: tab indent, bare number keys, sorted, no nulls."""
    parts: list[str] = []
    _write(value, "\n", parts.append)
    return "".join(parts).encode()


def _write(value: Any, newline: str, out: Callable[[str], None]) -> None:
    if isinstance(value, dict):
        entries = [(_key(key), value[key]) for key in sorted(value) if value[key] is not None]
        _write_block("{", "}", entries, newline, out)
    elif isinstance(value, list | tuple):
        _write_block("[", "]", [("", item) for item in value], newline, out)
    else:
        out(json.dumps(value, ensure_ascii=False))


def _write_block(
    opening: str, closing: str, entries: list[tuple[str, Any]], newline: str, out: Callable[[str], None]
) -> None:
    out(opening)
    for index, (prefix, item) in enumerate(entries):
        out(("," if index else "") + newline + "\t" + prefix)
        _write(item, newline + "\t", out)
    out(newline + closing if entries else closing)


def _key(key: str | int) -> str:
    return f"{key}:" if isinstance(key, int) else json.dumps(key, ensure_ascii=False) + ":"


@dataclass(slots=True)
class _Table:
    path: str
    snapshot: Callable[[], dict[str, Any]]
    dirty: bool = False
    changed: set[str] | None = None
    being_saved: frozenset[str] = frozenset()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Persistence:
    """Writes the tables that changed; writes that come together are one.

    Args:
        folder: ``config`` below the store's root.
    """

    def __init__(self, runtime: Runtime, folder: str, feed: ChangeFeed, events: Events) -> None:
        self._files = runtime.files
        self._threads = runtime.threads
        self._folder = folder
        self._tables: dict[str, _Table] = {}
        self._changed_by: dict[str, _Table] = {}
        self._events = events
        feed.subscribe(self._on_change)

    def register(
        self,
        table: str,
        snapshot: Callable[[], dict[str, Any]],
        *,
        parts: Iterable[str] = (),
        note_keys: bool = False,
    ) -> None:
        """Keep ``table`` on disk; ``snapshot()`` gives its content when it has to be written.

        A worker thread reads the content: it must not change any more.

        Args:
            parts: other names of the change feed whose changes belong into this file.
            note_keys: let :meth:`saved` tell about single keys of this table.
        """
        entry = _Table(f"{self._folder}/{table}.json", snapshot, changed=set() if note_keys else None)
        self._tables[table] = entry
        self._changed_by.update(dict.fromkeys((table, *parts), entry))

    def saved(self, table: str, key: str) -> bool:
        """Whether the last change of ``key`` is on disk; of a table whose keys are noted."""
        entry = self._tables[table]
        return key not in (entry.changed or ()) and key not in entry.being_saved

    def load(self, table: str) -> dict[str, Any] | None:
        """The content on disk, the backup's when the file is missing or damaged, ``None`` on a first start.

        Raises:
            TableError: there is a file, but nothing readable.
        """
        path = self._tables[table].path
        damaged = ""
        for candidate in (path, path + ".bak"):
            if not self._files.exists(candidate):
                continue
            try:
                content = fastjson.loads(self._files.read_bytes(candidate))
            except ValueError as error:
                damaged = f"{candidate}: {error}"
                log.warning("table file is damaged, its backup is used: %s", damaged)
                continue
            if isinstance(content, dict):
                return content
            damaged = f"{candidate}: expected an object"
        if damaged:
            raise TableError(f"{damaged}; there is no readable backup")
        return None

    async def flush(self, table: str) -> None:
        """Return when every change of ``table`` made before the call is on disk.

        Raises:
            OSError: the disk refused; the table stays marked and is tried again with the next flush.
        """
        entry = self._tables[table]
        async with entry.lock:
            if not entry.dirty:
                return
            entry.dirty = False
            if entry.changed is not None:
                entry.being_saved = frozenset(entry.changed)
                entry.changed.clear()
            saving = self._threads.run(self._save, entry.path, entry.snapshot())
            try:
                await asyncio.wait({saving})
            except asyncio.CancelledError:
                # A save is neither dropped nor overtaken by the next one: both write the same files.
                await asyncio.wait({saving})
                raise
            finally:
                if not saving.done() or saving.exception() is not None:
                    entry.dirty = True
                    if entry.changed is not None:
                        entry.changed |= entry.being_saved
                entry.being_saved = frozenset()
            saving.result()
        self._events.publish(TableSaved(table))

    async def flush_all(self) -> None:
        """Write every table that changed; one that the disk refuses is logged and tried again later."""
        for table in self._tables:
            try:
                await self.flush(table)
            except OSError as error:
                log.error("cannot write %s: %s", self._tables[table].path, error)

    def _save(self, path: str, content: dict[str, Any]) -> None:
        files = self._files
        data = pretty(content)
        files.make_dirs(self._folder)
        if files.exists(path):
            files.write_atomic(path + ".bak", files.read_bytes(path), sync=False)
        files.write_atomic(path, data)

    def _on_change(self, table: str, key: str, _value: object) -> None:
        entry = self._changed_by.get(table)
        if entry is not None:
            entry.dirty = True
            if entry.changed is not None:
                entry.changed.add(key)
