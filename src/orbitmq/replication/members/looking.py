"""Sends each name server a heartbeat and a request for the members, round after round."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role, RoleState
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.members.fence import Fence
from orbitmq.replication.members.name_servers import NameServerQueries, NotAnsweredError, NotRunningError
from orbitmq.replication.members.view import MemberViews
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

# After the link to the master broke, the name servers are asked often: they notice the loss at the same time.
HURRY_S = 3.0
HURRY_PERIOD_S = 0.1


class Looking:
    """Sends the rounds, and passes the answers of name servers to ``fence`` and ``seen``.

    Args:
        address: where clients reach this broker.
        seen_more: called after each round.
        master_seen: called when a name server shows a master.

    Attributes:
        servers: the name servers.
    """

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        role: RoleState,
        queries: NameServerQueries,
        address: str,
        fence: Fence,
        seen: MemberViews,
        seen_more: Callable[[], object],
        master_seen: Callable[[], object],
    ) -> None:
        self._clock = clock
        self._config = config
        self._role = role
        self._queries = queries
        self._address = address
        self._fence = fence
        self._seen = seen
        self._seen_more = seen_more
        self._master_seen = master_seen
        self._now = asyncio.Event()
        self._servers_changed = asyncio.Event()
        # Name servers that have not answered the last request.
        self._unheard: set[str] = set()
        self._hurry_until = 0.0
        self._leaving = False
        self.servers: Sequence[str] = config.name_servers

    def name_servers_changed(self) -> None:
        """Use the new name servers after a change of namesrvAddr."""
        self.servers = self._config.name_servers
        self._fence.servers(self.servers)
        self._seen.servers(self.servers)
        self._servers_changed.set()

    def at_once(self) -> None:
        """Look at once, and often for some seconds, because something changed at a member."""
        self._hurry_until = self._clock.monotonic() + HURRY_S
        self._now.set()

    def leave(self) -> None:
        """Send no more heartbeats: this broker stops."""
        self._leaving = True

    async def run(self) -> None:
        """Send rounds of requests to all name servers until cancelled."""
        while True:
            self._servers_changed.clear()
            tasks = [asyncio.ensure_future(self._keep_looking_at(server)) for server in self.servers]
            try:
                await self._servers_changed.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Ask all name servers once for the members."""
        await asyncio.gather(*(self._members_at(server) for server in self.servers))

    async def _keep_looking_at(self, server: str) -> None:
        period_s = min(self._config.broker_heartbeat_interval_ms, self._config.member_period_ms) / 1000
        while True:
            begin = self._clock.monotonic()
            try:
                await self._round(server)
            except Exception:
                log.exception("looking at name server %s failed", server)
            now = self._clock.monotonic()
            hurry = now < self._hurry_until
            pause_s = max(0.01, begin + (HURRY_PERIOD_S if hurry else period_s) - now)
            try:
                async with asyncio.timeout(pause_s):
                    await self._now.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0)
            self._now.clear()

    async def _round(self, server: str) -> None:
        """Send one heartbeat and one request for the members; the answer to the heartbeat counts only
        together with the members (see Fence)."""
        sent_s = self._clock.monotonic()
        registered, members = await asyncio.gather(self._heartbeat(server), self._members_at(server))
        if members is not None and registered is not None:
            here = members.get(self._config.broker_id) == self._address
            self._fence.note_answer(server, sent_s, registered=registered and here)
        self._seen_more()

    async def _members_at(self, server: str) -> Mapping[int, str] | None:
        try:
            members = await self._queries.members(server)
        except NotRunningError:
            self._seen.refused(server, self._clock.monotonic())
            return None
        except NotAnsweredError as error:
            log.debug("no members from name server %s: %s", server, error)
            self._unheard.add(server)
            return None
        self._unheard.discard(server)
        self._seen.shown(server, members.addresses, self._clock.monotonic(), members.silent_s)
        if MASTER_ID in members.addresses:
            self._master_seen()
        return members.addresses

    async def _heartbeat(self, server: str) -> bool | None:
        if self._role.role is Role.PRE_ONLINE or self._leaving:
            return None  # PO-03
        if self._role.role is Role.FENCED and server in self._unheard:
            # The name server's answers may be lost while this broker's heartbeats arrive: the name server
            # would keep its route, and no slave would act.
            return None
        try:
            return await self._queries.heartbeat(server)
        except NotAnsweredError as error:
            log.debug("no answer to a heartbeat from name server %s: %s", server, error)
            return None
