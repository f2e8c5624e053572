"""Calls the user's code with the queues that a member of a group gained or lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.runtime.seam import Threads
from orbitmq.runtime.tasks import is_async

log = logging.getLogger("orbitmq.client")

# Called with the queues that were gained or lost; a plain function runs in a thread.
QueuesChanged: TypeAlias = Callable[[list[MessageQueue]], Awaitable[object] | object]


class AssignmentWatch:
    """Compares the queues of a member with those that the user's callbacks last received.

    Args:
        assigned: called with queues whose messages come from now on.
        revoked: called with queues that this member has lost; their offsets are committed.
    """

    def __init__(
        self, group: str, assigned: QueuesChanged | None, revoked: QueuesChanged | None, threads: Threads
    ) -> None:
        self._group = group
        self._assigned = assigned
        self._revoked = revoked
        self._threads = threads
        self._known: set[MessageQueue] = set()
        # The callbacks of one change end before those of the next one begin.
        self._telling = asyncio.Lock()

    @property
    def wanted(self) -> bool:
        """Whether there is a callback at all."""
        return self._assigned is not None or self._revoked is not None

    async def tell(self, queues: Callable[[], Iterable[MessageQueue]]) -> None:
        """Call the callbacks with the changes since the last call; errors of a callback are logged.

        Args:
            queues: gives the queues of this member.
        """
        async with self._telling:
            now = {queue for queue in queues() if not queue.topic.startswith(RETRY_PREFIX)}
            before, self._known = self._known, now
            await self._call("on_revoked", self._revoked, before - now)
            await self._call("on_assigned", self._assigned, now - before)

    async def _call(self, name: str, callback: QueuesChanged | None, queues: set[MessageQueue]) -> None:
        if callback is None or not queues:
            return
        try:
            if is_async(callback):
                await callback(sorted(queues))  # type: ignore[misc]
            else:
                await self._threads.run(callback, sorted(queues))
        except Exception:
            log.exception("%s of group %s failed", name, self._group)
