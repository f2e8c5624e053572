"""The handler of EndTransaction, which commits and rolls back transactions."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.transactions.ending import EndingTransactions
from orbitmq.broker.transactions.service import NoTransactionError
from orbitmq.gateway import schema, transaction_id
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import topic_name
from orbitmq.gateway.schema import TransactionResolution
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok, status
from orbitmq.message import sysflag
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import EndTransactionRequest

_STATES: Final = {
    TransactionResolution.COMMIT: sysflag.TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: sysflag.TRANSACTION_ROLLBACK,
}


class TransactionEnds:
    """Ends transactions of gRPC clients."""

    def __init__(self, config: BrokerConfig, topics: TopicConfigs, ending: EndingTransactions) -> None:
        self._config = config
        self._topics = topics
        self._ending = ending

    async def end(
        self, _caller: Caller, request: schema.EndTransactionRequest
    ) -> schema.EndTransactionResponse:
        """Commit or roll back a transaction, however late: its first end counts."""
        topic = topic_name(request.topic)
        named = transaction_id.decode(request.transaction_id, self._config.broker_name)
        if not request.message_id:
            raise RefusalError(Code.ILLEGAL_MESSAGE_ID, "message_id is empty")
        if request.resolution == TransactionResolution.UNSPECIFIED:
            text = "resolution is not set: the transaction stays open, and its producers are asked again"
            return new(schema.EndTransactionResponse, status=status(Code.OK, text))
        if request.resolution not in _STATES:
            raise RefusalError(
                Code.BAD_REQUEST, f"resolution {request.resolution}: 1 is COMMIT, 2 is ROLLBACK"
            )
        if request.resolution == TransactionResolution.COMMIT and self._topics.get(topic) is None:
            raise RefusalError(
                Code.TOPIC_NOT_FOUND,
                f"topic {topic} is not there any more: the transaction can be rolled back, "
                f"or committed after: orbitmq topic create {topic}",
            )
        asked = EndTransactionRequest(
            producer_group=named.group,
            tran_state_table_offset=named.half_offset,
            commit_log_offset=named.log_offset,
            commit_or_rollback=_STATES[TransactionResolution(request.resolution)],
            msg_id=request.message_id,
            topic=topic,
            # As the answer to a check: those may come after the time that the producer has chosen.
            from_transaction_check=True,
        )
        try:
            self._ending.end(asked, exact=True)
            await self._ending.safe()
        except NoTransactionError as error:
            raise transaction_id.invalid(error.remark) from error
        except RemotingError as error:
            if error.code != ResponseCode.SLAVE_NOT_AVAILABLE:
                raise
            raise RefusalError(Code.INTERNAL_SERVER_ERROR, error.remark) from error
        return new(schema.EndTransactionResponse, status=ok())
