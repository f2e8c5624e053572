"""What messages need to be read: it is on a follower's disk before it counts as made there.

Else a message that a quorum has outlives its topic. It is told at once, so before the messages that come
after it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from orbitmq.broker.change_feed import FORBIDDEN, GROUPS, QUEUE_ENDS, TOPICS
from orbitmq.replication.state.inbox import Action, Complete
from orbitmq.runtime.log_limiter import LogLimiter

log = logging.getLogger(__name__)

# Ends of queues come behind the topics that have them.
METADATA = (TOPICS, GROUPS, FORBIDDEN, QUEUE_ENDS)


def has_metadata(actions: Iterable[Action]) -> bool:
    """Whether any of the changes has to be on the disk."""
    return any(isinstance(action, Complete) or action.table in METADATA for action in actions)


class Kept:
    """Brings topics, groups and the ends of queues to the disk.

    Args:
        save: returns when the changes of a table are on disk; raises OSError.
    """

    def __init__(self, save: Callable[[str], Awaitable[None]]) -> None:
        self._save = save
        self._limiter = LogLimiter(log)

    async def all(self) -> None:
        """Return when all that were told are on the disk.

        Raises:
            OSError: it refuses; they stay in memory, and the next call tries again.
        """
        for table in METADATA:
            try:
                await self._save(table)
            except OSError as error:
                why = error.strerror or error  # each try names another file
                raise OSError(f"the disk does not keep the {table} that were told: {why}") from error

    async def tried(self) -> None:
        """As :meth:`all`; that the disk refuses is one line in the log."""
        try:
            await self.all()
        except OSError as error:
            self._limiter.write(logging.ERROR, "not kept", "%s", error)
