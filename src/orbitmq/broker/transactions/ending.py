"""Ends transactions for producers of any protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message import sysflag
from orbitmq.store import PutResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import EndTransactionRequest


class EndingTransactions:
    """Commits and rolls back at the broker that leads."""

    def __init__(
        self, role: RoleState, append: MessageAppend, transactions: Transactions, counters: Counters
    ) -> None:
        self._role = role
        self._append = append
        self._transactions = transactions
        self._counters = counters

    def end(self, request: EndTransactionRequest, *, exact: bool = False) -> bool:
        """Commit or roll back; :meth:`safe` returns when the end is on the disk.

        Args:
            exact: whether topic and message id of the request must also be those of the half message.

        Returns:
            Whether the transaction has ended; ``False``: its producer has not decided yet.

        Raises:
            NoTransactionError: the request names no transaction that can be ended.
            RemotingError: SLAVE_NOT_AVAILABLE, this broker does not lead; or as ``Transactions.end``.
        """
        if not (self._role.leads and self._role.takes_messages):
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {self._role.role.value}: its master ends transactions",
            )
        ended = self._transactions.end(request, exact=exact)
        if ended and request.commit_or_rollback == sysflag.TRANSACTION_COMMIT:
            self._counters.handled_in += 1
        return ended

    def safe(self) -> Awaitable[None]:
        """Return when the end made by :meth:`end` is as safe as a sent message.

        To be called in the same turn of the event loop as :meth:`end`; what it returns is awaited later.

        Raises:
            RemotingError: the mark of the end is not put yet: a crash would have the transaction checked.
            StoreClosedError: whether the end survives is unknown.
        """
        return self._settled(self._transactions.marked())

    async def _settled(self, marked: Awaitable[PutResult | RemotingError]) -> None:
        mark = await asyncio.shield(marked)  # other callers wait for the same mark
        if isinstance(mark, RemotingError):
            raise mark
        # A late disk or replica is answered with success too: the transaction has ended (sendFinalMessage).
        await self._append.settled(mark)
