"""With three replicas or more, a slave that acted hands its deliveries to the slave that acts next.

Slaves are linked with their master only. So a slave that is about to act asks the other living slaves, and a
slave that acted lets them ask before it stops. A killed slave cannot be asked: then the next one repeats its
deliveries, until their master is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from orbitmq.broker.role import Role, RoleState
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.members.ports import ActedExchange, ExchangeError
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.command import Command
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

log = logging.getLogger(__name__)

# In a request of one slave to another: "send your deliveries as acting master", or "ask me for mine, I am
# stopping". RocketMQ's brokers ignore the fields, and answer without a body.
ASKS = "orbitmqAsksActed"
GOES = "orbitmqGoes"
# The time limit of the request: a slave that acts late is worse than one that delivers something again.
LIMIT_S = 0.3


class OtherSlaves:
    """Exchanges deliveries with the other slaves.

    Args:
        tables: see :class:`ActedExchange`.
        living: returns the other living members, by id.
    """

    def __init__(
        self,
        client: RemotingClient,
        role: RoleState,
        address: str,
        tables: ActedExchange,
        living: Callable[[], Awaitable[Mapping[int, str]]],
    ) -> None:
        self._client = client
        self._role = role
        self._address = address
        self._tables = tables
        self._living = living

    async def ask(self, members: Mapping[int, str]) -> None:
        """Take over deliveries that this broker lacks from the living slaves among ``members``. Takes a
        limited time."""
        await self._each(members, self._take)

    async def go(self, members: Mapping[int, str]) -> None:
        """Before a clean stop: let the slaves among ``members`` take the deliveries of this broker that no
        master has. Takes a limited time."""
        if self._tables.acted():
            await self._each(members, lambda address: self._request(address, GOES, self._address))

    async def answer(self, question: Command) -> bytes:
        """The body of the answer to another slave's request; empty for all other requests."""
        goes = question.ext.get(GOES)
        if goes and self._role.role is Role.SLAVE and goes in (await self._living()).values():
            await self._within_limit(goes, self._take)
        return self._tables.acted() if ASKS in question.ext else b""

    async def _each(self, members: Mapping[int, str], work: Callable[[str], Awaitable[object]]) -> None:
        slaves = [address for broker_id, address in members.items() if broker_id != MASTER_ID]
        await asyncio.gather(*(self._within_limit(address, work) for address in slaves))

    async def _within_limit(self, address: str, work: Callable[[str], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                await work(address)
        except (TransportError, ExchangeError, LinkError, TimeoutError) as error:
            log.warning(
                "changes that a slave made while it acted are not exchanged between %s and this broker: %r",
                address,
                error,
            )

    async def _take(self, address: str) -> None:
        told = await self._request(address, ASKS, "true")
        if told:
            await self._tables.apply_acted(address, told)
            log.info("received what the slave at %s changed while it acted", address)

    async def _request(self, address: str, field: str, value: str) -> bytes:
        question = ExchangeBrokerHaInfoRequest().command()
        question.ext[field] = value
        answer = await self._client.request(address, question, int(LIMIT_S * 1000))
        return bytes(answer.body)
