"""Which client of an orderly group holds which queue (RebalanceLockManager).

The locks are on the disk too. They count after a start if no other broker of the name can have granted any
meanwhile. Then each lock found on the disk holds as long as a client may trust it, and is renewed as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from orbitmq.broker.change_feed import LOCKS, LOCKS_COMPLETE, ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import file_text, quoted
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Clock

LOCK_LIVES_MS = 60_000
# How long a client trusts a lock after it was granted or renewed (LK-02).
TRUSTED_MS = 30_000


@dataclass(slots=True)
class _Lock:
    """One lock.

    Attributes:
        renewed_s: on the monotonic clock, so that a step of the wall clock gives no queue to a second client.
        shared: whether every broker that could take over has the lock too, see ``replication.members``.
    """

    client_id: str
    renewed_s: float
    shared: bool = False


class QueueLocks:
    """Queue locks by group. A lock that is not renewed for a minute is free.

    Args:
        alone: whether no other broker of this name ever grants locks; if others may, the locks on the disk do
            not count.

    Attributes:
        complete: whether the table on the disk has each lock that a client may trust. This value is on the
            disk too: ``False`` for a broker that was a slave, or whose wait for older locks has not ended.
    """

    def __init__(self, clock: Clock, feed: ChangeFeed, *, alone: bool = False) -> None:
        self._clock = clock
        self._feed = feed
        self.alone = alone
        self.complete = False
        feed.register(
            LOCKS,
            FedTable(
                # Other machines' clocks may differ, so the lock's age is sent.
                lambda lock: [lock.client_id, round(self._age_ms(lock))],
                self._apply,
                items=self._items,
                is_news=lambda key, _: not self._is_held(key),
                restore=self._restore_lock,
            ),
        )
        feed.register(LOCKS_COMPLETE, FedTable(bool, lambda _key, value: self.note_complete(bool(value))))
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues, or renew their locks; returns the queues that the client now holds."""
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            alive = lock is not None and self._is_alive(lock)
            if lock is None or lock.client_id == client_id or not alive:
                # A client that comes back after its lock ran out is treated like a new one.
                shared = lock is not None and lock.client_id == client_id and alive and lock.shared
                locks[queue] = _Lock(client_id, self._clock.monotonic(), shared)
                self._feed.changed(LOCKS, _key(group, queue), locks[queue])
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock those of the queues that the client holds; other clients' locks stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._feed.changed(LOCKS, _key(group, queue), None)
        if not locks:
            self._groups.pop(group, None)

    def any_held(self, group: str) -> bool:
        """Whether any lock of the group has not run out: the group consumes in order (behaviour SB-16)."""
        return any(self._is_alive(lock) for lock in self._groups.get(group, {}).values())

    def note_complete(self, complete: bool) -> None:
        """Note whether the table, as it is now, has each lock that a client may trust."""
        if complete is not self.complete:
            self.complete = complete
            self._feed.changed(LOCKS_COMPLETE, "", complete or None)

    # -- for the brokers that share the table ----------------------------------------------------------

    def all_shared(self, group: str, queues: Iterable[MessageQueue]) -> bool:
        """Whether each broker that could take over has the locks of these queues."""
        locks = self._groups.get(group, {})
        return all(queue in locks and locks[queue].shared for queue in queues)

    def share(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Note that each broker that could take over has the locks; returns the queues that the client still
        holds."""
        locks = self._groups.get(group, {})
        held = {queue for queue in queues if queue in locks and locks[queue].client_id == client_id}
        for queue in held:
            locks[queue].shared = True
        return held

    def prolong(self, lives_s: float, ended_s: float) -> None:
        """Let each lock live at least ``lives_s`` more, also a lock that ended up to ``ended_s`` ago."""
        least_s = self._clock.monotonic() - LOCK_LIVES_MS / 1000 + lives_s
        for locks in self._groups.values():
            for lock in locks.values():
                if self._age_ms(lock) <= LOCK_LIVES_MS + ended_s * 1000:
                    lock.renewed_s = max(lock.renewed_s, least_s)

    # -- the table -------------------------------------------------------------------------------------

    def _age_ms(self, lock: _Lock) -> float:
        return (self._clock.monotonic() - lock.renewed_s) * 1000

    def _is_alive(self, lock: _Lock) -> bool:
        return self._age_ms(lock) <= LOCK_LIVES_MS

    def _items(self) -> Iterator[tuple[str, _Lock]]:
        # A large table is read in slices, and may change between two of them.
        for group in list(self._groups):
            for queue in list(self._groups.get(group, {})):
                lock = self._groups.get(group, {}).get(queue)
                if lock is not None:
                    yield _key(group, queue), lock

    def _is_held(self, key: str) -> bool:
        group, queue = _of_key(key)
        lock = self._groups.get(group, {}).get(queue)
        return lock is not None and self._is_alive(lock)

    def _apply(self, key: str, value: list[str | int] | None) -> None:
        group, queue = _of_key(key)
        if value is None:
            locks = self._groups.get(group, {})
            locks.pop(queue, None)
            if not locks:
                self._groups.pop(group, None)
            self._feed.changed(LOCKS, key, None)
        else:
            renewed_s = self._clock.monotonic() - int(value[1]) / 1000
            lock = self._groups.setdefault(group, {})[queue] = _Lock(str(value[0]), renewed_s, shared=True)
            self._feed.changed(LOCKS, key, lock)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``queueLocks.json``, piece by piece."""
        return file_text(
            [("complete", "true" if self.complete else "false"), ("locks", self._lines_of_file())]
        )

    def _lines_of_file(self) -> Iterator[tuple[str, str]]:
        for key, lock in self._items():
            if self._is_alive(lock):
                value = msgspec.json.encode([lock.client_id, round(self._age_ms(lock))])
                yield quoted(key), value.decode()

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``queueLocks.json``."""
        self.complete = bool(content.get("complete"))
        for key, value in (content.get("locks") or {}).items():
            self._restore_lock(key, value)

    def _restore_lock(self, key: str, value: list[str | int] | None) -> None:
        """Restore a lock of an earlier run for the longest time that a client may trust it from now on."""
        if self.alone:
            ended = value is None or int(value[1]) > LOCK_LIVES_MS
            self._apply(key, None if value is None or ended else [value[0], LOCK_LIVES_MS - TRUSTED_MS])


def _key(group: str, queue: MessageQueue) -> str:
    """The key of a lock. JSON keeps its names apart: they come from requests and may have any characters."""
    return msgspec.json.encode((group, queue.topic, queue.broker_name, queue.queue_id)).decode()


def _of_key(key: str) -> tuple[str, MessageQueue]:
    """Group and queue of a key."""
    group, topic, broker, queue_id = msgspec.json.decode(key, type=tuple[str, str, str, int])
    return group, MessageQueue(topic, broker, queue_id)
