"""A slave reads the timers in its master's log, so that it can deliver as soon as it leads."""

from __future__ import annotations

import asyncio
import logging

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role
from orbitmq.broker.timers.pending import BrokenChainError, PendingTimers
from orbitmq.broker.timers.progress_table import ProgressTable
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25


class TimerFollower(Component):
    """Keeps the timer log of a slave at the end of its commit log, and delivers nothing.

    Without it a slave would read its whole timer topic when it takes the lead: a million messages in 15 s.
    """

    name = "timers of the master"
    runs_as = frozenset({Role.SLAVE})

    def __init__(
        self, clock: Clock, config: BrokerConfig, pending: PendingTimers, written: ProgressTable
    ) -> None:
        self._clock = clock
        self._config = config
        self._pending = pending
        self._written = written

    async def start(self) -> None:
        if self._config.timer_wheel_enable:
            self._every(self._clock, LOOK_EVERY_S, self._look, first_s=0.0)

    async def end_work(self) -> None:
        await super().end_work()
        self._pending.pause()

    async def _look(self) -> None:
        """Take the timers that have arrived, and drop those that the master has delivered."""
        pending = self._pending
        try:
            if not pending.is_current:
                for _ in pending.restore(self._written.load()):
                    await asyncio.sleep(0)
            while pending.behind:
                pending.take()
                await asyncio.sleep(0)
            pending.forget(self._written.saved)
        except OSError as error:
            log.error("the disk refused the timer log, it is tried again: %s", error)
        except BrokenChainError as error:
            log.error("%s: it is made again from the timer topic", error)
            pending.rebuild(self._written.load())
