"""Which client of an orderly group holds which queue (RebalanceLockManager)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from orbitmq.broker.change_feed import LOCKS, ChangeFeed, FedTable
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Clock

LOCK_LIVES_MS = 60_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Queue locks by group. A lock that is not renewed for a minute is free."""

    def __init__(self, clock: Clock, feed: ChangeFeed) -> None:
        self._clock = clock
        self._feed = feed
        feed.register(
            LOCKS,
            FedTable(
                lambda lock: [lock.client_id, lock.renewed_ms],
                self._apply,
                items=self._items,
                is_news=lambda key, _: not self._is_held(key),
            ),
        )
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock or renew; the queues that the client now holds."""
        now = self._clock.now_ms()
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.renewed_ms > LOCK_LIVES_MS:
                locks[queue] = _Lock(client_id, now)
                self._feed.changed(LOCKS, _key(group, queue), locks[queue])
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back the queues that the client holds; others stay as they are."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._feed.changed(LOCKS, _key(group, queue), None)
        if not locks:
            self._groups.pop(group, None)

    def any_held(self, group: str) -> bool:
        """Whether any lock of the group is alive: the group consumes in order (behaviour SB-16)."""
        now = self._clock.now_ms()
        return any(now - lock.renewed_ms <= LOCK_LIVES_MS for lock in self._groups.get(group, {}).values())

    def _items(self) -> list[tuple[str, _Lock]]:
        return [
            (_key(group, queue), lock)
            for group, locks in self._groups.items()
            for queue, lock in locks.items()
        ]

    def _is_held(self, key: str) -> bool:
        group, queue = _of_key(key)
        lock = self._groups.get(group, {}).get(queue)
        return lock is not None and self._clock.now_ms() - lock.renewed_ms <= LOCK_LIVES_MS

    def _apply(self, key: str, value: list[str | int] | None) -> None:
        group, queue = _of_key(key)
        if value is None:
            locks = self._groups.get(group, {})
            locks.pop(queue, None)
            if not locks:
                self._groups.pop(group, None)
            self._feed.changed(LOCKS, key, None)
        else:
            lock = self._groups.setdefault(group, {})[queue] = _Lock(str(value[0]), int(value[1]))
            self._feed.changed(LOCKS, key, lock)


def _key(group: str, queue: MessageQueue) -> str:
    """Names come from the wire and may hold anything: JSON keeps them apart."""
    return msgspec.json.encode((group, queue.topic, queue.broker_name, queue.queue_id)).decode()


def _of_key(key: str) -> tuple[str, MessageQueue]:
    """Group and queue of a key."""
    group, topic, broker, queue_id = msgspec.json.decode(key, type=tuple[str, str, str, int])
    return group, MessageQueue(topic, broker, queue_id)
