"""Two brokers with the same name and id: the second does not start; if both run, one gives way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.message.numbers import whole_number
from orbitmq.replication.ha_handlers import TERM
from orbitmq.replication.members.name_servers import NameServerQueries, NotAnsweredError
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 1000


class DuplicateIds:
    """Looks for another broker with this one's id.

    Args:
        address: where clients reach this broker.
    """

    def __init__(
        self, config: BrokerConfig, client: RemotingClient, queries: NameServerQueries, address: str
    ) -> None:
        self._config = config
        self._client = client
        self._queries = queries
        self._address = address
        self._met: str | None = None

    async def refuse_a_taken_id(self, servers: Iterable[str]) -> None:
        """Return if no broker with this broker's name and id answers.

        Raises:
            StartError: such a broker answers.
        """

        async def one(server: str) -> None:
            try:
                members = await self._queries.members(server)
            except NotAnsweredError:
                return
            holder = members.addresses.get(self._config.broker_id)
            if holder is not None and holder != self._address and await self._term_of(holder) is not None:
                raise StartError(
                    f"the broker at {holder} is {self._config.broker_name} with brokerId "
                    f"{self._config.broker_id} already: stop it, or give this one another brokerId"
                )

        await asyncio.gather(*(one(server) for server in servers))

    async def gone(self) -> bool:
        """Whether the broker that this one gave way to is gone."""
        if self._met is None:
            return True
        if await self._term_of(self._met) is not None:
            return False
        log.warning("the other broker id %d at %s is gone", self._config.broker_id, self._met)
        self._met = None
        return True

    async def gives_way(self, rival: str, term: int) -> bool:
        """Whether this broker, in ``term``, gives way: ``rival`` has a higher term or, in the same term, the
        higher address."""
        theirs = await self._term_of(rival)
        if theirs is None or (term, self._address) > (theirs, rival):
            return False
        log.error(
            "two brokers are %s id %d: %s and %s. This one isolates itself; stop one of them",
            self._config.broker_name, self._config.broker_id, self._address, rival,
        )  # fmt: skip
        self._met = rival
        return True

    async def _term_of(self, address: str) -> int | None:
        """The term of another broker, 0 for RocketMQ's brokers; ``None``: it does not answer."""
        try:
            answer = await self._client.request(
                address, ExchangeBrokerHaInfoRequest().command(), ASK_TIMEOUT_MS
            )
        except TransportError:
            return None
        return whole_number(answer.ext.get(TERM, "")) or 0
