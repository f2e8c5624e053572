"""The end of a transaction (EndTransactionProcessor)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message import sysflag
from orbitmq.message.record import decode_record
from orbitmq.store import PutResult
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import EndTransactionRequest, ResumeCheckHalfMessageRequest

log = logging.getLogger(__name__)


class TransactionHandlers(Family):
    """Commit, roll-back, and a second life for discarded half messages."""

    def __init__(
        self,
        role: RoleState,
        lookup: MessageLookup,
        append: MessageAppend,
        transactions: Transactions,
        counters: Counters,
    ) -> None:
        self._role = role
        self._lookup = lookup
        self._append = append
        self._transactions = transactions
        self._counters = counters

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, connection: ServerConnection, command: Command) -> Answer:
        """Commit or roll back; an undecided producer gets no answer, as in RocketMQ."""
        header = EndTransactionRequest.from_ext(command.ext)
        if not (self._role.leads and self._role.takes_messages):
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {self._role.role.value}: its master ends transactions",
            )
        try:
            ended = self._transactions.end(header)
        except RemotingError as error:
            # Producers send it one-way, so this line is all that anybody sees.
            log.warning("transaction %s from %s: %s", header.msg_id, connection.remote_address, error)
            raise
        if ended and header.commit_or_rollback == sysflag.TRANSACTION_COMMIT:
            self._counters.handled_in += 1
        if command.is_oneway or not ended:
            return command.reply()
        return self._answer_when_marked(command, self._transactions.marked())

    async def _answer_when_marked(
        self, command: Command, marked: Awaitable[PutResult | RemotingError]
    ) -> Command:
        mark = await asyncio.shield(marked)  # others wait for the same one
        if isinstance(mark, RemotingError):
            raise mark
        return await self._answer_when_stored(command, mark)

    async def _answer_when_stored(self, command: Command, result: PutResult) -> Command:
        # A disk or replica that is late is a success too: the transaction has ended (sendFinalMessage).
        await self._append.settled(result)
        return command.reply()

    def resume(self, _connection: ServerConnection, command: Command) -> Answer:
        """Ask again about a message that was given up."""
        message_id = ResumeCheckHalfMessageRequest.from_ext(command.ext).msg_id or ""
        result = self._transactions.resume(decode_record(self._lookup.by_message_id(message_id)))
        return self._answer_when_stored(command, result)
