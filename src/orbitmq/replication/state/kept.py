"""What is on the disk before it counts as made here.

What messages need to be read, at a follower: else a message that a quorum has outlives its topic. It is told
at once, so before the messages that come after it.

And what followers had done, at a leader: else one that is killed then has no word of it, and they have none
either, for their tables became its.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from orbitmq.broker.change_feed import METADATA, PROGRESS
from orbitmq.replication.state.inbox import Action, Complete
from orbitmq.runtime.log_limiter import LogLimiter

log = logging.getLogger(__name__)


def has_metadata(actions: Iterable[Action]) -> bool:
    """Whether any of the changes has to be on the disk."""
    return any(isinstance(action, Complete) or action.table in METADATA for action in actions)


class DurableTables:
    """Writes topics, groups and the ends of queues to the disk, and progress received from followers.

    Args:
        save: returns when the changes of some tables are on disk, those of the journal in one frame; raises
            OSError.

    Attributes:
        owes_progress: whether progress received from a follower may not be on the disk yet.
    """

    def __init__(self, save: Callable[..., Awaitable[None]]) -> None:
        self._save = save
        self.owes_progress = False
        self._keeping = asyncio.Lock()
        self._limiter = LogLimiter(log)

    async def all(self) -> None:
        """Return when all received topics, groups and ends of queues are on the disk.

        Raises:
            OSError: the disk refuses; the changes stay in memory, and the next call tries again.
        """
        try:
            await self._save(*METADATA)
        except OSError as error:
            why = error.strerror or error  # each try names another file
            text = f"the disk does not keep the topics, groups and ends of queues from the master: {why}"
            raise OSError(text) from error

    async def tried(self) -> None:
        """As :meth:`all`; when the disk refuses, one line is logged."""
        try:
            await self.all()
        except OSError as error:
            self._limiter.write(logging.ERROR, "not kept", "%s", error)

    async def progress(self) -> None:
        """Return when all progress that followers told is on the disk, or that has refused it."""
        # Several followers are told side by side: each waits for the disk, not the first one alone.
        async with self._keeping:
            if not self.owes_progress:
                return
            self.owes_progress = False
            try:
                await self._save(*PROGRESS)
            except OSError as error:
                self.owes_progress = True
                text = "the disk does not keep the progress that followers told: %s"
                self._limiter.write(logging.ERROR, "progress", text, error.strerror or error)
