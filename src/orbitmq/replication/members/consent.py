"""Finds out later that a member has stopped its background work, if it did not agree during pre-online.

RocketMQ's slaves do not agree when their master announces its return (906), and go on until a name server
shows them the master. Then their runtime info shows that they are idle, and their deliveries can be
requested.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from orbitmq.replication.members.ports import ExchangeError, TableExchange
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 1000


class LateConsent:
    """Asks the members that did not agree in pre-online. They run RocketMQ; OrbitMQ's brokers always agree.

    Attributes:
        missing: whether this broker went online without the consent of all members, and has not led since.
        idle: whether all members are idle now, and their last deliveries are known here.
    """

    def __init__(self, client: RemotingClient, tables: TableExchange) -> None:
        self._client = client
        self._tables = tables
        self._silent: Mapping[int, str] | None = None
        self._met: frozenset[int] = frozenset()
        self.missing = False
        self.idle = False

    def went_online(self, silent: Mapping[int, str] | None, met: frozenset[int]) -> None:
        """Note the end of pre-online.

        Args:
            silent: the members that have not agreed, by id; ``None``: the members are not known.
            met: the members met in pre-online while others were missing. Their consent does not cover a
                missing member: wait until its right to lead has run out.
        """
        self.missing, self.idle = silent is None or bool(silent), False
        self._silent, self._met = None if met else silent, met

    def given(self) -> None:
        """Note that this broker leads, so that no consent is missing."""
        self.missing = self.idle = False
        self._met = frozenset()

    def covers(self, others: Iterable[int]) -> bool:
        """Whether all these members were asked in pre-online; members that appear later must still be
        asked."""
        return self.missing or bool(self._met and self._met.issuperset(others))

    async def check_idle(self, *, waits: bool) -> None:
        """Check whether the members are :attr:`idle`, if nothing else keeps this broker from leading."""
        self.idle = waits and await self._all_idle()

    async def _all_idle(self) -> bool:
        for broker_id, address in (self._silent or {}).items():
            try:
                if not await self._is_idle(address):
                    return False
                await self._tables.take(broker_id, address)
            except (TransportError, ExchangeError, WireError) as error:
                log.info("what %s delivered last is not known yet: %s", address, error)
                return False
        return self._silent is not None

    async def _is_idle(self, address: str) -> bool:
        answer = await self._client.request(
            address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), ASK_TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        told = KVTable.decode(answer.body).table
        # A member of OrbitMQ that did not agree may be cut off and still lead: only its own fence ends that.
        return "brokerRoleNow" not in told and told.get("brokerActive") == "false"
