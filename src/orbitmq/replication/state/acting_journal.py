"""Writes the progress of an acting master to the disk soon: its own log has no record of its deliveries."""

from __future__ import annotations

import logging

from orbitmq.broker.change_feed import ACTED, PROGRESS
from orbitmq.broker.component import Component
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.role import Role
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.2
# A disk that refuses is reported once in this time, however often writing is tried.
COMPLAIN_EVERY_S = 60.0


class ActingJournal(Component):
    """Writes progress into the change journal, so that an acting master that is killed repeats few
    deliveries."""

    name = "journal of the acting master"
    runs_as = frozenset({Role.ACTING_MASTER})

    def __init__(self, clock: Clock, persistence: Persistence) -> None:
        self._clock = clock
        self._persistence = persistence
        self._limiter = LogLimiter(log, COMPLAIN_EVERY_S)

    async def start(self) -> None:
        self._every(self._clock, PERIOD_SECONDS, self.write)

    async def stop(self) -> None:
        await self.end_work()
        await self.write()

    async def write(self) -> None:
        """Bring the changes to the disk; does nothing when there are none."""
        try:
            await self._persistence.flush(ACTED, *PROGRESS)
        except OSError as error:
            text = "the progress of deliveries is not on the disk, it is tried again: %s"
            self._limiter.write(logging.ERROR, "refused", text, error)
