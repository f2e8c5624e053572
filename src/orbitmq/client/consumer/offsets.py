"""Offsets of a group on the queues of this client: committed to brokers, or kept in a local file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from orbitmq.client.core.broker_calls import BrokerCalls, QueueOffset
from orbitmq.errors import ClientStateError, OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.paths import folder_of, joined
from orbitmq.runtime.seam import HostFacts, Runtime
from orbitmq.transport.errors import ConnectError
from orbitmq.wire.bodies.stats import ResetOffsetBody
from orbitmq.wire.errors import WireError

log = logging.getLogger("orbitmq.client")

# Every so many rounds all offsets are committed, unchanged ones included: a broker may have lost commits.
_FULL_EVERY = 12
_MAX_UNCOMMITTED = 10_000
DEFAULT_INSTANCE = "DEFAULT"


class Progress(Protocol):
    """A queue's progress, which gives the offset to commit."""

    def committable(self) -> int:
        """The offset that may be committed now, -1 for none."""
        ...


class Offsets(Protocol):
    """The offsets of a group, or of a member in broadcasting."""

    def follow(self, queue: MessageQueue, progress: Progress | None) -> None:
        """Take this queue's offset from ``progress`` whenever it is needed; None ends that."""
        ...

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Note an offset (CR-12); ``increase_only=False`` for a reset."""
        ...

    def release(self, queue: MessageQueue, *, away: bool = False, made_at: str | None = None) -> None:
        """Release a queue that goes to another member, or with ``away`` a queue whose broker has left the
        routes.

        Args:
            made_at: the creation stamp of the queue's topic, see ``QueueOffset``.
        """
        ...

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Drop the kept offsets of these queues: other members have the queues, or this member continues from
        the offsets.
        """
        ...

    def kept(self, queue: MessageQueue) -> QueueOffset:
        """The kept offset of a queue that came back, if its broker may have missed the commit; else -1."""
        ...

    async def commit_periodically(self) -> None:
        """Commit all progress, or write it to the file, in a periodic round; a failure is logged."""
        ...

    async def commit_unasked(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Commit the progress of these queues, or of all, or write it to the file; a failure is logged."""
        ...

    async def commit(self) -> None:
        """Commit all progress, or write it to the file, at the user's call.

        Raises:
            OrbitError: the commit of a queue failed. The other queues are committed all the same; their
                failures are logged.
        """
        ...


class _Known:
    """Offsets in memory. The offset of a queue in work is computed when it is needed (CR-10)."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()
        self._followed: dict[MessageQueue, Progress] = {}

    def follow(self, queue: MessageQueue, progress: Progress | None) -> None:
        """Take this queue's offset from ``progress`` whenever it is needed; None ends that."""
        self.get(queue)
        if progress is None:
            self._followed.pop(queue, None)
        else:
            self._followed[queue] = progress

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        progress = self._followed.get(queue)
        if progress is not None:
            self.update(queue, progress.committable())
        return self._offsets.get(queue, -1)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Note progress (CR-12); ``increase_only=False`` for a reset."""
        known = self._offsets.get(queue, -1)
        if offset > known or (not increase_only and offset != known):
            self._offsets[queue] = offset
            self._changed.add(queue)

    def _look(self) -> None:
        """Note the progress of all followed queues."""
        for queue in self._followed:
            self.get(queue)


@dataclass(frozen=True, slots=True)
class _NotCommitted:
    """An offset whose commit failed."""

    queue: MessageQueue
    offset: int
    error: OrbitError


class OffsetStore(_Known):
    """Offsets in memory, committed to the brokers."""

    def __init__(self, calls: BrokerCalls, group: str) -> None:
        super().__init__()
        self._calls = calls
        self._group = group
        # Offsets of queues whose broker left the routes.
        self._uncommitted: dict[MessageQueue, QueueOffset] = {}
        # Queues whose last commit was not answered.
        self._unreached: set[MessageQueue] = set()
        self._round = 0

    def release(self, queue: MessageQueue, *, away: bool = False, made_at: str | None = None) -> None:
        """Forget a queue.

        Progress that could not be committed is :meth:`kept` while the broker is away, since no member has the
        queue in that time. If another member gets the queue, it receives the uncommitted messages again.
        """
        self.follow(queue, None)
        offset = self._offsets.pop(queue, None)
        missed = (away or queue in self._unreached) and queue in self._changed
        self._unreached.discard(queue)
        if missed and offset is not None and len(self._uncommitted) < _MAX_UNCOMMITTED:
            self._uncommitted[queue] = QueueOffset(offset, made_at)
        self._changed.discard(queue)

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Drop the kept offsets of these queues: this member has used the offsets, or others have the
        queues.
        """
        if self._uncommitted:
            for queue in queues:
                self._uncommitted.pop(queue, None)

    def kept(self, queue: MessageQueue) -> QueueOffset:
        """The offset at which the queue's broker went away; -1: it was committed, or another member has the
        queue.

        A broker that died and came back has lost the commits of its last seconds, and missed those made while
        it was away; without the kept offset the messages of that time would be delivered again.
        """
        return self._uncommitted.get(queue, QueueOffset(-1))

    async def commit_periodically(self) -> None:
        """Commit the changed offsets, one-way."""
        self._look()
        self._round += 1
        wanted = self._offsets if self._round % _FULL_EVERY == 0 else self._changed
        _log_failures(await self._commit(list(wanted), wait=False))

    async def commit_unasked(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Commit and wait for the brokers. A failed commit is logged, and repeated in a later round."""
        self._look()
        wanted = list(self._offsets) if queues is None else [q for q in queues if q in self._offsets]
        _log_failures(await self._commit(wanted, wait=True))

    async def commit(self) -> None:
        """Commit everything and wait for the brokers. The next commit repeats failed ones.

        Raises:
            OrbitError: the commit of a queue failed. The other queues are committed all the same; their
                failures are logged.
        """
        self._look()
        failures = await self._commit(list(self._offsets), wait=True)
        if failures:
            _log_failures(failures[1:])
            raise failures[0].error

    async def _commit(self, queues: list[MessageQueue], *, wait: bool) -> list[_NotCommitted]:
        ended = await asyncio.gather(*(self._commit_one(queue, wait) for queue in sorted(queues)))
        return [failure for failure in ended if failure is not None]

    async def _commit_one(self, queue: MessageQueue, wait: bool) -> _NotCommitted | None:
        offset = self._offsets.get(queue)
        if offset is None:
            return None  # released meanwhile
        self._changed.discard(queue)
        try:
            await self._calls.commit(self._group, queue, offset, wait=wait)
            self._unreached.discard(queue)
        except OrbitError as error:
            if queue in self._offsets:
                self._changed.add(queue)
                if isinstance(error, ConnectError | TopicNotFoundError):
                    self._unreached.add(queue)
            return _NotCommitted(queue, offset, error)
        return None


def _log_failures(failures: Iterable[_NotCommitted]) -> None:
    for failure in failures:
        log.warning("offset %d of %s is not committed yet: %s", failure.offset, failure.queue, failure.error)


class OffsetsByHand(OffsetStore):
    """Offsets that are committed only when the user calls commit."""

    def release(self, queue: MessageQueue, *, away: bool = False, made_at: str | None = None) -> None:
        """Forget a queue and its uncommitted progress."""
        super().release(queue)

    async def commit_periodically(self) -> None:
        """Does nothing: only the user's call commits."""

    async def commit_unasked(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Does nothing: only the user's call commits."""


def offsets_path(host: HostFacts, group: str, folder: str | None = None) -> str:
    """The path of a group's offset file.

    Args:
        folder: the folder of one client, such as ``~/.rocketmq_offsets/<client id>``. The id of a Java client
            without an instance name is ``<its IP address>@DEFAULT``; the default here has the host name in
            place of the address.
    """
    base = folder or joined(host.home, ".rocketmq_offsets", f"{host.name}@{DEFAULT_INSTANCE}")
    return joined(base, group, "offsets.json")


class LocalOffsets(_Known):
    """Offsets in memory, written to one file.

    Args:
        path: see :func:`offsets_path`. Its content is loaded by :meth:`load`.
    """

    def __init__(self, runtime: Runtime, path: str) -> None:
        super().__init__()
        self._runtime = runtime
        self._path = path
        # The task that locks the file. Its result is the function that releases the lock; None: the system
        # has no locks.
        self._lock: asyncio.Future[Callable[[], None] | None] | None = None
        # Serializes writes: one whose caller was cancelled might otherwise end after a later one.
        self._writing = runtime.threads.mutex()
        self._begun = 0
        self._written = 0

    async def load(self) -> None:
        """Read the offsets of an earlier run; a file that cannot be read counts as missing, with a warning.

        Raises:
            ClientStateError: another member, in this process or another one, keeps its progress in the file.
        """
        if self._lock is None:
            self._lock = asyncio.ensure_future(self._locked())
        try:
            # A cancellation does not stop the locking; close() releases the lock.
            await asyncio.shield(self._lock)
        except ClientStateError:
            self._lock = None
            raise
        # Java's client keeps the previous version beside the file; while it writes, only that version may
        # exist.
        for path in (self._path, self._path + ".bak"):
            try:
                data = await self._runtime.threads.run(self._runtime.files.read_bytes, path)
                self._offsets = dict(ResetOffsetBody.decode(data).offset_table)
                return
            except FileNotFoundError:
                continue
            except (OSError, WireError) as error:
                log.warning("offsets in %s cannot be read: %s", path, error)

    async def _locked(self) -> Callable[[], None] | None:
        try:
            return await self._runtime.threads.run(self._runtime.files.lock, self._path + ".lock")
        except BlockingIOError as error:
            raise ClientStateError(
                f"another broadcast member keeps its progress in {self._path}: each would overwrite the "
                "other's, and messages would be skipped after a restart; "
                "give each member an offsets_folder of its own"
            ) from error
        except OSError as error:
            log.warning("%s cannot be locked against a second member: %s", self._path, error)
        return None

    def release(self, queue: MessageQueue, *, away: bool = False, made_at: str | None = None) -> None:
        """Keep the offset: the queue may come back, and only this file holds this member's progress."""
        self.follow(queue, None)

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Do nothing: no other member has these queues."""

    def kept(self, queue: MessageQueue) -> QueueOffset:
        """Always -1: only the file counts."""
        return QueueOffset(-1)

    async def commit_periodically(self) -> None:
        """Write the file if an offset changed."""
        await self.commit_unasked()

    async def commit_unasked(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the whole file; a failure is logged, and the next round tries again."""
        try:
            await self.commit()
        except OrbitError as error:
            log.warning("%s", error)

    async def commit(self) -> None:
        """Write the whole file; after a failure the next save tries again.

        Raises:
            OrbitError: the file cannot be written.
        """
        self._look()
        if not self._changed:
            return
        changed, self._changed = self._changed, set()
        data = ResetOffsetBody(dict(self._offsets)).encode(java_keys=True)
        self._begun += 1
        try:
            await self._runtime.threads.run(self._write, data, self._begun)
        except OSError as error:
            self._changed |= changed
            raise OrbitError(
                f"offsets cannot be written to {self._path}: {error}; "
                "free or correct that place, or name another one by offsets_folder"
            ) from error
        except asyncio.CancelledError:
            # when the consumer closes: the write may not have begun, so close() writes these offsets again
            self._changed |= changed
            raise

    async def close(self) -> None:
        """Release the file, so that another member may use it."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with contextlib.suppress(ClientStateError):  # another member holds the file's lock
            if (release := await lock) is not None:
                release()

    def _write(self, data: bytes, number: int) -> None:
        with self._writing:
            if number < self._written:
                return
            self._runtime.files.make_dirs(folder_of(self._path))
            self._runtime.files.write_atomic(self._path, data)
            self._written = number
