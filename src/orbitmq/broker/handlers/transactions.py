"""The end of a transaction (EndTransactionProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, reply_after
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.transactions.ending import EndingTransactions
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message.record import decode_record
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.store import PutResult
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import EndTransactionRequest, ResumeCheckHalfMessageRequest

log = logging.getLogger(__name__)


class TransactionHandlers(HandlerFamily):
    """Commit, roll-back, and new checks for discarded half messages."""

    def __init__(
        self,
        lookup: MessageLookup,
        append: MessageAppend,
        transactions: Transactions,
        ending: EndingTransactions,
    ) -> None:
        self._lookup = lookup
        self._append = append
        self._transactions = transactions
        self._ending = ending
        self._limiter = LogLimiter(log)

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, connection: ServerConnection, command: Command) -> Answer:
        """Commit or roll back; a producer without a decision gets no answer, as in RocketMQ."""
        header = EndTransactionRequest.from_ext(command.ext)
        try:
            ended = self._ending.end(header)
        except RemotingError as error:
            # Producers send the request one-way, so the refusal is only in the log.
            text = "transaction %s from %s: %s"
            self._limiter.write(
                logging.WARNING,
                "transaction not ended",
                text,
                header.msg_id,
                connection.remote_address,
                error,
            )
            raise
        if command.is_oneway or not ended:
            return command.reply()
        return reply_after(self._ending.safe(), command)

    def resume(self, _connection: ServerConnection, command: Command) -> Answer:
        """Check a discarded half message again."""
        message_id = ResumeCheckHalfMessageRequest.from_ext(command.ext).msg_id or ""
        result = self._transactions.resume(decode_record(self._lookup.by_message_id(message_id)))
        return self._answer_when_stored(command, result)

    async def _answer_when_stored(self, command: Command, result: PutResult) -> Command:
        await self._append.settled(result)
        return command.reply()
