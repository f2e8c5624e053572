"""Which received changes must be on the disk before they count as made here.

At a follower these are the tables needed to read messages, and users: without them a message that a quorum
has could outlive its topic, and a disabled user could come back with the follower's restart. These tables are
sent at once, so before the messages that follow the change.

At a leader these are the deliveries that its followers made as acting master. A leader killed without them on
its disk could not get them back: its followers' tables have become a copy of its own.
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
    """Whether any of the changes must be on the disk first."""
    return any(isinstance(action, Complete) or action.table in METADATA for action in actions)


class DurableTables:
    """Writes topics, groups, users and the ends of queues to the disk, and progress received from followers.

    Args:
        save: returns when the changes of some tables are on disk, those of the journal in one frame; raises
            OSError.

    Attributes:
        owes_progress: whether progress received from a follower may be missing on the disk.
    """

    def __init__(self, save: Callable[..., Awaitable[None]]) -> None:
        self._save = save
        self.owes_progress = False
        self._keeping = asyncio.Lock()
        self._limiter = LogLimiter(log)

    async def all(self) -> None:
        """Return when all received topics, groups, users, rules and ends of queues are on the disk.

        Raises:
            OSError: the disk refuses; the changes stay in memory, and the next call tries again.
        """
        try:
            await self._save(*METADATA)
        except OSError as error:
            why = error.strerror or error  # ``str(error)`` names another file with each try
            text = (
                f"the disk does not keep the topics, groups, users and ends of queues from the master: {why}"
            )
            raise OSError(text) from error

    async def tried(self) -> None:
        """As :meth:`all`, but a refusal of the disk is logged and not raised."""
        try:
            await self.all()
        except OSError as error:
            self._limiter.write(
                logging.ERROR,
                "not kept",
                "the disk does not keep the tables received from a master: %s",
                error,
            )

    async def progress(self) -> None:
        """Return when all progress received from followers is on the disk, or the disk has refused it."""
        # Several tasks may send tables to followers at a time: each waits for the disk, not only the first.
        async with self._keeping:
            if not self.owes_progress:
                return
            self.owes_progress = False
            try:
                await self._save(*PROGRESS)
            except OSError as error:
                self.owes_progress = True
                text = "the disk does not keep the progress received from followers: %s"
                self._limiter.write(logging.ERROR, "progress", text, error.strerror or error)
