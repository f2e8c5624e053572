"""The headers of requests that pull or query messages. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader, TopicRequest

__all__ = [
    "LitePullMessageRequest",
    "PullMessageRequest",
    "PullMessageResponse",
    "QueryMessageRequest",
    "QueryMessageResponse",
    "ViewMessageByIdRequest",
]


class PullMessageRequest(TopicRequest, kw_only=True):
    """PULL_MESSAGE (11), client to broker."""

    code: ClassVar[int] = RequestCode.PULL_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponse(ResponseHeader, kw_only=True):
    """Response to PULL_MESSAGE (11)."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class LitePullMessageRequest(PullMessageRequest, kw_only=True):
    """LITE_PULL_MESSAGE (361), client to broker."""

    code: ClassVar[int] = RequestCode.LITE_PULL_MESSAGE


class QueryMessageRequest(TopicRequest, kw_only=True):
    """QUERY_MESSAGE (12), client to broker."""

    code: ClassVar[int] = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponse(ResponseHeader, kw_only=True):
    """Response to QUERY_MESSAGE (12)."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageByIdRequest(RequestHeader, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33), client to broker."""

    code: ClassVar[int] = RequestCode.VIEW_MESSAGE_BY_ID

    offset: Int64
    topic: str | None = None
