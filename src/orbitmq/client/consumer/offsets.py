"""How far a group is on the queues of this client: committed to the brokers, or kept in a local file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.paths import folder_of, joined
from orbitmq.runtime.seam import Host, Runtime
from orbitmq.wire.bodies import ResetOffsetBody
from orbitmq.wire.errors import WireError

log = logging.getLogger("orbitmq.client")

# Every so many rounds all offsets are committed, changed or not: a broker may have lost earlier commits.
_FULL_EVERY = 12
_MAX_UNCOMMITTED = 10_000
DEFAULT_INSTANCE = "DEFAULT"


class Offsets(Protocol):
    """How far a group, or in broadcasting a member, is."""

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Take note of progress (CR-12); ``increase_only=False`` for a reset."""
        ...

    def release(self, queue: MessageQueue) -> None:
        """The queue goes to another member."""
        ...

    def claim(self, queue: MessageQueue, committed: int) -> int:
        """Where to begin with a queue whose committed offset this is."""
        ...

    async def commit_periodically(self) -> None:
        """Make progress safe, now and then."""
        ...

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Make the progress of these queues, or of all, safe now."""
        ...


class OffsetStore:
    """Offsets in memory, committed to the brokers."""

    def __init__(self, calls: BrokerCalls, group: str) -> None:
        self._calls = calls
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()
        self._uncommitted: dict[MessageQueue, int] = {}
        self._round = 0

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        return self._offsets.get(queue, -1)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Take note of progress (CR-12); ``increase_only=False`` for a reset."""
        known = self._offsets.get(queue, -1)
        if offset > known or (not increase_only and offset != known):
            self._offsets[queue] = offset
            self._changed.add(queue)

    def release(self, queue: MessageQueue) -> None:
        """Forget a queue that goes to another member.

        Progress that is not committed yet is kept for :meth:`claim`.
        """
        offset = self._offsets.pop(queue, None)
        if offset is not None and queue in self._changed and len(self._uncommitted) < _MAX_UNCOMMITTED:
            self._uncommitted[queue] = offset
        self._changed.discard(queue)

    def claim(self, queue: MessageQueue, committed: int) -> int:
        """Where to begin with a queue: the committed offset, or our own progress that its broker missed.

        A broker that died and came back has lost the commits of its last seconds, and missed those made while
        it was away; without this the messages of that time would come again.
        """
        uncommitted = self._uncommitted.pop(queue, -1)
        if uncommitted > committed:
            self.update(queue, uncommitted)
            return uncommitted
        return committed

    async def commit_periodically(self) -> None:
        """One-way, what changed since the last time."""
        self._round += 1
        wanted = self._offsets if self._round % _FULL_EVERY == 0 else self._changed
        await self._commit(list(wanted), wait=False)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Commit and wait for the brokers. What cannot be committed is logged and stays to be committed."""
        wanted = list(self._offsets) if queues is None else [q for q in queues if q in self._offsets]
        await self._commit(wanted, wait=True)

    async def _commit(self, queues: list[MessageQueue], *, wait: bool) -> None:
        await asyncio.gather(*(self._commit_one(queue, wait) for queue in sorted(queues)))

    async def _commit_one(self, queue: MessageQueue, wait: bool) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # released meanwhile
        self._changed.discard(queue)
        try:
            await self._calls.commit(self._group, queue, offset, wait=wait)
        except OrbitError as error:
            if queue in self._offsets:
                self._changed.add(queue)
            log.warning("offset %d of %s is not committed yet: %s", offset, queue, error)


def offsets_path(host: Host, group: str, folder: str | None = None) -> str:
    """The file of a group.

    Args:
        folder: one client's, as ``~/.rocketmq_offsets/<client id>``. A Java client without an instance name
            is ``<its IP address>@DEFAULT``; the default here has the host name in place of the address.
    """
    base = folder or joined(host.home, ".rocketmq_offsets", f"{host.name}@{DEFAULT_INSTANCE}")
    return joined(base, group, "offsets.json")


class LocalOffsets:
    """Offsets in memory, written to one file.

    Args:
        path: see :func:`offsets_path`. Its content is loaded by :meth:`load`.
    """

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime = runtime
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._changed = False

    async def load(self) -> None:
        """Take up what an earlier run wrote; a file that cannot be read counts as none, with a warning."""
        # Java's client keeps the last version beside the file, and has a moment with only that one.
        for path in (self._path, self._path + ".bak"):
            try:
                data = await self._runtime.threads.run(self._runtime.files.read_bytes, path)
                self._offsets = dict(ResetOffsetBody.decode(data).offset_table)
                return
            except FileNotFoundError:
                continue
            except (OSError, WireError) as error:
                log.warning("offsets in %s cannot be read: %s", path, error)

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        return self._offsets.get(queue, -1)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Take note of progress (CR-12); ``increase_only=False`` for a reset."""
        known = self._offsets.get(queue, -1)
        if offset > known or (not increase_only and offset != known):
            self._offsets[queue] = offset
            self._changed = True

    def release(self, queue: MessageQueue) -> None:
        """Kept: the queue may come back, and only this file knows how far this member is."""

    def claim(self, queue: MessageQueue, committed: int) -> int:
        """The file is the only truth, and ``committed`` came from it."""
        return committed

    async def commit_periodically(self) -> None:
        """Write the file when something changed."""
        await self.commit()

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the file, whole; what cannot be written is logged and tried again next time."""
        if not self._changed:
            return
        self._changed = False
        data = ResetOffsetBody(dict(self._offsets)).encode(java_keys=True)
        try:
            await self._runtime.threads.run(self._write, data)
        except OSError as error:
            self._changed = True
            log.warning("offsets cannot be written to %s: %s", self._path, error)

    def _write(self, data: bytes) -> None:
        self._runtime.files.make_dirs(folder_of(self._path))
        self._runtime.files.write_atomic(self._path, data)
