"""The request codes of replication: where a master's HA port is, and the state of its followers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.role import RoleState
from orbitmq.replication.link.stream import STREAM_VERSION
from orbitmq.replication.status import ReplicationStatus
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.broker import (
    ExchangeBrokerHaInfoRequest,
    ExchangeBrokerHaInfoResponse,
    ResetMasterFlushOffsetRequest,
)

ActedAnswer: TypeAlias = Callable[[Command], Awaitable[bytes]]
Pushed: TypeAlias = Callable[[ExchangeBrokerHaInfoRequest], Awaitable[bool]]
# A field of the answer to a master's announcement (906): whether this broker still leads. RocketMQ's brokers
# neither set nor read it.
LEADS = "orbitmqLeads"
# A field of the answer to a query (906 without a header): the state version of this broker's tables.
TERM = "orbitmqTerm"
# A field of the same answer: the end of this broker's log, flushed or not.
LOG_END = "orbitmqLogEnd"


class HaHandlers(HandlerFamily):
    """Answers the requests of this broker's group and of administrators.

    Args:
        address: where clients reach this broker.
        ha_address: returns where followers reach this broker.
        pushed: called with a master's announcement (906); returns whether this broker leads afterwards.
        term: gives the state version of this broker's tables.
        acted: returns the answer to a slave that requests this broker's deliveries as acting master.
    """

    def __init__(
        self,
        role: RoleState,
        store: MessageStore,
        status: ReplicationStatus,
        address: str,
        ha_address: Callable[[], str],
        pushed: Pushed,
        term: Callable[[], int],
        acted: ActedAnswer,
    ) -> None:
        self._role = role
        self._store = store
        self._status = status
        self._address = address
        self._ha_address = ha_address
        self._pushed = pushed
        self._term = term
        self._acted = acted

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_flush_offset,
        }

    async def exchange(self, _connection: ServerConnection, command: Command) -> Command:
        """Answer request 906: without a header it is a query, with one a master's announcement
        (AdminBrokerProcessor)."""
        header = ExchangeBrokerHaInfoRequest.from_ext(command.ext)
        if header.master_ha_address is not None:
            return await self._handle_announcement(header, command)
        answer = ExchangeBrokerHaInfoResponse(
            master_ha_address=self._ha_address(),
            master_flush_offset=self._store.flushed_offset,
            master_address=self._address,
            orbitmq_stream=STREAM_VERSION,
        ).reply_to(command)
        answer.ext |= {TERM: str(self._term()), LOG_END: str(self._store.max_commit_log_offset)}
        answer.body = await self._acted(command)
        return answer

    async def _handle_announcement(self, header: ExchangeBrokerHaInfoRequest, command: Command) -> Command:
        leads = await self._pushed(header)
        return command.reply(ext={LEADS: "true" if leads else "false"})

    def status(self, _connection: ServerConnection, command: Command) -> Answer:
        """The state of replication."""
        return command.reply(body=self._status.table().encode())

    def reset_flush_offset(self, _connection: ServerConnection, command: Command) -> Answer:
        """Note the flushed end of the master's log, as an administrator sends it; only on a slave."""
        header = ResetMasterFlushOffsetRequest.from_ext(command.ext)
        if not self._role.takes_messages:
            self._status.master_flush_offset = header.master_flush_offset
        return command.reply()
