"""Lets a slave without acting masters learn of its master before its next registration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import EVERY_ROLE, TAKES_MESSAGES
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.runtime.seam import Clock


class MasterFinder(Component):
    """Requests the members each second while there is no link; RocketMQ's slave waits up to 30 s (rows NR-14,
    PO-15).

    Args:
        members: gives the other living brokers of this name, by id.
    """

    name = "master finder"
    runs_as = EVERY_ROLE - TAKES_MESSAGES

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        ha_client: HaClient,
        members: Callable[[], Awaitable[Mapping[int, str]]],
    ) -> None:
        self._clock = clock
        self._config = config
        self._ha_client = ha_client
        self._members = members

    async def start(self) -> None:
        # With acting masters, membership looks for the master.
        if not self._config.enable_slave_acting_master:
            self._every(self._clock, self._config.member_period_ms / 1000, self._look)

    async def _look(self) -> None:
        if self._ha_client.connected:
            return
        master = (await self._members()).get(MASTER_ID)
        if master is not None and master != self._ha_client.master_address:
            self._ha_client.follow(self._config.ha_master_address or None, master)
