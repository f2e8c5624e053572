"""The key-value table of the name server (KVConfigManager), kept in one JSON file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from orbitmq.errors import OrbitError
from orbitmq.runtime import Runtime

NAMESPACE_ORDER_TOPIC = "ORDER_TOPIC_CONFIG"
MAX_ENTRIES = 100_000


class KvError(OrbitError):
    """The table cannot be read or saved, or is full."""


class KvConfig:
    """Text values by namespace and key. A change counts only after it is on disk."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        """``path`` is the file of the table; empty keeps the table in memory only."""
        self._runtime = runtime
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file, if there is one.

        Raises:
            KvError: the file cannot be read or is not a table.
        """
        if not self._path or not self._runtime.files.exists(self._path):
            return
        try:
            table = json.loads(self._runtime.files.read_bytes(self._path))["configTable"]
            self._table = {
                str(namespace): {str(key): str(value) for key, value in entries.items()}
                for namespace, entries in table.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise KvError(f"kvConfigPath={self._path} is not a key-value table: {error}") from error

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Keys and values of ``namespace``; None when it never had any."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value.

        Raises:
            KvError: the table is full or cannot be saved; it is unchanged then.
        """
        async with self._lock:
            if sum(map(len, self._table.values())) >= MAX_ENTRIES and self.get(namespace, key) is None:
                raise KvError(f"the key-value table is full: {MAX_ENTRIES} entries")
            await self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value; no error when there is none.

        Raises:
            KvError: the table cannot be saved; it is unchanged then.
        """
        async with self._lock:
            entries = dict(self._table.get(namespace, {}))
            if entries.pop(key, None) is not None:
                await self._replace({**self._table, namespace: entries})

    async def _replace(self, table: dict[str, dict[str, str]]) -> None:
        if self._path:
            text = json.dumps({"configTable": table}, ensure_ascii=False, sort_keys=True)
            try:
                await self._runtime.threads.run(self._save, text.encode())
            except OSError as error:
                raise KvError(f"cannot save kvConfigPath={self._path}: {error}") from error
        self._table = table

    def _save(self, data: bytes) -> None:
        files = self._runtime.files
        folder = self._path.rpartition("/")[0]
        if folder:
            files.make_dirs(folder)
        files.write_atomic(self._path, data)
