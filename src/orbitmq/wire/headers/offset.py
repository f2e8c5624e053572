"""The headers of requests about the offsets of queues and groups. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, ResponseHeader, RpcRequest, TopicRequest

__all__ = [
    "CloneGroupOffsetRequest",
    "GetConsumerStatusFromClientRequest",
    "GetEarliestMsgStoretimeRequest",
    "GetEarliestMsgStoretimeResponse",
    "GetMaxOffsetRequest",
    "GetMaxOffsetResponse",
    "GetMinOffsetRequest",
    "GetMinOffsetResponse",
    "InvokeBrokerToGetConsumerStatusRequest",
    "InvokeBrokerToResetOffsetRequest",
    "QueryConsumerOffsetRequest",
    "QueryConsumerOffsetResponse",
    "QueryCorrectionOffsetRequest",
    "ResetConsumerClientOffsetRequest",
    "SearchOffsetByTimestampRequest",
    "SearchOffsetByTimestampResponse",
    "TopicOffsetResponse",
    "UpdateConsumerOffsetRequest",
]


class TopicOffsetResponse(ResponseHeader, kw_only=True):
    """An offset of a queue.

    Attributes:
        made_at: only from OrbitMQ's brokers: identifies the topic among those that had its name and were
            deleted; None as long as no topic of this name is known to have been deleted.
    """

    offset: Int64
    made_at: str | None = None


class QueryConsumerOffsetRequest(TopicRequest, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14), client to broker."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponse(TopicOffsetResponse, kw_only=True):
    """Response to QUERY_CONSUMER_OFFSET (14)."""


class UpdateConsumerOffsetRequest(TopicRequest, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15), client to broker. One-way."""

    code: ClassVar[int] = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetByTimestampRequest(TopicRequest, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29), client to broker."""

    code: ClassVar[int] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetByTimestampResponse(TopicOffsetResponse, kw_only=True):
    """Response to SEARCH_OFFSET_BY_TIMESTAMP (29)."""


class GetMaxOffsetRequest(TopicRequest, kw_only=True):
    """GET_MAX_OFFSET (30), client to broker."""

    code: ClassVar[int] = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponse(TopicOffsetResponse, kw_only=True):
    """Response to GET_MAX_OFFSET (30)."""


class GetMinOffsetRequest(TopicRequest, kw_only=True):
    """GET_MIN_OFFSET (31), client to broker."""

    code: ClassVar[int] = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: Int32


class GetMinOffsetResponse(TopicOffsetResponse, kw_only=True):
    """Response to GET_MIN_OFFSET (31)."""


class GetEarliestMsgStoretimeRequest(TopicRequest, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME (32), client to broker."""

    code: ClassVar[int] = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponse(ResponseHeader, kw_only=True):
    """Response to GET_EARLIEST_MSG_STORETIME (32)."""

    timestamp: Int64


class InvokeBrokerToResetOffsetRequest(TopicRequest, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), admin to broker."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


class ResetConsumerClientOffsetRequest(InvokeBrokerToResetOffsetRequest, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET (220), broker to client. One-way."""

    code: ClassVar[int] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET


class InvokeBrokerToGetConsumerStatusRequest(TopicRequest, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), admin to broker."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerStatusFromClientRequest(InvokeBrokerToGetConsumerStatusRequest, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), broker to client."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


class CloneGroupOffsetRequest(RpcRequest, kw_only=True):
    """CLONE_GROUP_OFFSET (314), admin to broker."""

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetRequest(TopicRequest, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_CORRECTION_OFFSET

    compare_group: str
    topic: str
    filter_groups: str | None = None
