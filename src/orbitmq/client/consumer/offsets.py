"""How far a group is on the queues of this client, and when the brokers are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue

log = logging.getLogger("orbitmq.client")

# Every so many rounds everything is committed, changed or not: a broker may have lost what it was told.
_FULL_EVERY = 12
_MAX_UNTOLD = 10_000


class Offsets(Protocol):
    """How far a group, or in broadcasting a member, is."""

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Take note of progress (CR-12); ``increase_only=False`` for a reset."""
        ...

    def release(self, queue: MessageQueue) -> None:
        """The queue is not ours any more."""
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
        self._untold: dict[MessageQueue, int] = {}
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
        """The queue is not ours any more. Progress that no broker could be told is kept for :meth:`claim`."""
        offset = self._offsets.pop(queue, None)
        if offset is not None and queue in self._changed and len(self._untold) < _MAX_UNTOLD:
            self._untold[queue] = offset
        self._changed.discard(queue)

    def claim(self, queue: MessageQueue, committed: int) -> int:
        """Where to begin with a queue: the committed offset, or our own progress that its broker missed.

        A broker that died and came back has lost what it was told in its last seconds, and what it could
        not be told; without this the messages of that time would come again.
        """
        untold = self._untold.pop(queue, -1)
        if untold > committed:
            self.update(queue, untold)
            return untold
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
