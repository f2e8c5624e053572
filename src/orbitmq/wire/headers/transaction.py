"""The headers of requests about transactions. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, RpcRequest

__all__ = [
    "CheckTransactionStateRequest",
    "EndTransactionRequest",
    "ResumeCheckHalfMessageRequest",
]


class EndTransactionRequest(RpcRequest, kw_only=True):
    """END_TRANSACTION (37), client to broker. One-way."""

    code: ClassVar[int] = RequestCode.END_TRANSACTION

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequest(RpcRequest, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), broker to client. One-way."""

    code: ClassVar[int] = RequestCode.CHECK_TRANSACTION_STATE

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequest(RequestHeader, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323), admin to broker."""

    code: ClassVar[int] = RequestCode.RESUME_CHECK_HALF_MESSAGE

    topic: str | None = None
    msg_id: str | None = None
